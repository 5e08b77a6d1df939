package setup

import (
	"errors"
	"fmt"
	"io"
)

// Exit codes of csi-fencepost sanity.
const (
	ExitFit        = 0 // fit for takeover, or fit with these settings
	ExitNotFit     = 1
	ExitCannotTell = 2 // asked wrongly, or no verdict could be given
)

const help = `csi-fencepost sanity asks a CSI driver what a takeover needs to know, and ends in a verdict: fit
for takeover, fit with these settings, or not fit and why. It creates a volume of its own, publishes
and unpublishes it, and deletes it. docs/vendors/fitness.md explains every question.

csi-fencepost sanity --csi-address /run/csi/csi.sock --node-ids ID-OF-N1,ID-OF-N2
csi-fencepost sanity writer --path DEVICE-OR-FILE   on a node: a client that does not let go

It runs the program csi-fencepost-sanity, which has to be beside it or in the PATH.
Exit codes: 0, fit, with settings or without; 1, not fit; 2, asked wrongly, or it cannot be told.

Flags:
`

// PrintHelp says what the program does, and its flags.
func PrintHelp(w io.Writer) { fmt.Fprint(w, help, NewOptions().Set.FlagUsages()) }

// Explain is an error of Parse as it is printed.
func Explain(err error) string {
	return fmt.Sprintf("sanity: %v; csi-fencepost sanity --help lists the flags", err)
}

// IsHelp tells whether only the flags were asked for.
func IsHelp(err error) bool { return errors.Is(err, ErrHelp) }
