package operate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Whatever is typed after a subcommand that claims or changes something: it is
// read, or refused as a wrong use, and nothing happens before.
func FuzzArguments(f *testing.F) {
	for _, args := range []string{"confirm n1 --reason x --yes", "release pv pv-1 --node n1 --reason=x", "off n1 --config=c --yes", "repair --all -o json",
		"confirm --node-id= -- -n1", "confirm n1 --override-agent= --reason= "} {
		f.Add(strings.ReplaceAll(args, " ", "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-v") || strings.Contains(a, "log") }) {
			return // flags that change this process
		}
		for name, err := range map[string]error{
			"confirm": second(parseConfirmFlags(args)), "release": second(parseReleaseFlags(args)), "power": second(parsePowerFlags("off", "", args)),
			"repair": second(parseRepairFlags(args)),
		} {
			var usage cli.UsageError
			var help *cli.Help
			if err != nil && !errors.As(err, &usage) && !errors.As(err, &help) {
				t.Errorf("%s %q: %v is no error of use", name, args, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Whatever a garbled ledger has left: each holder that it still names is found,
// once, and none is believed to have let go.
func FuzzSalvage(f *testing.F) {
	l := ledger.Ledger{Version: 1, Driver: "d", Handle: "v", Cluster: "c", PVUID: "p", Holders: []ledger.Entry{
		{NodeID: "i-1", NodeName: "n1", NodeUID: "u1", BootID: "b1", Token: "t1", State: fence.Released, Contest: &fence.Contest{BootID: "b1"}},
		{NodeID: `i-"2"`, State: fence.TakenOver}}}
	whole := l.String()
	f.Add(whole, uint(0), uint(0))
	f.Add(whole, uint(len(whole)/2), uint(1000))
	f.Add(whole, uint(3), uint(1))
	f.Fuzz(func(t *testing.T, text string, at, cut uint) {
		from := min(at, uint(len(text)))
		text = text[:from] + text[min(from+cut, uint(len(text))):]
		seen := map[string]bool{}
		for _, e := range readable(text) {
			if e.NodeID == "" || seen[e.NodeID] {
				t.Errorf("%q found twice, or empty", e.NodeID)
			}
			if e.State == fence.Released || e.State == fence.TakenOver || e.State == fence.Leaving {
				t.Errorf("%q of a garbled ledger is believed to be %s", e.NodeID, e.State)
			}
			seen[e.NodeID] = true
		}
		if parsed, err := ledger.Parse(text); err == nil {
			for _, e := range parsed.Holders {
				if !seen[e.NodeID] {
					t.Errorf("%q is lost", e.NodeID)
				}
			}
		}
	})
}
