package doctor

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// stripped stands for what was taken out, as csi.Redact has it.
const stripped = "***stripped***"

// A stripper takes out of objects what is, or may be, a secret, and remembers what surely is one:
// Events, logs and pages may quote it.
type stripper struct{ secrets map[string]string }

// minSecret is how long a value is that is looked for elsewhere; a shorter one would take every
// third word away.
const minSecret = 5

// take is a value that does not go into a bundle. secret: it is to be found in other texts too.
func (s *stripper) take(value any, secret bool) any {
	if text, is := value.(string); is && secret && len(text) >= minSecret {
		for _, form := range []string{text, url.QueryEscape(text), base64.StdEncoding.EncodeToString([]byte(text))} {
			s.secrets[form] = form
		}
	}
	return stripped
}

// secretName tells whether a flag, variable or key names a secret.
func secretName(name string) bool {
	name = strings.ToLower(name)
	return program.SecretName(name) || slices.ContainsFunc([]string{"cred", "pwd", "auth"}, func(word string) bool { return strings.Contains(name, word) })
}

// maps of drivers and people, in which any value may be a secret.
var freeMaps = []string{"volumeAttributes", "attachmentMetadata", "options", "data", "binaryData", "stringData", "parameters"}

// object strips an object that was decoded from JSON, in place.
func (s *stripper) object(o map[string]any) {
	for key, value := range o {
		inner, isMap := value.(map[string]any)
		list, _ := value.([]any)
		text, isText := value.(string)
		switch {
		case key == "managedFields":
			delete(o, key)
		case key == "annotations" && isMap:
			s.annotations(inner)
		case slices.Contains(freeMaps, key) && isMap:
			for name, v := range inner {
				inner[name] = s.take(v, secretName(name))
			}
		case key == "env", key == "httpHeaders":
			for _, one := range list {
				if v, is := one.(map[string]any); is && v["value"] != nil {
					name, _ := v["name"].(string)
					v["value"] = s.take(v["value"], secretName(name))
				}
			}
		case key == "args", key == "command", key == "mountOptions":
			s.words(list)
		case isText && (strings.Contains(strings.ToLower(key), "pass") || strings.Contains(strings.ToLower(key), "token")):
			o[key] = s.take(text, true)
		default:
			s.value(value)
		}
	}
}

func (s *stripper) value(value any) {
	switch v := value.(type) {
	case map[string]any:
		s.object(v)
	case []any:
		for _, one := range v {
			s.value(one)
		}
	}
}

// annotations keep what csi-fencepost and Kubernetes write, but for whole objects.
func (s *stripper) annotations(all map[string]any) {
	for key, value := range all {
		domain, name, _ := strings.Cut(key, "/")
		kubernetes := domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")
		if domain != "csi-fencepost.io" && !kubernetes || strings.HasPrefix(name, "last-applied") || secretName(name) {
			all[key] = s.take(value, secretName(name))
		}
	}
}

// open are flags of external-attacher, of csi-fencepost and of drivers whose values are no secret.
var open = []string{"csi-address", "listen", "config", "mode", "agent-dirs", "http-endpoint", "metrics-address", "endpoint", "leader-election-namespace",
	"leader-election-identity", "drivername", "driver-name", "driver", "nodeid", "node-id", "feature-gates", "tls-cert-file", "kubeconfig"}

// harmless are numbers, durations, switches, and files.
var harmless = regexp.MustCompile(`^(-?[0-9][0-9.]*[A-Za-z%]{0,2}|true|false|ro|rw|unix:[\w./-]+|/[\w./-]*|run|failover)$`)

// words are a command line, or the options of a mount: NAME=VALUE, NAME VALUE, VALUE.
func (s *stripper) words(list []any) {
	secret, openFlag := false, false // the flag before, if its value is still to come
	for i := range list {
		word, _ := list[i].(string)
		name, value, has := strings.Cut(word, "=")
		flag := strings.TrimLeft(name, "-")
		switch {
		case has && !secretName(flag) && (slices.Contains(open, flag) || harmless.MatchString(value)):
			secret, openFlag = false, false
		case has:
			list[i], secret, openFlag = name+"="+s.take(value, secretName(flag)).(string), false, false
		case flag != name:
			secret, openFlag = secretName(flag), slices.Contains(open, flag)
		case secret || !openFlag && !harmless.MatchString(word):
			list[i], secret, openFlag = s.take(word, secret), false, false
		default:
			secret, openFlag = false, false
		}
	}
}

// config is the text of a configuration without the parameters of fence agents that may be
// secrets. One that cannot be read is left out: nobody knows what stands where in it.
func (s *stripper) config(text string) string {
	c, err := config.Parse([]byte(text))
	if err != nil {
		return "# It is none that this version understands, and is left out."
	}
	for _, level := range c.Fencing.Levels {
		for _, a := range level.Agents {
			if a.Exec == nil {
				continue
			}
			for key, value := range a.Exec.Parameters {
				a.Exec.Parameters[key] = s.parameter(key, value)
			}
			for key, byNode := range a.Exec.NodeParameters {
				for node, value := range byNode {
					byNode[node] = s.parameter(key, value)
				}
			}
		}
	}
	out, err := yaml.Marshal(c)
	if err != nil {
		return "# It cannot be written: " + err.Error()
	}
	return string(out)
}

// parameter is a fence agent's, if people may see it.
func (s *stripper) parameter(key, value string) string {
	if program.Shows(key, value) {
		return value
	}
	return s.take(value, true).(string)
}

var (
	inURL    = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@`)
	withName = regexp.MustCompile(`(?i)((?:pass\w*|pwd|\w*secret\w*|\w*token|\w*credentials?|api-?key|authorization)["']?\s*[:=]\s*["']?)(?:bearer |basic )?[^\s"',;}]{3,}`)
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9+/=._~-]{8,}`)
)

// text is a text without what was taken out of objects, and what looks like it.
func (s *stripper) text(text string) string {
	return bearer.ReplaceAllString(inURL.ReplaceAllString(csi.Redact(text, s.secrets), "${1}"+stripped+"@"), "${1} "+stripped)
}

// free is text of a log: what stands behind the name of a secret goes, too.
func (s *stripper) free(text string) string {
	return withName.ReplaceAllString(s.text(text), "${1}"+stripped)
}

// texts strips every string of an object.
func (s *stripper) texts(value any) any {
	switch v := value.(type) {
	case string:
		return s.text(v)
	case map[string]any:
		for key, inner := range v {
			v[key] = s.texts(inner)
		}
	case []any:
		for i := range v {
			v[i] = s.texts(v[i])
		}
	}
	return value
}
