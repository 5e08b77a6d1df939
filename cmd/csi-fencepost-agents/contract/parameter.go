package contract

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parameter of an agent.
type Parameter struct {
	Name string
	// Type of the metadata: string, boolean (true or false, with a default) or second; empty: string.
	Type    string
	Default string
	Help    string
	// Required tells that there has to be a value.
	Required bool
	// Secret is never shown. NAME_file names a file that holds it, too.
	Secret bool
	// SecretFile tells that the value names a file that the vendor's SDK reads. What it holds is
	// never shown.
	SecretFile bool
	// Env is the environment variable from which the vendor's SDK reads it: a value is
	// put there. So an agent that was started without an environment has all of them.
	Env string
}

const (
	plug          = "plug"
	uuid          = "uuid"
	noUUID        = "none"
	timeout       = "timeout"
	fileOf        = "_file"
	maxSecretFile = 64 << 10
	maxInput      = 1 << 20
)

// common are the parameters of every agent.
func (a *Agent) common() []Parameter {
	all := []Parameter{
		{Name: uuid, Help: "The machine's system UUID. Nothing is said or done of a machine for which the platform says another one, or none. The word none: what the platform says is neither looked at nor printed."},
		{Name: timeout, Type: "second", Default: "60", Help: "Everything has to be done by then, the waiting for a machine to be off included."},
		{Name: "ca_file", Help: "Certificates (PEM) of those who may sign the platform's; instead of the system's."},
		{Name: "fingerprint", Help: "SHA-256 of the platform's own certificate, in hexadecimal. It is trusted, whoever signed it, and no other is."},
		{Name: "proxy", Env: "HTTPS_PROXY", Secret: true, Help: "The proxy for https, as in the environment variable HTTPS_PROXY. A secret, since it may have a password; with fingerprint it is an http:// one."},
	}
	if !a.Plugless {
		all = slices.Insert(all, 0, Parameter{Name: plug, Help: "The machine."})
	}
	return all
}

// all parameters in the order of the metadata: those that a file may hold have a second one.
func (a *Agent) all() (list []Parameter) {
	for _, p := range slices.Concat(a.common(), a.Parameters) {
		list = append(list, p)
		if p.Secret {
			list = append(list, Parameter{Name: p.Name + fileOf, Help: "A file that holds " + p.Name + "."})
		}
	}
	return list
}

// Values are the parameters of one call, those with a default and those of files included.
type Values map[string]string

// seconds of a parameter.
func (v Values) seconds(name string) (time.Duration, error) {
	text := strings.TrimSuffix(v[name], "s")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 3600 {
		return 0, fmt.Errorf("parameter %s: %q is no number of seconds from 1 to 3600", name, v[name])
	}
	return time.Duration(n) * time.Second, nil
}

// readInput reads key=value lines. Empty lines, and those that begin with #, are skipped.
func readInput(in io.Reader) (map[string]string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("the input: %w", err)
	}
	if len(text) > maxInput {
		return nil, fmt.Errorf("the input is longer than %d bytes", maxInput)
	}
	given := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, errors.New("a line of the input is no key=value; it is not shown, for it may be a secret")
		}
		if err := give(given, key, value); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// give takes one parameter. The names that fence agents had before count too.
func give(given map[string]string, key, value string) error {
	key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(key)), "-", "_")
	switch key {
	case "port":
		key = plug
	case "login":
		key = "username"
	case "passwd":
		key = "password"
	case "ipaddr":
		key = "ip"
	}
	if _, twice := given[key]; twice {
		return fmt.Errorf("parameter %q is given twice", key)
	}
	given[key] = value
	return nil
}

// ignored are parameters that programs send to every agent.
var ignored = []string{"nodename"}

// values checks what was given, fills in defaults and reads files.
func (a *Agent) values(given map[string]string) (Values, error) {
	known := map[string]Parameter{}
	var names []string
	for _, p := range a.all() {
		known[p.Name] = p
		names = append(names, p.Name)
	}
	v := Values{}
	for key, value := range given {
		switch _, ok := known[key]; {
		case ok:
			v[key] = value
		case !slices.Contains(ignored, key):
			return nil, fmt.Errorf("parameter %q is not known; there are %s", key, strings.Join(names, ", "))
		}
	}
	for _, p := range a.all() {
		if err := p.settle(v); err != nil {
			return nil, err
		}
	}
	if !a.Plugless && strings.ContainsAny(v[plug], "\x00 \t") {
		return nil, errors.New("parameter plug has white space in it")
	}
	return v, nil
}

// settle fills in one value.
func (p Parameter) settle(v Values) error {
	if file := v[p.Name+fileOf]; p.Secret && file != "" {
		if v[p.Name] != "" {
			return fmt.Errorf("parameters %s and %s: give one", p.Name, p.Name+fileOf)
		}
		text, err := readSecret(file)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", p.Name+fileOf, err)
		}
		v[p.Name] = text
	}
	if v[p.Name] == "" && p.Default != "" {
		v[p.Name] = p.Default
	}
	if v[p.Name] == "" && p.Required {
		return fmt.Errorf("parameter %s is missing: %s", p.Name, p.Help)
	}
	if p.Type == "boolean" && v[p.Name] != "true" && v[p.Name] != "false" {
		return fmt.Errorf("parameter %s: %q is neither true nor false", p.Name, v[p.Name])
	}
	if p.Env != "" && v[p.Name] != "" {
		return os.Setenv(p.Env, v[p.Name])
	}
	return nil
}

func readSecret(path string) (string, error) {
	text, err := ReadFile(path, maxSecretFile)
	switch value := strings.TrimRight(string(text), "\r\n"); {
	case err != nil:
		return "", err
	case value == "":
		return "", fmt.Errorf("%s is empty", path)
	default:
		return value, nil
	}
}

// ReadFile returns what is in a regular file of at most most bytes. What has no end, as a device or a
// pipe that nobody writes to, is refused: before it is opened, for that waits. Its errors name the file
// and show nothing of what is in it.
func ReadFile(path string, most int64) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return text, err
}
