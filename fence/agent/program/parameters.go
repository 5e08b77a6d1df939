package program

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

const varNode = "NODE"

// variables are what a value may contain, all of which differ by node.
var variables = map[string]func(agent.Machine) string{
	varNode:             func(m agent.Machine) string { return m.Node },
	agent.VarNodeID:     func(m agent.Machine) string { return m.NodeID },
	agent.VarProviderID: func(m agent.Machine) string { return m.ProviderID },
	agent.VarInstanceID: func(m agent.Machine) string { return fence.InstanceID(m.ProviderID) },
	agent.VarSystemUUID: func(m agent.Machine) string { return m.SystemUUID },
}

// What a variable stands for comes from the node itself or from its driver, so
// it reaches a program only as a name that no parser of an input, list, path,
// URL or shell takes for more than that. IDs of all clouds have this form (the _
// is in the resource groups that AKS makes); in Azure a resource group may have
// parentheses and any letter, which are left out.
const (
	maxVariable = 512
	nameForm    = "letters, digits and . _ : -"
	pathForm    = "letters, digits and . _ : / -"
)

var (
	notOfName = regexp.MustCompile(`[^A-Za-z0-9._:-]`)
	notOfPath = regexp.MustCompile(`[^A-Za-z0-9._:/-]`)
)

// unfit says why what a variable stands for must not reach a program; empty: it
// may. It shows no more of it than one character.
func unfit(name, value string) string {
	form, strange := nameForm, notOfName.FindString(value)
	if name == agent.VarNodeID || name == agent.VarProviderID {
		form, strange = pathForm, notOfPath.FindString(value)
	}
	switch {
	case strange != "":
		return fmt.Sprintf("has the character %+q, and only %s are allowed", []rune(strange)[0], form)
	case strings.HasPrefix(value, "-"):
		return "begins with '-', as options do"
	case len(value) > maxVariable:
		return fmt.Sprintf("has %d bytes, and %d are allowed", len(value), maxVariable)
	}
	for part := range strings.SplitSeq(value, "/") {
		if part == "." || part == ".." {
			return fmt.Sprintf("has the part %q, which makes another path of it", part)
		}
	}
	return ""
}

var (
	keyForm  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	variable = regexp.MustCompile(`\$\([^)]*\)?`)
)

// plain is a key as agents compare it.
func plain(key string) string { return strings.ReplaceAll(strings.ToLower(key), "-", "_") }

// reserved keys say what is done, or bend what a status means.
var reserved = map[string]string{
	"action":         "csi-fencepost names the action itself",
	"option":         "csi-fencepost names the action itself",
	"help":           "the program would print its help and do nothing else",
	"version":        "the program would print its version and do nothing else",
	"missing_as_off": "a machine that is not found is not off",
}

// parameter is one line of a program's input.
type parameter struct {
	key, value string
	showing
}

// showing is what people may see of a parameter's value, in a device's name and
// in what the program prints.
type showing int

const (
	// secret values are not shown at all. Such a value comes from a file, or its name says so.
	secret showing = iota
	// hidden values are shown only as equal or not. Such a value may be a secret.
	hidden
	// harmless values are shown whole. Only what is known to be no secret is so.
	harmless
)

// places are parameters that say which device is meant, where, and who asks:
// without them no message would be of use. A parameter that is missing here is hidden.
var places = []string{
	"ip", "ipaddr", "ipport", "port", "plug", "username", "login", "region", "zone", "project", "resourcegroup", "namespace",
	"systems_uri", "redfish_uri", "uuid", "node_name", "nodename", "pve_node", "switch", "devices",
}

// shows judges a parameter that stands in the configuration, by what the program
// says of it and by what is written, before its variables are replaced.
func (m *metadata) shows(key, value string) showing {
	key = plain(key)
	onlyVariables := variable.MatchString(value) && !strings.ContainsFunc(variable.ReplaceAllString(value, ""), func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r)
	})
	switch {
	case key == "key": // of a SCSI reservation: it tells machines apart
		return hidden
	case SecretName(key):
		return secret
	case m.choices[key] || slices.Contains(places, key) || onlyVariables:
		return harmless
	}
	return hidden
}

type parameters []parameter

// validate finds what is wrong whatever the node.
func (o Options) validate() error {
	var errs []error
	seen := map[string]string{}
	take := func(key string) {
		if err := checkKey(key); err != nil {
			errs = append(errs, err)
		}
		if other, twice := seen[plain(key)]; twice {
			errs = append(errs, fmt.Errorf("parameter %q is given twice (as %q): one place is enough", key, other))
		}
		seen[plain(key)] = key
	}
	perNode := len(o.NodeParameters) > 0
	for _, key := range slices.Sorted(maps.Keys(o.Parameters)) {
		take(key)
		value := o.Parameters[key]
		errs = append(errs, checkValue(key, value))
		perNode = perNode || variable.MatchString(value)
	}
	for _, key := range slices.Sorted(maps.Keys(o.ParameterFiles)) {
		take(key)
		if !filepath.IsAbs(o.ParameterFiles[key]) {
			errs = append(errs, fmt.Errorf("parameter %q: the file %q is no absolute path", key, o.ParameterFiles[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.NodeParameters)) {
		take(key)
		errs = append(errs, checkNodes(key, o.NodeParameters[key])...)
	}
	if !perNode {
		errs = append(errs, errors.New("nothing in its parameters differs by node, so it would act on one device for all nodes: "+
			"give nodeParameters, or a parameter with $(NODE), $(NODE_ID), $(PROVIDER_ID), $(INSTANCE_ID) or $(SYSTEM_UUID)"))
	}
	errs = append(errs, o.checkOwn(filepath.Base(o.Agent))...)
	if strings.Contains(filepath.Base(o.Agent), "redfish") && seen["systems_uri"] == "" {
		errs = append(errs, errNoSystem)
	}
	return errors.Join(errs...)
}

func checkNodes(key string, values map[string]string) (errs []error) {
	if len(values) == 0 {
		errs = append(errs, fmt.Errorf("nodeParameters: %q names no node", key))
	}
	for _, node := range slices.Sorted(maps.Keys(values)) {
		if values[node] == "" {
			errs = append(errs, fmt.Errorf("nodeParameters: %q of node %s is empty", key, node))
		}
		errs = append(errs, checkValue(key, values[node]))
	}
	return errs
}

var errNoSystem = errors.New("parameter systems_uri is missing: without it the program may act on another system of the same controller (for example /redfish/v1/Systems/1)")

func checkKey(key string) error {
	if !keyForm.MatchString(key) {
		return fmt.Errorf("%q is no parameter: letters, digits, _ and - make one", key)
	}
	if why, no := reserved[plain(key)]; no {
		return fmt.Errorf("parameter %q is not allowed: %s", key, why)
	}
	return nil
}

// checkValue holds a value against the input's form. It is not shown: it may be
// a secret.
func checkValue(key, value string) error {
	switch {
	case strings.ContainsAny(value, "\n\r\x00\v\f"):
		return fmt.Errorf("parameter %q: its value has more than one line; each is a parameter of its own to the program", key)
	case value != strings.TrimRight(value, " \t"):
		return fmt.Errorf("parameter %q: its value ends with white space, which the program cuts off", key)
	case plain(key) == "method" && strings.EqualFold(strings.TrimSpace(value), "cycle"):
		return fmt.Errorf("parameter %q: a power cycle leaves the machine on; use onoff", key)
	}
	for _, v := range variable.FindAllString(value, -1) {
		if variables[strings.TrimSuffix(strings.TrimPrefix(v, "$("), ")")] == nil || !strings.HasSuffix(v, ")") {
			return fmt.Errorf("parameter %q: %s is unknown; there are $(%s)", key, v,
				strings.Join(slices.Sorted(maps.Keys(variables)), "), $("))
		}
	}
	return nil
}

// forMachine are the parameters for one machine, sorted by key. meta are the
// program's.
func (o Options) forMachine(m agent.Machine, meta *metadata) (parameters, error) {
	var all parameters
	add := func(key, value string) error {
		shows := meta.shows(key, value)
		value, err := expand(key, value, m)
		all = append(all, parameter{key, value, shows})
		return err
	}
	for key, value := range o.Parameters {
		if err := add(key, value); err != nil {
			return nil, err
		}
	}
	for key, values := range o.NodeParameters {
		value, ok := values[m.Node]
		if !ok {
			return nil, fmt.Errorf("nodeParameters: %q does not name node %q", key, m.Node)
		}
		if err := add(key, value); err != nil {
			return nil, err
		}
	}
	for key, path := range o.ParameterFiles {
		path, err := file.ForNode(path, m.Node)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", key, err)
		}
		value, err := readValue(key, path)
		if err != nil {
			return nil, err
		}
		all = append(all, parameter{key, value, secret})
	}
	slices.SortFunc(all, func(a, b parameter) int { return cmp.Compare(a.key, b.key) })
	return all, nil
}

// maxValue bounds a file that holds one parameter: a token or a key at most.
const maxValue = 64 << 10

func readValue(key, path string) (string, error) {
	content, err := file.Read(path, maxValue)
	if err != nil {
		return "", fmt.Errorf("parameter %q: %w", key, err)
	}
	value := strings.TrimRight(string(content), "\r\n")
	if value == "" {
		return "", fmt.Errorf("parameter %q: file %s is empty", key, path)
	}
	if strings.ContainsAny(value, "\n\r\x00\v\f") || value != strings.TrimRight(value, " \t") {
		return "", fmt.Errorf("parameter %q: file %s holds more than one line, or white space at its end", key, path)
	}
	if plain(key) == "method" {
		return "", fmt.Errorf("parameter %q: name the method in the configuration, not in a file", key)
	}
	return value, nil
}

// expand replaces the variables. What a variable stands for is not expanded
// again, and is a plain name.
func expand(key, value string, m agent.Machine) (string, error) {
	var faults []error
	value = variable.ReplaceAllStringFunc(value, func(v string) string {
		name := v[2 : len(v)-1]
		is := variables[name](m)
		if is == "" {
			faults = append(faults, fmt.Errorf("parameter %q: %s of node %s is not known", key, v, m.Node))
		} else if why := unfit(name, is); why != "" {
			faults = append(faults, fmt.Errorf("parameter %q: %s of node %s %s: name the values in nodeParameters, node by node", key, v, m.Node, why))
		}
		return is
	})
	if len(faults) > 0 {
		return "", errors.Join(faults...)
	}
	return value, nil
}

// stdin is the program's input.
func (p parameters) stdin(action string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "action=%s\n", action)
	for _, one := range p {
		fmt.Fprintf(&b, "%s=%s\n", one.key, one.value)
	}
	return b.String()
}

// Shows tells whether people may see the value of a parameter that stands in the
// configuration, whichever program it is for: its name says where or what a device is.
func Shows(key, value string) bool { return (&metadata{}).shows(key, value) == harmless }

// SecretName tells whether a parameter that is called so is a secret, whatever else is known
// of it. A parameter that is none by its name may be a secret all the same.
func SecretName(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"pass", "secret", "token", "key"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// device identifies what is acted on: every parameter but those that are surely
// secrets, of which two nodes may have two for one device. What is hidden goes in
// as a hash that is worth nothing outside of this process.
func (p parameters) device() string {
	var words []string
	for _, one := range p {
		switch one.showing {
		case harmless:
			words = append(words, one.key+"="+one.value)
		case hidden:
			mac := hmac.New(sha256.New, hashKey)
			mac.Write([]byte(one.value))
			words = append(words, fmt.Sprintf("%s=#%x", one.key, mac.Sum(nil)[:6]))
		}
	}
	return strings.Join(words, " ")
}

var hashKey = func() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return key
}()
