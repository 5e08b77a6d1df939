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

type credentials struct {
	name, password string
	// nameFile and passwordFile are where they came from.
	nameFile, passwordFile string
}

// credentials reads both files for the node. Its errors name the file and never what is
// in it.
func (a *IPMI) credentials(node string) (c credentials, err error) {
	if c.nameFile, err = file.ForNode(a.options.UsernameFile, node); err != nil {
		return credentials{}, err
	}
	if c.passwordFile, err = file.ForNode(a.options.PasswordFile, node); err != nil {
		return credentials{}, err
	}
	if c.name, err = readLine(c.nameFile, "user name", maxName); err != nil {
		return credentials{}, err
	}
	c.password, err = readLine(c.passwordFile, "password", maxPassword)
	return c, err
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
