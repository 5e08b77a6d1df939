package splice

import (
	"errors"
	"strings"
	"testing"
)

// change applies a change of the first document's value.
func change(t *testing.T, text string, want any) (string, error) {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Apply(Change{Values: map[int]any{0: want}})
	return string(out), err
}

type m = map[string]any

func TestOnlyTheLinesOfAChangeAreTouched(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want any
		new  string
	}{
		"a plain scalar": {"a: 1 # one\nb: x\n", m{"a": 2, "b": "x"},
			"# csi-fencepost: begin\n# csi-fencepost: was|a: 1 # one\na: 2 # one\n# csi-fencepost: end\nb: x\n"},
		"quotes stay": {"a: 'x'\nb: \"y\"\n", m{"a": "p q", "b": "r"},
			"# csi-fencepost: begin\n# csi-fencepost: was|a: 'x'\n# csi-fencepost: was|b: \"y\"\na: 'p q'\nb: \"r\"\n# csi-fencepost: end\n"},
		"an item, before the comment behind": {"a:\n- x\n# end\nb: 1\n", m{"a": []any{"x", "z"}, "b": 1},
			"a:\n- x\n# csi-fencepost: begin\n- z\n# csi-fencepost: end\n# end\nb: 1\n"},
		"a key, CRLF": {"a:\r\n  b: 1\r\nc: 2\r\n", m{"a": m{"b": 1, "d": "x"}, "c": 2},
			"a:\r\n  b: 1\r\n  # csi-fencepost: begin\r\n  d: x\r\n  # csi-fencepost: end\r\nc: 2\r\n"},
		"no newline at the end": {"a:\n- x", m{"a": []any{"x", "z"}},
			"a:\n# csi-fencepost: begin\n# csi-fencepost: was|- x\n- x\n- z\n# csi-fencepost: end"},
		"a null becomes a list": {"a: # none\nb: 1\n", m{"a": []any{"x"}, "b": 1},
			"# csi-fencepost: begin\n# csi-fencepost: was|a: # none\na:\n  - x # none\n# csi-fencepost: end\nb: 1\n"},
		"runes before": {"{ü: 1, a: [é]} # é\n", m{"ü": 1, "a": []any{"é", "x"}},
			"# csi-fencepost: begin\n# csi-fencepost: was|{ü: 1, a: [é]} # é\n# YAML, for the comments below: JSON has none.\n{ü: 1, a: [é, \"x\"]} # é\n# csi-fencepost: end\n"},
		"a scalar of several lines is taken whole": {"a: [x, \"p\n  q\"]\nb: 1\n", m{"a": []any{"y", "p q"}, "b": 1},
			"# csi-fencepost: begin\n# csi-fencepost: was|a: [x, \"p\n"},
		"a byte order mark stays first": {"\ufeff{a: 1}\n", m{"a": 2}, "\ufeff# csi-fencepost: begin\n"},
		"a merged value is overridden": {"x: &x {k: 1}\na:\n  <<: *x\n", m{"x": m{"k": 1}, "a": m{"k": 2}},
			"x: &x {k: 1}\na:\n  <<: *x\n  # csi-fencepost: begin\n  k: 2\n  # csi-fencepost: end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := change(t, c.text, c.want)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(got, c.new) {
				t.Errorf("got\n%q\nwant\n%q", got, c.new)
			}
			back, changed, err := Undo([]byte(got))
			if err != nil || !changed || string(back) != c.text {
				t.Errorf("came back as %q: %v", back, err)
			}
		})
	}
}

// What cannot be changed safely is an error, never another document.
func TestUnsafeChangesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want any
	}{
		"an anchor that is used elsewhere": {"a: &x [1]\nb: *x\n", m{"a": []any{1, 2}, "b": []any{1}}},
		"a document that has our marks":    {"a: 1\nb: |\n  # csi-fencepost: begin\n", m{"a": 2, "b": "# csi-fencepost: begin\n"}},
	} {
		got, err := change(t, c.text, c.want)
		if at := (*Error)(nil); !errors.As(err, &at) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

// The last document may end in a scalar that would swallow what follows.
func TestAppendedDocumentsStayWhatTheyAre(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "a: 1\n", "a: 1", "---\na: |\n  text\n", "a: [{b: 1}]", "a: 1\n---\n", "a: 1\n...\n"} {
		s, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Apply(Change{Append: []string{"x: |\n  1\n", "# two\ny: 2\n"}})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		after, err := Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		roots := full(after.Roots())
		if len(roots) < 2 {
			t.Fatalf("%q: %d documents", text, len(roots))
		}
		if value, err := Decode(roots[len(roots)-2]); err != nil || value.(m)["x"] != "1\n" {
			t.Errorf("%q: %v %v", text, value, err)
		}
		if back, _, err := Undo(out); err != nil || string(back) != text {
			t.Errorf("%q came back as %q: %v", text, back, err)
		}
	}
}

// An editor that adds the newline at the end of a file does no harm.
func TestUndoAfterAnEditorHasBeenThere(t *testing.T) {
	out, err := change(t, "a:\n- x", m{"a": []any{"x", "z"}})
	if err != nil {
		t.Fatal(err)
	}
	if back, _, err := Undo([]byte(out + "\n# mine\n")); err != nil || string(back) != "a:\n- x\n# mine\n" {
		t.Errorf("%q: %v", back, err)
	}
}

func TestMarksWithoutTheirPartnerAreNamedByLine(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n# csi-fencepost: end\n":                             "line 2: ",
		"a: 1\n# csi-fencepost: begin\n":                           "line 2: ",
		"# csi-fencepost: begin\na: 1\n  # csi-fencepost: begin\n": "line 3: ",
	} {
		if _, _, err := Undo([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatIsNoYAMLIsNamedByLine(t *testing.T) {
	for _, text := range []string{"a: 1\nb: [\n", "a: 1\n b: 2\n", "\xff\xfe", "a: *nowhere\n"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// The last guard: whatever the edits did, no other document may have changed.
func TestADocumentThatChangedUnaskedIsFound(t *testing.T) {
	before, err := Parse([]byte("a: 1\n---\nb: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a: 2\n---\nb: y\n", "a: 2\n---\nb: 'x'\n", "a: 2\n", "a: 2\n---\nb: x\n---\nc: 1\n", "a: [\n"} {
		c := Change{Values: map[int]any{0: m{"a": 2}}, Bare: true}
		if err := before.check(text, c); err == nil {
			t.Errorf("%q passes", text)
		}
		if err := before.check("a: 2 # two\n---\nb: x\n", c); err != nil {
			t.Error(err)
		}
	}
}
