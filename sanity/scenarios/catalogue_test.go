//go:build catalogue

package scenarios

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

var catalogueFile = flag.String("catalogue", "CATALOGUE.md", "where the table of both outcomes is written")

// On Kubernetes' own clocks.
func init() { clocks = bed.RealClocks }

// TestCatalogue plays each scenario with Kubernetes alone and with
// csi-fencepost, and writes the table of both outcomes.
func TestCatalogue(t *testing.T) {
	type row struct{ alone, guarded string }
	rows := map[string]*row{}
	var mu sync.Mutex
	note := func(name string, f func(*row)) {
		mu.Lock()
		defer mu.Unlock()
		if rows[name] == nil {
			rows[name] = &row{}
		}
		f(rows[name])
	}
	t.Run("play", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.name+"/guarded", func(t *testing.T) {
				t.Parallel()
				outcome := runScenario(t, s, false)
				note(s.name, func(r *row) { r.guarded = outcome })
			})
			if s.guardedOnly {
				continue
			}
			t.Run(s.name+"/alone", func(t *testing.T) {
				t.Parallel()
				outcome := runScenario(t, s, true)
				note(s.name, func(r *row) { r.alone = outcome })
			})
		}
	})
	var out bytes.Buffer
	fmt.Fprintf(&out, "# What happens without and with csi-fencepost\n\n")
	fmt.Fprintf(&out, "Written by `make catalogue`: real etcd, kube-apiserver, kube-controller-manager,\nscheduler, external-attacher and kubelets (the versions are in\n`sanity/controlplane/*/go.mod`), Kubernetes' own clocks, %d cores.\n", runtime.NumCPU())
	fmt.Fprintf(&out, "\"Two nodes wrote at once\" and \"taken from a node that used it\" are what the\nstorage array itself saw.\n\n")
	fmt.Fprintf(&out, "| scenario | rule | reported as | Kubernetes alone | with csi-fencepost |\n|---|---|---|---|---|\n")
	for _, s := range all {
		r := rows[s.name]
		if r == nil {
			r = &row{}
		}
		alone := r.alone
		if s.guardedOnly {
			alone = "(nothing to compare)"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", s.name, s.rule, s.from, cell(alone), cell(r.guarded))
	}
	if err := os.WriteFile(*catalogueFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("written: %s", *catalogueFile)
}

// cell makes an outcome fit into a table; one that is missing failed.
func cell(text string) string {
	if text == "" {
		return "**the scenario failed**"
	}
	return strings.ReplaceAll(text, "|", "\\|")
}
