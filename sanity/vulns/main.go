// Command vulns says which known vulnerabilities the programs that are released call, from
// the output of govulncheck -format json on standard input (`make vulns`).
//
// It fails for those that go.mod can mend: those of modules, and those of the standard library
// that the Go of releases, go.mod's toolchain, has too. A change is not to blame for the Go
// that it is checked with: what only that has is said.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

func main() {
	called, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulns: govulncheck's output:", err)
		os.Exit(2)
	}
	releases, err := toolchain("go.mod")
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulns: the Go that releases are built with:", err)
		os.Exit(2)
	}
	text, failed := report(called, releases)
	fmt.Print(text)
	if failed {
		os.Exit(1)
	}
}

// found is one vulnerability in one module.
type found struct{ id, module, version, mended string }

// read returns the vulnerabilities whose code is called. govulncheck tells, too, of those
// in packages and modules of which nothing is called.
func read(in io.Reader) (called []found, err error) {
	seen := map[found]bool{}
	complete := false
	for decoder := json.NewDecoder(in); ; {
		var message struct {
			SBOM    *struct{} `json:"SBOM"` // is written once all is loaded
			Finding *struct {
				OSV   string `json:"osv"`
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Function string }
			} `json:"finding"`
		}
		err := decoder.Decode(&message)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		complete = complete || message.SBOM != nil
		if f := message.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			seen[found{f.OSV, f.Trace[0].Module, f.Trace[0].Version, f.Fixed}] = true
		}
	}
	if !complete {
		return nil, errors.New("it is not whole: nothing was looked at")
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b found) int {
		return slices.Compare([]string{a.module, a.id}, []string{b.module, b.id})
	}), nil
}

// stdlib is govulncheck's name for the standard library.
const stdlib = "stdlib"

// toolchain is the version of the Go that a go.mod has releases built with, as v1.2.3.
func toolchain(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mod, err := modfile.Parse(path, text, nil)
	if err != nil {
		return "", err
	}
	if mod.Toolchain == nil {
		return "", fmt.Errorf("%s has no toolchain", path)
	}
	return "v" + strings.TrimPrefix(mod.Toolchain.Name, "go"), nil
}

// report is what a person reads, and whether go.mod has something to mend. releases is the
// version of the Go that they are built with.
func report(called []found, releases string) (text string, failed bool) {
	for _, f := range called {
		what := "go.mod: " + f.module
		switch {
		case f.module != stdlib:
			failed = true
		case f.mended != "" && semver.Compare(releases, f.mended) >= 0:
			what = "this Go's standard library"
		default:
			what, failed = "go.mod: toolchain "+releases+": the standard library", failed || f.mended != ""
		}
		mended := "not mended yet"
		if f.mended != "" {
			mended = "mended in " + f.mended
		}
		text += fmt.Sprintf("%s %s has https://pkg.go.dev/vuln/%s, which is called; %s\n", what, f.version, f.id, mended)
	}
	return text, failed
}
