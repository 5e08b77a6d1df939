package ipmi

import (
	"fmt"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

// What RMCP+ can carry (IPMI 2.0, 13.20 and 22.30).
const (
	maxName     = 16
	maxPassword = 20
	// maxFile, in bytes, is more than either with its line break.
	maxFile = 4 << 10
)

type credentials struct{ name, password string }

// credentials reads both files. Its errors name the file and never what is in it.
func (a *IPMI) credentials() (credentials, error) {
	name, err := readLine(a.options.UsernameFile, "user name", maxName)
	if err != nil {
		return credentials{}, err
	}
	password, err := readLine(a.options.PasswordFile, "password", maxPassword)
	return credentials{name, password}, err
}

func readLine(path, what string, most int) (string, error) {
	content, err := file.Read(path, maxFile)
	if err != nil {
		return "", fmt.Errorf("the %s cannot be read: %w", what, err)
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case line == "":
		return "", fmt.Errorf("the file with the %s, %s, is empty", what, path)
	case len(line) > most:
		return "", fmt.Errorf("the %s in %s has more than the %d bytes that IPMI allows", what, path, most)
	}
	return line, nil
}
