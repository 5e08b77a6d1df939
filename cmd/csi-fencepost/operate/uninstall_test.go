package operate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// notInTheCluster are the names under csi-fencepost.io that no object of the
// cluster is given by this program: the file format's version, what people write
// that is only read, and annotations that go with the object that they are on.
var notInTheCluster = []string{
	"csi-fencepost.io/v1alpha1",
	"csi-fencepost.io/policy",                                                                   // of the chart's webhooks, which are deleted whole
	"csi-fencepost.io/inject",                                                                   // of people, in a driver's pod template
	record.Annotation, record.NodeAnnotation, record.FencedAnnotation, record.ClaimedAnnotation, // on the records, which are deleted whole
}

// Whoever gives objects a new annotation has to say here whether uninstall takes
// it away (volumeAnnotations and the like in uninstall.go), or why it need not.
func TestUninstallKnowsEveryNameThatTheSourcesWrite(t *testing.T) {
	var known []string
	for _, list := range [][]string{volumeAnnotations, attachmentAnnotations, nodeAnnotations, peoplesAnnotations, notInTheCluster} {
		known = append(known, list...)
	}
	found := map[string]string{}
	for _, folder := range []string{"cmd", "csi", "fence", "proxy"} {
		constants(t, filepath.Join("..", "..", "..", folder), found)
	}
	for _, name := range []string{"csi-fencepost.io/holders", "csi-fencepost.io/retry", "csi-fencepost.io/witness"} {
		if found[name] == "" {
			t.Errorf("the search does not find %s, which is there", name)
		}
	}
	for name, where := range found {
		if !slices.Contains(known, name) {
			t.Errorf("%s: uninstall does not know %s", where, name)
		}
	}
}

// constants finds every string of the form csi-fencepost.io/NAME.
func constants(t *testing.T, folder string, found map[string]string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if name, ours := strings.CutPrefix(text, "csi-fencepost.io/"); err == nil && ours && name != "" && !strings.ContainsAny(name, " \n/") {
					found[text] = files.Position(literal.Pos()).String()
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWrongUninstallAndLedgerAreExitCode2(t *testing.T) {
	for want, args := range map[string][]string{
		"uninstall: it takes no arguments, got pv-1":    {"uninstall", "pv-1"},
		"unknown flag: --really":                        {"uninstall", "--really"},
		"ledger: no subcommand is given: one of export": {"ledger"},
		`ledger: unknown subcommand "mend"`:             {"ledger", "mend"},
		"name the PersistentVolumes, or give --all":     {"ledger", "repair"},
		"or give --all: ":                               {"ledger", "repair", "--all", "pv-1"},
		"--yes writes, and --dry-run does not":          {"ledger", "repair", "pv-1", "--yes", "--dry-run"},
		"--dry-run=false writes nothing by itself":      {"ledger", "repair", "pv-1", "--dry-run=false"},
		`--output is "text": it has to be yaml or json`: {"ledger", "export", "-o", "text"},
	} {
		_, stderr := commandLine(t, cli.ExitUsage, args...)
		clitest.Says(t, stderr, want)
	}
	for want, args := range map[string][]string{
		"--force": {"uninstall", "--help"}, "--dry-run": {"ledger", "repair", "-h"}, "--output": {"ledger", "export", "--help"}, "ledger export [PV...]": {"ledger", "--help"},
	} {
		stdout, _ := commandLine(t, cli.ExitOK, args...)
		clitest.Says(t, stdout, want)
	}
}

// Only a reading proves that a cut was taken back: a fence that failed after its
// agent was told to cut may have cut all the same.
func TestUninstallRefusesWhileANodeMayBeCutOffFromItsStorage(t *testing.T) {
	storage := func(phase record.Phase, driver string, actions ...string) record.Fence {
		f := record.Fence{ID: "f", Kind: fence.StorageFence, Driver: driver, Phase: phase}
		for _, action := range actions {
			f.Steps = append(f.Steps, record.FenceStep{Agent: "a", Action: action})
		}
		return f
	}
	power := record.Fence{ID: "p", Kind: fence.PowerReading, Phase: record.Failed, Steps: []record.FenceStep{{Action: "off"}}}
	failed := storage(record.Failed, clitest.Driver, "status", "off")
	for name, c := range map[string]struct {
		fences []record.Fence
		says   string
	}{
		"failed after off":               {[]record.Fence{failed}, "may be cut off from the storage of " + clitest.Driver},
		"lifted before it":               {[]record.Fence{storage(record.Lifted, clitest.Driver), failed}, "may be cut off"},
		"another driver's lifted":        {[]record.Fence{failed, storage(record.Lifted, "other.example.com")}, "may be cut off"},
		"void since":                     {[]record.Fence{failed, storage(record.Void, clitest.Driver)}, "may be cut off"},
		"failed before off":              {[]record.Fence{storage(record.Failed, clitest.Driver, "status")}, ""},
		"lifted since":                   {[]record.Fence{failed, storage(record.Lifted, clitest.Driver)}, ""},
		"fenced since":                   {[]record.Fence{failed, storage(record.Fenced, clitest.Driver)}, "is cut off from the storage of " + clitest.Driver},
		"a power fence, which cuts none": {[]record.Fence{power}, ""},
	} {
		found := &traces{records: []*record.Record{{Node: "n1", Fences: c.fences}}}
		reasons, err := found.reasonsAgainst(t.Context(), &cluster.Cluster{Client: fake.NewClientset()}, 0, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if c.says == "" && len(reasons) > 0 || c.says != "" && (len(reasons) != 1 || !strings.Contains(reasons[0], c.says)) {
			t.Errorf("%s: %q", name, reasons)
		}
	}
}
