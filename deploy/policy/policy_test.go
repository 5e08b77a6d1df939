package policy

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// Kubernetes' CEL refuses lists and maps of mixed types, and no literal of ours
// may be one. That the API server takes the whole is tested in sanity/kubeapi.
func TestMixedTypesAreWrapped(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{"it's \"$(A)\"\n", `"it's \"$(A)\"\n"`},
		{[]string{}, `[]`},
		{map[string]string{}, `{}`},
		{[]string{"a", "b"}, "[\n  \"a\",\n  \"b\"\n]"},
		{map[string]any{"a": 1, "b": true}, "{\n  \"a\": dyn(1),\n  \"b\": dyn(true)\n}"},
		{map[string]any{"a": 1, "b": 1.5}, "{\n  \"a\": dyn(1),\n  \"b\": dyn(1.5)\n}"},
		{[]any{[]string{"a"}, []string{}}, "[\n  dyn([\n    \"a\"\n  ]),\n  dyn([])\n]"},
		{[]any{[]int{1}, []string{"a"}}, "[\n  dyn([\n    1\n  ]),\n  dyn([\n    \"a\"\n  ])\n]"},
		{[]any{map[string]int{"a": 1}, map[string]int{"b": 2}}, "[\n  {\n    \"a\": 1\n  },\n  {\n    \"b\": 2\n  }\n]"},
	} {
		got, err := literal(c.value)
		if err != nil || got != c.want {
			t.Errorf("%v: %v\n%s\nwant\n%s", c.value, err, got, c.want)
		}
	}
	if got, err := literal(map[string]any{"a": nil}); err == nil {
		t.Errorf("null became %s", got)
	}
}

// A value that stands alone is changed behind its own flag only: 15s may be
// another flag's, too.
func TestAValueIsChangedBehindItsOwnFlagOnly(t *testing.T) {
	got, err := rewriteWords(address{}, "args", []string{"--retry", "15s", "--timeout", "15s"}, []string{"--retry", "15s", "--timeout", "60s"})
	const want = `a == "15s" && i > 0 && args[i - 1] == "--timeout" ? "60s"`
	if err != nil || !strings.Contains(got, want) || strings.Contains(got, "--retry") {
		t.Errorf("%v: %s", err, got)
	}
}

// A plan that cannot be expressed is an error, not a policy that does half.
func TestAPlanThatNoPolicyCanExpressIsRefused(t *testing.T) {
	good := func() *inject.Plan {
		return planOf([]string{"--csi-address=/csi/csi.sock"}, []string{"--csi-address=/fencepost/csi.sock"})
	}
	if _, err := Render([]*inject.Plan{good()}); err != nil {
		t.Fatal(err)
	}
	for says, spoil := range map[string]func(*inject.Plan){
		"takes arguments away":               func(p *inject.Plan) { p.Attacher.ArgsBefore = append(p.Attacher.ArgsBefore, "--v=2") },
		"does not point csi-attacher at":     func(p *inject.Plan) { p.Attacher.Args = p.Attacher.ArgsBefore },
		"does not point csi-attacher at our": func(p *inject.Plan) { p.Sidecar.Args = []string{"run"} },
	} {
		p := good()
		spoil(p)
		out, err := Render([]*inject.Plan{p})
		if err == nil || out != nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "driver.yaml:7") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
