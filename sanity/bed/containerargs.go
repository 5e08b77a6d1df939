package bed

import (
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// args are a container's arguments with its variables put in and its paths as
// they are on this machine. Its HTTP port becomes a free one.
func (p *controllerPod) args(c *corev1.Container) (args []string) {
	p.stage.T.Helper()
	env := p.env(c)
	for _, arg := range c.Args {
		flag, value, has := strings.Cut(expand(arg, env), "=")
		switch {
		case !has:
			args = append(args, p.mapped(c, flag))
		case strings.TrimLeft(flag, "-") == "http-endpoint":
			args = append(args, flag+"=127.0.0.1:0")
		default:
			args = append(args, flag+"="+p.mapped(c, value))
		}
	}
	return args
}

// mapped maps a value that is a path, with unix:// in front or not; others stay.
func (p *controllerPod) mapped(c *corev1.Container, value string) string {
	p.stage.T.Helper()
	path := strings.TrimPrefix(value, "unix://")
	if !strings.HasPrefix(path, "/") {
		return value
	}
	return strings.TrimSuffix(value, path) + p.path(c, path)
}

// path is where a path of a container is on this machine: in the folder of the
// volume that is mounted deepest above it.
func (p *controllerPod) path(c *corev1.Container, path string) string {
	p.stage.T.Helper()
	folder, deepest := "", -1
	for _, m := range c.VolumeMounts {
		at := filepath.Clean(m.MountPath)
		if rest, is := strings.CutPrefix(filepath.Clean(path), at+"/"); is && len(at) > deepest {
			folder, deepest = filepath.Join(p.stage.socket(m.Name), m.SubPath, rest), len(at)
		}
	}
	if deepest < 0 {
		p.stage.T.Fatalf("%s: container %s has the argument %s, which lies on none of its volumes: %+v", p.stage.Name, c.Name, path, c.VolumeMounts)
	}
	return folder
}

// env is a container's environment. Variables may use those ahead of them.
func (p *controllerPod) env(c *corev1.Container) map[string]string {
	p.stage.T.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = expand(e.Value, env)
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			env[e.Name] = p.namespace
		case from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName":
			env[e.Name] = p.stage.Name + "-controller"
		default:
			p.stage.T.Fatalf("%s: container %s: variable %s comes from %+v, which is not played here", p.stage.Name, c.Name, e.Name, from)
		}
	}
	return env
}

var variable = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expand puts variables in; an unknown one stays as it is, as in Kubernetes.
func expand(text string, env map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(reference string) string {
		if value, known := env[variable.FindStringSubmatch(reference)[1]]; known {
			return value
		}
		return reference
	})
}

// flagOf is the value of a flag, with one dash or two, behind = or as the next
// argument.
func flagOf(args []string, name string) (value string, has bool) {
	for i, arg := range args {
		flag, value, joined := strings.Cut(arg, "=")
		switch {
		case !strings.HasPrefix(flag, "-") || strings.TrimLeft(flag, "-") != name:
		case joined:
			return value, true
		case i+1 < len(args):
			return args[i+1], true
		}
	}
	return "", false
}
