package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// slim leaves out the discovery of targets in every cloud, which promtool links
// and which checks of rules do not need.
const slim = "remove_all_sd"

// Tool is a program of the tools module: promtool or promql. It is built into
// bin/ where it is missing or older than its go.mod; go's cache makes that quick
// from the second time on.
func Tool(t testing.TB, name string) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	module := filepath.Join(filepath.Dir(here), "tools")
	path := filepath.Join(filepath.Dir(here), "..", "..", "bin", name)
	pkg := "./" + name
	if name == "promtool" {
		pkg = "github.com/prometheus/prometheus/cmd/promtool"
	}
	if upToDate(path, filepath.Join(module, "go.mod"), filepath.Join(module, "promql", "main.go")) {
		return path
	}
	fmt.Fprintf(os.Stderr, "building %s from Prometheus's modules; the first time takes minutes\n", name)
	build := exec.Command("go", "build", "-tags", slim, "-o", path, pkg)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s cannot be built: %v\n%s", name, err, out)
	}
	return path
}

// upToDate tells whether the file is there, and younger than all others.
func upToDate(path string, others ...string) bool {
	built, err := os.Stat(path)
	if err != nil {
		return false
	}
	for _, other := range others {
		source, err := os.Stat(other)
		if err != nil || source.ModTime().After(built.ModTime()) {
			return false
		}
	}
	return true
}

// Selected is one metric of an expression, with the labels that the expression
// names.
type Selected struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

// Parse has Prometheus's own parser read the expressions. An expression that it
// does not take fails the test.
func Parse(t testing.TB, exprs []string) [][]Selected {
	t.Helper()
	var in bytes.Buffer
	write := json.NewEncoder(&in)
	for _, e := range exprs {
		if err := write.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	parse := exec.Command(Tool(t, "promql"))
	parse.Stdin = &in
	var said strings.Builder
	parse.Stderr = &said
	out, err := parse.Output()
	if err != nil {
		t.Fatalf("an expression does not parse: %s", said.String())
	}
	var all [][]Selected
	for read := json.NewDecoder(bytes.NewReader(out)); read.More(); {
		var one []Selected
		if err := read.Decode(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if len(all) != len(exprs) {
		t.Fatalf("%d expressions, %d answers", len(exprs), len(all))
	}
	return all
}

// Folder is deploy/monitoring.
func Folder() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "deploy", "monitoring")
}
