package doctor

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
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
func (s *stripper) take(value any, secret bool) string {
	text, _ := value.(string)
	if text = strings.TrimSpace(text); secret && len(text) >= minSecret {
		quoted, _ := json.Marshal(text) // no string fails
		for _, form := range []string{text, strings.Trim(string(quoted), `"`), url.QueryEscape(text), url.PathEscape(text), base64.RawStdEncoding.EncodeToString([]byte(text))} {
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

// freeMaps are maps of drivers and people, in which any value may be a secret.
var freeMaps = []string{"volumeAttributes", "attachmentMetadata", "options", "data", "binaryData", "stringData", "parameters"}

// object strips an object that was decoded from JSON, in place.
func (s *stripper) object(o map[string]any) {
	for key, value := range o {
		inner, isMap := value.(map[string]any)
		list, _ := value.([]any)
		text, isText := value.(string)
		switch {
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
		case isMap:
			s.object(inner)
		default:
			for _, one := range list {
				if inner, is := one.(map[string]any); is {
					s.object(inner)
				}
			}
		}
	}
}

// annotations keep what csi-fencepost and Kubernetes write, but for whole objects, options and
// command lines.
func (s *stripper) annotations(all map[string]any) {
	for key, value := range all {
		domain, name, _ := strings.Cut(key, "/")
		kept := domain == "csi-fencepost.io" || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")
		if !kept || strings.HasPrefix(name, "last-applied") || name == "mount-options" || name == "change-cause" || secretName(name) {
			all[key] = s.take(value, secretName(name))
		}
	}
}

// open are flags of external-attacher, of csi-fencepost and of drivers whose values are no secret,
// as long as they have the form of plain.
var open = []string{"csi-address", "listen", "config", "mode", "agent-dirs", "http-endpoint", "metrics-address", "endpoint", "leader-election", "leader-election-namespace",
	"leader-election-identity", "drivername", "driver-name", "driver", "nodeid", "node-id", "feature-gates", "timeout", "tls-cert-file", "kubeconfig"}

var (
	// flagForm is the name of a flag. -pVALUE is none.
	flagForm = regexp.MustCompile(`^(--[A-Za-z][\w.-]*|-[A-Za-z])$`)
	plain    = regexp.MustCompile(`^[\w.:/,=$()\[\]-]*$`)
	// harmless are numbers, durations, switches, and files, whatever the flag.
	harmless = regexp.MustCompile(`^(-?[0-9][0-9.]*[A-Za-z%]{0,2}|true|false|ro|rw|unix:[\w./-]+|/[\w./-]*|run|failover)$`)
)

// words are a command line: NAME=VALUE, NAME VALUE, VALUE. Names of flags stay.
func (s *stripper) words(list []any) {
	shows := func(flag, value string) bool {
		return !secretName(flag) && (harmless.MatchString(value) || slices.Contains(open, flag) && plain.MatchString(value))
	}
	before := "" // the flag whose value may come next
	for i := range list {
		word, _ := list[i].(string)
		name, value, has := strings.Cut(word, "=")
		flag := strings.TrimLeft(name, "-")
		isFlag := flagForm.MatchString(name) || flag != name && slices.Contains(open, flag)
		switch {
		case isFlag && !has:
			before = flag
			continue
		case isFlag && !shows(flag, value):
			list[i] = name + "=" + s.take(value, secretName(flag))
		case !isFlag && !shows(before, word):
			list[i] = s.take(word, secretName(before))
		}
		before = ""
	}
}

// config is the text of a configuration without the parameters of fence agents that may be
// secrets. A text that cannot be read is left out: nobody knows what stands where in it.
func (s *stripper) config(text string) string {
	c, err := config.Parse([]byte(text))
	if err != nil {
		return "# It is none that this version understands, and is left out."
	}
	take := func(key string, value *string) {
		if !program.Shows(key, *value) {
			*value = s.take(*value, true)
		}
	}
	for _, level := range c.Fencing.Levels {
		for _, a := range level.Agents {
			if a.Exec == nil {
				continue
			}
			for key, value := range a.Exec.Parameters {
				take(key, &value)
				a.Exec.Parameters[key] = value
			}
			for key, byNode := range a.Exec.NodeParameters {
				for node, value := range byNode {
					take(key, &value)
					byNode[node] = value
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

const (
	secretWord = `(?:pass|secret|token|credential|cookie|(?:private|access|api)[_-]?key)`
	// A value up to the quote that closes it, or to the blank that ends it.
	secretValue = `(?:(\\+["'])[^"'\\]+|(")(?:\\.|[^"\\])+|(')[^']+|(?:bearer |basic )?[^\s"'}<\\]{2,}[^\s"'}<\\,;])`
)

var (
	// inURL reaches to the last @, as a password may have one, and a slash.
	inURL     = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)(?:[^\s/"'<>:@]*:[^\s"'<>]*|[^\s/"'<>]*)@`)
	noURL     = regexp.MustCompile(`[\w.+-]+:[^\s"'<>@/]+@(?:sha256:)?`)
	inQuery   = regexp.MustCompile(`([?&][\w.%-]+=)[^\s&"'<>#]+`)
	bearer    = regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9+/=._~-]{8,}`)
	encoded   = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]*|(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z))`)
	withName  = regexp.MustCompile(`(?i)((?:[\w-]*` + secretWord + `[\w-]*|pwd|authorization)(?:\\*["'])?\s*[:=>]+\s*)` + secretValue)
	afterFlag = regexp.MustCompile(`(?i)(--?[\w-]*` + secretWord + `[\w-]*["']?,?\s+)` + secretValue)
)

// text is a text without what was taken out of objects, and what looks like it.
func (s *stripper) text(text string) string {
	text = encoded.ReplaceAllString(csi.Redact(text, s.secrets), stripped)
	text = bearer.ReplaceAllString(inURL.ReplaceAllString(text, "${1}"+stripped+"@"), "${1} "+stripped)
	return noURL.ReplaceAllStringFunc(text, func(found string) string { // user:password@host
		return cli.Either(strings.HasSuffix(found, "@sha256:"), found, stripped+"@") // but image:tag@sha256:...
	})
}

// free is text that anybody wrote: what stands behind the name of a secret, and in a query, goes too.
func (s *stripper) free(text string) string {
	text = s.text(text)
	for _, r := range []*regexp.Regexp{withName, afterFlag} {
		text = r.ReplaceAllString(text, "${1}${2}${3}${4}"+stripped)
	}
	return inQuery.ReplaceAllString(text, "${1}"+stripped)
}

// texts strips every string of an object. Our annotations, and data that is left, are documents
// of ours, whose tokens and files are no secrets.
func (s *stripper) texts(value any, strip func(string) string) any {
	switch v := value.(type) {
	case string:
		return strip(v)
	case map[string]any:
		for key, inner := range v {
			if key == "data" || strings.HasPrefix(key, "csi-fencepost.io/") {
				v[key] = s.texts(inner, s.text)
			} else {
				v[key] = s.texts(inner, strip)
			}
		}
	case []any:
		for i := range v {
			v[i] = s.texts(v[i], strip)
		}
	}
	return value
}
