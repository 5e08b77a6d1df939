package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A given is one flag of a command line, as Go's flag package reads it.
type given struct {
	name, value string
	list        *[]string // command or args
	at          int       // index of the flag
	apart       bool      // the value is the next entry
}

// A commandLine is a container's command and arguments; set changes copies.
type commandLine struct {
	command, args []string
	flags         []given
	env           map[string]*string // nil: set by something that is not in the manifest
}

// booleans of external-attacher and of klog: they take no next entry.
var booleans = []string{
	"leader-election", "version", "automaxprocs", "logtostderr", "alsologtostderr", "add_dir_header", "one_output", "skip_headers", "skip_log_headers",
}

// readCommandLine returns the flags. An error says which entry cannot be one.
func readCommandLine(c *corev1.Container) (*commandLine, error) {
	l := &commandLine{command: slices.Clone(c.Command), args: slices.Clone(c.Args), env: environment(c)}
	if len(l.command) > 0 && slices.Contains([]string{"sh", "bash", "ash", "dash", "busybox"}, path.Base(l.command[0])) {
		return nil, fmt.Errorf("container %s is started by a shell (%s), and its flags are not a list: write them as args", c.Name, l.command[0])
	}
	stop, err := l.read(&l.command, min(1, len(l.command)))
	if err == nil && stop == "" {
		stop, err = l.read(&l.args, 0)
	}
	if err == nil && stop != "" {
		err = fmt.Errorf("%q is no flag of container %s, and no flag behind it would be read: take it out", stop, c.Name)
	}
	return l, err
}

// read takes a list apart. It returns the entry at which the program would stop.
func (l *commandLine) read(list *[]string, from int) (stop string, err error) {
	for i := from; i < len(*list); i++ {
		entry := strings.TrimSpace((*list)[i])
		name, value, has := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(entry, "-"), "-"), "=")
		if len(entry) < 2 || entry[0] != '-' || name == "" {
			return (*list)[i], nil
		}
		g := given{name: name, value: value, list: list, at: i}
		if !has && i+1 < len(*list) && !strings.HasPrefix((*list)[i+1], "-") && !slices.Contains(booleans, name) {
			i++
			g.value, g.apart = strings.TrimSpace((*list)[i]), true
		}
		l.flags = append(l.flags, g)
	}
	return "", nil
}

// get returns the flag that holds, the last of its name; nil without one.
func (l *commandLine) get(name string) *given {
	for i := len(l.flags) - 1; i >= 0; i-- {
		if l.flags[i].name == name {
			return &l.flags[i]
		}
	}
	return nil
}

// set changes the flag that holds, in its own spelling, or appends it.
func (l *commandLine) set(name, value string) {
	g := l.get(name)
	switch {
	case g == nil:
		l.args = append(l.args, "--"+name+"="+value)
		l.flags = append(l.flags, given{name: name, value: value, list: &l.args, at: len(l.args) - 1})
		return
	case g.apart:
		(*g.list)[g.at+1] = value
	default:
		entry := strings.TrimSpace((*g.list)[g.at])
		(*g.list)[g.at] = entry[:strings.Index(entry, name)] + name + "=" + value
	}
	g.value = value
}

// environment of a container. What comes from elsewhere is nil.
func environment(c *corev1.Container) map[string]*string {
	env := map[string]*string{}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			env[e.Name] = nil
			continue
		}
		if value, err := expand(e.Value, env); err == nil {
			env[e.Name] = &value
		} else {
			env[e.Name] = nil
		}
	}
	return env
}

// expand replaces $(NAME) as Kubernetes does: a name that is not defined stays,
// and $$ is one $. A variable without a value in the manifest is an error.
func expand(text string, env map[string]*string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		name, _, closed := strings.Cut(strings.TrimPrefix(rest, "$("), ")")
		value, known := env[name]
		switch {
		case strings.HasPrefix(rest, "$$"):
			out.WriteByte('$')
			i++
		case !strings.HasPrefix(rest, "$(") || !closed || !known:
			out.WriteByte(text[i])
		case value == nil:
			return "", fmt.Errorf("the value of $(%s) is not in the manifest (valueFrom): write it out", name)
		default:
			out.WriteString(*value)
			i += len(name) + 2
		}
	}
	return out.String(), nil
}

// expanded is the value of the flag that holds, or what it is by default.
func (l *commandLine) expanded(name, byDefault string) (string, error) {
	g := l.get(name)
	if g == nil {
		return byDefault, nil
	}
	value, err := expand(g.value, l.env)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", name, err)
	}
	if strings.Contains(value, "$(") {
		return "", fmt.Errorf("--%s=%s names a variable that the manifest does not define (envFrom?): write it out", name, value)
	}
	return value, nil
}

// isOn tells whether a boolean flag is given and not false.
func (l *commandLine) isOn(name string) bool {
	g := l.get(name)
	if g == nil {
		return false
	}
	value, err := expand(g.value, l.env)
	return err != nil || !slices.Contains([]string{"false", "False", "FALSE", "f", "F", "0"}, value)
}
