package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// Whatever a pod of a driver says of itself, and whatever its log quotes: the value of a variable that
// is named like a secret is in no file of a bundle, wherever else it stands, nor anything that a
// terminal acts on. SECRET stands for that value.
func FuzzBundle(f *testing.F) {
	const secret, quoted = `hunter2 "long" é/+`, "SECRET"
	f.Add(`{"metadata":{"name":"p","annotations":{"a":"SECRET","kubernetes.io/x":"said SECRET"}},"spec":{"containers":[{"name":"c","args":["-x","--y=SECRET"],"env":[{"name":"OTHER","value":"SECRET"}],"livenessProbe":{"exec":{"command":["SECRET"]}}}]}}`,
		"I0101 said SECRET\x1b[2J", `{"body":"{\"a\":\"SECRET\"}"}`)
	f.Add(`{"status":{"message":"x SECRET y","containerStatuses":[{"name":"c","state":{"terminated":{"message":"SECRETSECRET"}}}]}}`, "SECRET\n", "")
	f.Add(`{"spec":{"volumes":[{"name":"v","csi":{"driver":"d","volumeAttributes":{"k":"SECRET"}}}],"nodeSelector":{"k":"SECRET"}}}`, "password: SECRET", "-----BEGIN PRIVATE KEY-----SECRET")
	escaped, err := json.Marshal(secret)
	if err != nil {
		f.Fatal(err)
	}
	within := strings.Trim(string(escaped), `"`)
	f.Fuzz(func(t *testing.T, podText, log, page string) {
		var pod corev1.Pod
		if strings.Contains(podText, "hunter2") || json.Unmarshal([]byte(strings.ReplaceAll(podText, quoted, within)), &pod) != nil || named(&pod, "hunter2") {
			return
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "last", Env: []corev1.EnvVar{{Name: "API_PASSWORD", Value: secret}}})
		b := newBundle()
		b.files["logs/a.log"], b.files["pages/a"] = strings.ReplaceAll(log, quoted, secret), strings.ReplaceAll(page, quoted, within)
		b.add(&pod)
		b.finish(&Report{})
		if len(b.errs) > 0 {
			t.Errorf("%q", b.errs)
		}
		for name, text := range b.files {
			if strings.Contains(text, secret) || strings.Contains(text, within) {
				t.Errorf("%s shows the secret: %q", name, text)
			}
			if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }); i >= 0 {
				t.Errorf("a terminal acts on %s: %q", name, text[i:])
			}
		}
	})
}

// named: the word stands in the name of something, which stays.
func named(pod *corev1.Pod, word string) bool {
	text, err := json.Marshal(pod)
	var all any
	if err != nil || json.Unmarshal(text, &all) != nil {
		return true
	}
	var inName func(any) bool
	inName = func(value any) bool {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				if strings.Contains(key, word) || inName(inner) {
					return true
				}
			}
		case []any:
			for _, inner := range v {
				if inName(inner) {
					return true
				}
			}
		}
		return false
	}
	return inName(all)
}
