package policy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

func planOf(before, after []string) *inject.Plan {
	return &inject.Plan{
		Where: "driver.yaml:7", APIVersion: "apps/v1", Kind: "Deployment", Namespace: "n", Name: "d",
		Attacher: inject.Attacher{Container: "csi-attacher", ArgsBefore: before, Args: after},
		Sidecar:  corev1.Container{Name: "csi-fencepost", Args: []string{"run", "--csi-address=/csi/csi.sock", "--listen=/fencepost/csi.sock"}},
	}
}

// Each way in which the manifest writes the driver's socket is one that an
// operator may write, and it is sent to ours. What our expressions do with it is
// tested in sanity/kubeapi.
func TestTheDriversAddressesAreThoseThatThePlanHasSeen(t *testing.T) {
	for _, c := range []struct{ before, after, driver string }{
		{"--v=2", "--v=2 --csi-address=/fencepost/csi.sock", "/csi/csi.sock"},
		{"--csi-address=/csi/csi.sock", "--csi-address=/fencepost/csi.sock", "/csi/csi.sock"},
		{"-csi-address=$(ADDRESS)", "-csi-address=/fencepost/csi.sock", "$(ADDRESS) /csi/csi.sock"},
		{"--csi-address unix:/csi/csi.sock", "--csi-address /fencepost/csi.sock", "/csi/csi.sock unix:/csi/csi.sock"},
		{"-csi-address=/old.sock --csi-address=/csi/csi.sock", "-csi-address=/old.sock --csi-address=/fencepost/csi.sock", "/csi/csi.sock /old.sock"},
		{"--other-csi-address=/a --csi-addresses=/b", "--other-csi-address=/a --csi-addresses=/b --csi-address=/fencepost/csi.sock", "/csi/csi.sock"},
	} {
		got, err := addressOf(planOf(strings.Fields(c.before), strings.Fields(c.after)))
		if err != nil || got.guard != "/fencepost/csi.sock" || !slices.Equal(got.driver, strings.Fields(c.driver)) {
			t.Errorf("%s: %+v, %v", c.before, got, err)
		}
	}
}

// Even where the plan adds the flag only, or leaves the list as it is.
func TestEachSpellingOfTheDriversAddressIsRewritten(t *testing.T) {
	to := address{guard: "/g", driver: []string{"/d"}}
	for what, lists := range map[string][2][]string{
		"changed":  {{"--csi-address=/d"}, {"--csi-address=/g"}},
		"added":    {{"--v=2"}, {"--v=2", "--csi-address=/g"}},
		"left":     {{"-csi-address=/d"}, {"-csi-address=/d"}},
		"two left": {{"-csi-address", "/d"}, {"-csi-address", "/d"}},
	} {
		got, err := rewriteWords(to, "args", lists[0], lists[1])
		for _, want := range []string{
			`a in ["--csi-address=/d"] ? "--csi-address=/g"`,
			`a in ["-csi-address=/d"] ? "-csi-address=/g"`,
			`i > 0 && args[i - 1] in ["--csi-address", "-csi-address"] && a in ["/d"] ? "/g"`,
		} {
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("%s: %v: no %s in\n%s", what, err, want, got)
			}
		}
	}
	if got, err := rewriteWords(to, "command", []string{"/csi-attacher"}, []string{"/csi-attacher"}); err != nil || got != "" {
		t.Errorf("a list without an address is written anew: %v %s", err, got)
	}
}

// A flag's value may stand in the other list: the command's last word and the
// first argument.
func TestTheValidationReadsCommandAndArgumentsAsOneLine(t *testing.T) {
	policy, err := validatingPolicy(planOf([]string{"--csi-address=/csi/csi.sock"}, []string{"--csi-address=/fencepost/csi.sock"}))
	if err != nil {
		t.Fatal(err)
	}
	line := policy.Spec.Variables[0]
	if line.Name != "words" || !strings.Contains(line.Expression, "(has(c.command) ? c.command : []) + (has(c.args) ? c.args : [])") {
		t.Errorf("%+v", line)
	}
	for _, v := range policy.Spec.Validations[1:] {
		if !strings.HasPrefix(v.Expression, "variables.words.") {
			t.Errorf("it does not go by the whole line: %s", v.Expression)
		}
	}
}
