package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/term"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// pluginName is the program's name as a plugin of kubectl, which runs it for
// `kubectl fencepost`.
const pluginName = "kubectl-fencepost"

// UnderName returns the writers that the program prints to. Started by kubectl,
// it names its subcommands as they are typed then: whoever pastes a command out
// of an explanation may have no csi-fencepost in the PATH.
func UnderName(arg0 string, stdout, stderr io.Writer) (io.Writer, io.Writer) {
	name := strings.TrimSuffix(filepath.Base(arg0), ".exe")
	if name != pluginName {
		return stdout, stderr
	}
	return renamed{stdout}, renamed{stderr}
}

// typed is a subcommand as a person types it; `csi-fencepost run` and
// failover are what a container is told, by whatever name it is read of. A line may have
// been wrapped within it.
var typed = regexp.MustCompile(`\bcsi-fencepost(\s+)(explain|doctor|fence|release|ledger|uninstall|inject|uninject|completion|sanity|version|help|SUBCOMMAND)\b`)

// renamed is a writer of text. Each text is written whole, so that no name is
// split between two.
type renamed struct{ to io.Writer }

func (r renamed) Write(text []byte) (int, error) {
	if _, err := r.to.Write(typed.ReplaceAll(text, []byte("kubectl fencepost$1$2"))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// past is what w filters for: only what the program itself has a terminal do goes there.
func past(w io.Writer) io.Writer {
	if f, ok := w.(printable.Writer); ok {
		return f.To
	}
	return w
}

// Verbatim writes somebody's file that is handed on as it is. A terminal, which would act
// on it, is shown it as text.
func Verbatim(w io.Writer) io.Writer {
	if _, ok := Terminal(w); ok {
		return w
	}
	return past(w)
}

// Terminal is the terminal that w writes to; false: it writes elsewhere.
func Terminal(w io.Writer) (*os.File, bool) {
	w = past(w)
	if r, ok := w.(renamed); ok {
		w = r.to
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}
