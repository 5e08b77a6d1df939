package main

import (
	"strings"
	"testing"
)

const loaded = `{"SBOM":{"go_version":"go1.26.8"}}
`

// library is a finding of the standard library.
func library(mended string) string {
	return `{"finding":{"osv":"GO-2","fixed_version":"` + mended + `","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"F"}]}}`
}

func TestTheToolchainIsRead(t *testing.T) {
	if v, err := toolchain("../../go.mod"); err != nil || !strings.HasPrefix(v, "v1.") {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := toolchain("../tools/go.mod"); err == nil {
		t.Errorf("of a module without one: %q", v)
	}
}

func TestOnlyACalledVulnerabilityThatGoModCanMendFails(t *testing.T) {
	for _, test := range []struct {
		finding, says string
		failed        bool
	}{
		{`{"finding":{"osv":"GO-1","fixed_version":"v0.2.0","trace":[{"module":"example.com/m","version":"v0.1.0","package":"example.com/m/p","function":"F"}]}}`,
			"go.mod: example.com/m v0.1.0 has https://pkg.go.dev/vuln/GO-1, which is called; mended in v0.2.0\n", true},
		{`{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v0.1.0","package":"example.com/m/p","function":"F"}]}}`,
			"go.mod: example.com/m v0.1.0 has https://pkg.go.dev/vuln/GO-1, which is called; not mended yet\n", true},
		{`{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v0.1.0","package":"example.com/m/p"}]}}`, "", false},
		{`{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v0.1.0"}]}}`, "", false},
		{library("v1.26.9"), "this Go's standard library v1.26.8 has https://pkg.go.dev/vuln/GO-2, which is called; mended in v1.26.9\n", false},
		{library("v1.26.10"), "this Go's standard library v1.26.8 has https://pkg.go.dev/vuln/GO-2, which is called; mended in v1.26.10\n", false},
		{library("v1.26.11"), "go.mod: toolchain v1.26.10: the standard library v1.26.8 has https://pkg.go.dev/vuln/GO-2, which is called; mended in v1.26.11\n", true},
		{library(""), "go.mod: toolchain v1.26.10: the standard library v1.26.8 has https://pkg.go.dev/vuln/GO-2, which is called; not mended yet\n", false},
	} {
		called, err := read(strings.NewReader(loaded + test.finding + test.finding))
		if err != nil {
			t.Fatal(err)
		}
		if text, failed := report(called, "v1.26.10"); text != test.says || failed != test.failed {
			t.Errorf("%s\nsays %q, fails: %v; expected %q, %v", test.finding, text, failed, test.says, test.failed)
		}
	}
}

// A scan that did not take place finds nothing.
func TestAScanThatIsNotWholeIsAnError(t *testing.T) {
	for _, in := range []string{"", `{"config":{}}`, loaded + `{"finding":`, "govulncheck: no such database"} {
		if called, err := read(strings.NewReader(in)); err == nil {
			t.Errorf("%q: %v", in, called)
		}
	}
}
