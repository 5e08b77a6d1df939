package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

// Whatever the sidecar is told: it is read, or refused as a wrong use.
func FuzzArguments(f *testing.F) {
	f.Add("--csi-address=/a\n--listen=/b\n--metrics-path=/{x\n--leader-election")
	f.Add("--csi-address=/a\n--listen\n/b\n--timeout=1s")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-v") || strings.Contains(a, "log") }) {
			return // flags that change this process
		}
		var usage cli.UsageError
		var help *cli.Help
		flags, err := parseRunFlags(args)
		if err != nil && !errors.As(err, &usage) && !errors.As(err, &help) && !errors.Is(err, errVersion) {
			t.Errorf("%q: %v is no error of use", args, err)
		}
		if err == nil {
			flags.mux(t) // no path that was taken panics
		}
	})
}
