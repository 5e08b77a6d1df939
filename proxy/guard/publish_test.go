package guard

import "testing"

func TestAWordIsFoundWhereItStandsAlone(t *testing.T) {
	for text, want := range map[string]bool{"id-1": true, "a id-1": true, "id-1.": true, "(id-1)": true, "xid-1": false, "id-12": false, "id-1_": false,
		"id-1-": false, "Aid-1": false, "9id-1": false, "id-1z": false, "id-1Z": false, "id-1a": false, "id-1A": false, "id-10": false, "id-19": false, "id-11 id-1": true, "id-11 id-12 id-1": true, "": false} {
		if namesID(text, "id-1") != want {
			t.Errorf("%q names id-1: %v", text, !want)
		}
	}
}
