package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

func TestCSISanityReportsTheSameDirectlyAndThroughTheProxy(t *testing.T) {
	noteSources(t)
	results := play(t, options{kubernetes: true}, os.Stderr)
	var table strings.Builder
	if !printTable(&table, results) {
		t.Error("the outcomes are not as they should be")
	}
	t.Logf("\n%s", &table)
	if len(results) != 3 {
		t.Fatalf("%d ways were run, want direct, --no-kubernetes and Kubernetes API", len(results))
	}
	for _, r := range results {
		if n := r.count("skipped"); n != 0 {
			t.Errorf("%s: %d tests were skipped: the reference driver lacks what they ask for", r.way, n)
		}
		if n := r.count("passed"); n < 100 {
			t.Errorf("%s: only %d tests passed", r.way, n)
		}
	}
}

// A vendor's CI has a Kubernetes API at most, and no kubelet that registers the
// driver: what the driver says of its node IDs is what counts.
func TestNodeThatNoCSINodeKnowsIsForwardedAndTheDriverAnswers(t *testing.T) {
	noteSources(t)
	p := prepare(t, options{}, os.Stderr)
	a := p.startReference()
	if err := a.CreateVolume("v", array.VolumeOptions{}); err != nil {
		t.Fatal(err)
	}
	socket, _ := p.guarded(os.Stderr)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := spec.NewControllerClient(conn)
	publish := func(node string) error {
		_, err := client.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: node, VolumeCapability: &spec.VolumeCapability{
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}})
		return err
	}
	if err := publish("nobody"); status.Code(err) != codes.NotFound || status.Convert(err).Message() != `node "nobody" does not exist` {
		t.Errorf("publish to a node that the driver does not know: %v, want the driver's own NOT_FOUND", err)
	}
	if err := publish(referenceNode); err != nil {
		t.Errorf("publish to a node that only the driver knows: %v", err)
	}
	if got := a.Attached("v"); len(got) != 1 || got[0] != referenceNode {
		t.Errorf("the driver has attached it to %q", got)
	}
	if _, err := client.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: referenceNode}); err != nil {
		t.Errorf("unpublish from a node that only the driver knows: %v", err)
	}
	if got := a.Attached("v"); len(got) != 0 {
		t.Errorf("the driver has it attached to %q still", got)
	}
}

func TestControllerWithASocketOfItsOwnIsRunThroughTheProxyToo(t *testing.T) {
	noteSources(t)
	a := array.New(array.Options{})
	t.Cleanup(a.Close)
	folder, err := os.MkdirTemp("", "csisanity-two-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	controller := filepath.Join(folder, "controller.sock")
	if err := a.Serve(context.Background(), controller); err != nil {
		t.Fatal(err)
	}
	node, err := a.ServeNode(context.Background(), array.NodeOptions{NodeID: referenceNode, PluginDir: filepath.Join(folder, "plugins")})
	if err != nil {
		t.Fatal(err)
	}
	results := play(t, options{driver: "unix://" + node.Socket(), controller: controller, extra: []string{"-ginkgo.focus=Service should"}}, os.Stderr)
	if !printTable(os.Stderr, results) {
		t.Error("the outcomes are not as they should be")
	}
	if direct := results[0]; direct.count("passed") < 2 {
		t.Errorf("only %d tests passed: %v", direct.count("passed"), direct.outcomes)
	}
}

func TestWrongSocketIsAClearError(t *testing.T) {
	for want, args := range map[string][]string{
		`socket "csi.sock" is neither unix:///path nor /path`: {"-csi-address=csi.sock"},
		"no driver tells its name on /nowhere/csi.sock":       {"-csi-address=/nowhere/csi.sock"},
		"-controller-address needs -csi-address":              {"-controller-address=/csi.sock"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}

// The comparison would be worth nothing if it could not fail.
func TestDriverThatAnswersDifferentlyBehindTheProxyIsFound(t *testing.T) {
	p := prepare(t, options{extra: []string{"-ginkgo.focus=DeleteVolume"}}, os.Stderr)
	a := p.startReference()
	direct := p.direct()
	a.Inject(array.Fault{Method: "DeleteVolume", Do: array.Fail})
	proxied := p.withoutKubernetes()
	if printTable(io.Discard, []result{direct, proxied}) {
		t.Errorf("no difference between %v and %v", direct.outcomes, proxied.outcomes)
	}
}

// reported is the report with these test cases in it.
func reported(t *testing.T, way, cases string) (result, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(path, []byte("<testsuites><testsuite>"+cases+"</testsuite></testsuites>"), 0o644); err != nil {
		t.Fatal(err)
	}
	return readReport(way, path)
}

func TestOutcomesAreTheSameOnlyIfNamesStatusAndReasonAre(t *testing.T) {
	const good = `<testcase name="[It] a" status="passed"/>`
	skipped := func(why string) string {
		return `<testcase name="[It] b" status="skipped"><skipped message="skipped - ` + why + `"/></testcase>`
	}
	direct, err := reported(t, "direct", `<testcase name="[BeforeSuite]" status="passed"/>`+good+skipped("no snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for cases, same := range map[string]bool{
		good + skipped("no snapshots"): true,
		good + skipped("no clones"):    false,
		good:                           false,
		good + `<testcase name="[It] b" status="passed"/>`:                                 false,
		good + skipped("no snapshots") + `<testcase name="[It] c" status="passed"/>`:       false,
		`<testcase name="[It] a" status="failed"/>` + skipped("no snapshots"):              false,
		`<testcase name="[It] other than a" status="passed"/>` + skipped("no snapshots"):   false,
		`<testcase name="[AfterSuite]" status="passed"/>` + good + skipped("no snapshots"): true,
	} {
		proxied, err := reported(t, "proxied", cases)
		if err != nil {
			t.Fatal(err)
		}
		var table strings.Builder
		if got := printTable(&table, []result{direct, proxied}); got != same {
			t.Errorf("good is %v, want %v, for %s\n%s", got, same, cases, &table)
		}
	}
}

func TestReportWithoutTestsOrWithTwoOfOneNameIsAnError(t *testing.T) {
	for cases, want := range map[string]string{
		"": "no test was run",
		`<testcase name="[It] a" status="passed"/><testcase name="[It] a" status="failed"/>`: `two tests are called "a"`,
	} {
		if _, err := reported(t, "way", cases); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", cases, err, want)
		}
	}
}

func TestFailureOnTheDriverItselfIsNoSuccess(t *testing.T) {
	both, err := reported(t, "way", `<testcase name="[It] a" status="passed"/><testcase name="[It] b" status="failed"/>`)
	if err != nil {
		t.Fatal(err)
	}
	if printTable(io.Discard, []result{both, both}) {
		t.Error("a test fails in both ways, and that is called good")
	}
}

// noteSources also looks at what else is built.
func noteSources(t *testing.T) {
	t.Helper()
	must(t, "sources", controlplane.NoteSources("../controlplane", "suite"))
}
