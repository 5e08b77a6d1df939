package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// manifests are those that inject's own tests have.
func manifests(f *testing.F) {
	f.Helper()
	names, err := filepath.Glob("../inject/testdata/cases/*.yaml")
	if err != nil || len(names) < 10 {
		f.Fatalf("%d manifests: %v", len(names), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".golden.yaml") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "array.example.com")
	}
}

var document = regexp.MustCompile(`(?m)^---\n`)

// Whatever the manifests say: the policies are YAML, four for each workload, and
// nothing of the manifests becomes a document of its own.
func FuzzRender(f *testing.F) {
	manifests(f)
	f.Fuzz(func(t *testing.T, text []byte, driver string) {
		r, err := inject.Inject([]inject.File{{Name: "f.yaml", Text: text}}, inject.Options{Drivers: strings.Fields(driver), Namespace: "storage", Separate: true})
		if err != nil {
			return
		}
		out, err := Render(r.Plans)
		if err != nil {
			return
		}
		documents := document.Split(string(out), -1)
		if len(documents) != 4*len(r.Plans) {
			t.Fatalf("%d documents for %d workloads:\n%s", len(documents), len(r.Plans), out)
		}
		for i, d := range documents {
			var object struct{ Kind string }
			if err := yaml.Unmarshal([]byte(d), &object); err != nil {
				t.Fatalf("%v in\n%s", err, d)
			}
			want := []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}[i%4]
			if object.Kind != want {
				t.Errorf("document %d is a %s, want a %s", i, object.Kind, want)
			}
		}
	})
}

// No text gets out of its literal.
func FuzzLiteral(f *testing.F) {
	for _, s := range []string{`"`, `\`, "a\nb", "\x00\u2028é", `" + object.x + "`, "\xff", "${x}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := literal(text)
		if err != nil {
			t.Fatal(err)
		}
		back, err := strconv.Unquote(got)
		if err != nil || utf8.ValidString(text) && back != text || strings.ContainsAny(got, "\n\r\u2028") {
			t.Errorf("%q is written %s, and that is %q (%v)", text, got, back, err)
		}
	})
}
