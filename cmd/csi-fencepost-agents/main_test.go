package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

func TestEachAgentHasANameAndSaysWhatItsStatesMean(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range agents() {
		if seen[a.Name] || a.Name == "" || a.Short == "" || !strings.Contains(a.Long, "neither") || !strings.Contains(a.Long, "off is ") {
			t.Errorf("%+v", a)
		}
		seen[a.Name] = true
		var out, errs bytes.Buffer
		p := contract.Program{Name: "csi-fencepost-agents", Agents: agents(), Stdout: &out, Stderr: &errs}
		if code := p.Run(t.Context(), []string{"fence_fencepost_" + a.Name, "-o", "metadata"}); code != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit %d, %s", a.Name, code, &errs)
		}
	}
}
