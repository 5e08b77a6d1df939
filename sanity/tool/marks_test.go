package tool

import "testing"

func TestOnlyWhatIsBetweenTheMarksIsReplaced(t *testing.T) {
	const page = "before\n<!-- begin: written by make x -->\nold\n<!-- end -->\nafter\n"
	got, err := Between([]byte(page), "make x", []byte("new\n"))
	if want := "before\n<!-- begin: written by make x -->\nnew\n<!-- end -->\nafter\n"; err != nil || string(got) != want {
		t.Errorf("got %q, error %v", got, err)
	}
	for _, page := range []string{"", "<!-- end -->\n", "<!-- begin: written by make x -->\n", "<!-- begin: written by make y -->\n<!-- end -->\n"} {
		if got, err := Between([]byte(page), "make x", nil); err == nil {
			t.Errorf("%q became %q", page, got)
		}
	}
}
