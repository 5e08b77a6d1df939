package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// flags are the spellings of the attacher's flag that names its socket: Go's
// flag package takes both, the value behind "=" or as the next word. The last
// one wins.
var flags = []string{"--csi-address", "-csi-address"}

// An address is where the attacher has to go, and from where it is sent there.
type address struct {
	// guard is our socket.
	guard string
	// driver are the driver's sockets, as the plan has seen them written.
	driver []string
}

func addressOf(p *inject.Plan) (a address, err error) {
	for _, arg := range p.Sidecar.Args {
		if value, ok := strings.CutPrefix(arg, "--listen="); ok {
			a.guard = value
		}
		if value, ok := strings.CutPrefix(arg, "--csi-address="); ok {
			a.driver = append(a.driver, value)
		}
	}
	words := slices.Concat(p.Attacher.Command, p.Attacher.Args)
	if a.guard == "" || !slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, a.guard) }) {
		return a, errors.New("the plan does not point " + cmp.Or(p.Attacher.Container, "the attacher") + " at our socket")
	}
	before := slices.Concat(p.Attacher.CommandBefore, p.Attacher.ArgsBefore)
	for i := range before {
		if value, ok := addressAt(before, i); ok && value != a.guard {
			a.driver = append(a.driver, value)
		}
	}
	slices.Sort(a.driver)
	a.driver = slices.Compact(a.driver)
	return a, nil
}

// addressAt is the socket that word i names, if it names one.
func addressAt(words []string, i int) (string, bool) {
	if i > 0 && slices.Contains(flags, words[i-1]) {
		return words[i], true
	}
	for _, flag := range flags {
		if value, ok := strings.CutPrefix(words[i], flag+"="); ok {
			return value, true
		}
	}
	return "", false
}

// point is the CEL of word a, at i of a list, that sends each address of the
// driver to our socket, in whatever spelling and however often it is there. An
// address that the plan has not seen stays as it is, to be refused.
func (d address) point(list string) string {
	result := "a"
	if len(d.driver) == 0 {
		return result
	}
	result = fmt.Sprintf("i > 0 && %s[i - 1] in %s && a in %s ? %q\n  : %s", list, oneLine(flags), oneLine(d.driver), d.guard, result)
	for _, flag := range slices.Backward(flags) {
		var words []string
		for _, socket := range d.driver {
			words = append(words, flag+"="+socket)
		}
		result = fmt.Sprintf("a in %s ? %q\n  : %s", oneLine(words), flag+"="+d.guard, result)
	}
	return result
}

// only is the CEL that is true where no word of a list names another socket
// than ours.
func (d address) only(list string) string {
	var ours []string
	for _, flag := range flags {
		ours = append(ours, flag+"="+d.guard)
	}
	return fmt.Sprintf("%[1]s.all(i, a, !a.matches(\"^--?(attacher-)?csi-address(=|$)\") ||\n  a in %[2]s ||\n  a in %[3]s && i + 1 < size(%[1]s) && %[1]s[i + 1] == %[4]q)",
		list, oneLine(ours), oneLine(flags), d.guard)
}

// oneLine is a list of strings as CEL.
func oneLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
