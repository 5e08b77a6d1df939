package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// html/template calls methods by their names, and so makes the linker keep every
// method of every type: half of the memory that an idle sidecar would need.
func TestNothingIsLinkedThatKeepsEveryMethod(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if packages := strings.Fields(string(out)); slices.Contains(packages, "html/template") || !slices.Contains(packages, "google.golang.org/grpc") {
		t.Error("html/template is linked (go list -deps; with the tag grpcnotrace only grpc's own use of it is gone)")
	}
}
