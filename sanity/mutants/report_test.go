package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageThatIsNotMutatedIsNamed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"cmd/x/main.go":            "package main",
		"csi/a.go":                 "package csi",
		"csi/half/a.go":            "package half",
		"csi/half/b.go":            "package half",
		"fence/agent/a.go":         "package agent",
		"fence/agent/ipmi/a.go":    "package ipmi",
		"fence/agent/z.go":         "package agent",
		"fence/only/a_test.go":     "package only",
		"proxy/testdata/a/a.go":    "package a",
		"sanity/notours/a.go":      "package notours",
		"proxy/guard/deep/here.go": "package deep",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := productPackages(root)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(notMutated(packages, []target{{Folder: "csi"}, {Folder: "fence/agent/ipmi"}}), "\n")
	var want []string
	for _, folder := range []string{"cmd/x", "csi/half", "fence/agent", "proxy/guard/deep"} {
		want = append(want, "package "+folder+" is not mutated at all: sanity/mutants/target.go does not name it")
	}
	if got != strings.Join(want, "\n") {
		t.Errorf("it says\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// What a target names is there, and what this repository has is seen.
func TestTheTargetsArePackagesOfTheProduct(t *testing.T) {
	packages, err := productPackages("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		if !slices.Contains(packages, target.Folder) {
			t.Errorf("there is no package %s", target.Folder)
		}
	}
	if !slices.Contains(packages, simulated) {
		t.Errorf("%s is not among %s", simulated, packages)
	}
}

func TestWhatMutantsAreHeldAgainstIsSaid(t *testing.T) {
	unit := target{Folder: "a", Tests: []test{{Folder: "a"}}}
	if got := heldAgainst([]target{unit}); !strings.HasSuffix(got, "held against the simulation: none") {
		t.Errorf("it says %s", got)
	}
	both := target{Folder: "b", Tests: []test{{Folder: "b"}}, Then: []test{{Folder: simulated}}}
	if got := heldAgainst([]target{unit, both}); !strings.HasSuffix(got, "held against the simulation: b") {
		t.Errorf("it says %s", got)
	}
}
