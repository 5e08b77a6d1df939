package explain

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

// Whatever is typed after explain: it is read, or refused as a wrong use.
func FuzzArguments(f *testing.F) {
	f.Add("explain\npv\nx\n-w")
	f.Add("pod\nx\n-n\ny\n-ojson\n--observe=1s")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		var usage cli.UsageError
		var help *cli.Help
		if _, err := parseExplainFlags(args); err != nil && !errors.As(err, &usage) && !errors.As(err, &help) {
			t.Errorf("%q: %v is no error of use", args, err)
		}
	})
}
