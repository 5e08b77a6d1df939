package format

import (
	"strings"
	"testing"
)

// inner and document are of the version of these tests.
type inner struct {
	Name  string `json:"name"`
	Later Later  `json:",embed"`
}

type document struct {
	Version int      `json:"version"`
	Must    []string `json:"must,omitempty"`
	Inner   []inner  `json:"inner,omitempty"`
	Later   Later    `json:",embed"`
}

func TestWhatALaterVersionAddedIsKeptAtEachDepth(t *testing.T) {
	const text = `{"version":1,"inner":[{"name":"a <b>","since":{"x":[1,2.50]}}],"hint":"h"}`
	var d document
	if err := Parse(text, 1, nil, &d); err != nil {
		t.Fatal(err)
	}
	if got, err := Text(&d); err != nil || got != text {
		t.Errorf("%v, written again:\n%s\nwant:\n%s", err, got, text)
	}
	d.Inner[0].Name = "c"
	if got, _ := Text(&d); got != strings.Replace(text, "a <b>", "c", 1) {
		t.Errorf("changed: %s", got)
	}
}

func TestWhatAReaderHasToKnowIsRefusedUnlessItDoes(t *testing.T) {
	const text = `{"version":1,"must":["seal","generation"],"seal":1,"generation":2}`
	var d document
	err := Parse(text, 1, []string{"seal"}, &d)
	if err == nil || !strings.HasSuffix(err.Error(), "have to know: generation; run the newer csi-fencepost") {
		t.Errorf("%v", err)
	}
	if err := Parse(text, 1, []string{"generation", "seal", "other"}, &d); err != nil {
		t.Error(err)
	}
	if got, _ := Text(&d); got != text {
		t.Errorf("written again: %s", got)
	}
}

func TestNothingElseIsTakenSilently(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"no JSON":         {`{`, "not JSON"},
		"no object":       {`[]`, "not JSON"},
		"text after it":   {`{"version":1} {}`, "not JSON"},
		"not UTF-8":       {"{\"version\":1,\"hint\":\"\xff\"}", "UTF-8"},
		"twice, unknown":  {`{"version":1,"hint":1,"hint":2}`, "duplicate"},
		"no version":      {`{"inner":[]}`, "version is missing; it should be 1"},
		"an older one":    {`{"version":0}`, "version 0 is unknown"},
		"a later one":     {`{"version":2,"inner":7}`, "version 2 is newer"},
		"another type":    {`{"version":1,"inner":[{"name":1}]}`, "inner[0].name: Invalid type"},
		"must of no list": {`{"version":1,"must":"seal"}`, " must: Invalid type"},
	} {
		var d document
		if err := Parse(c.text, 1, nil, &d); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}

func TestALaterVersionIsNoGarbage(t *testing.T) {
	for text, want := range map[string]bool{
		`{"version":2}`:                   true,
		`{"version":1,"must":["seal"]}`:   true,
		`{"version":1,"must":["known"]}`:  false,
		`{"version":1,"inner":[{"name":`:  false,
		`{"version":"two"}`:               false,
		`{"version":1,"inner":"garbage"}`: false,
	} {
		var d document
		if got := IsNewer(Parse(text, 1, []string{"known"}, &d)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestAUnionKeepsWhatEitherHasAndTheFirstOnesWord(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{``, ``, ``},
		{`{"a":1}`, ``, `{"a":1}`},
		{``, `{"b":2}`, `{"b":2}`},
		{`{"a":1,"c":3}`, `{"b":2,"a":9}`, `{"a":1,"b":2,"c":3}`},
	} {
		if got := string(Union(Later(c.a), Later(c.b))); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}
