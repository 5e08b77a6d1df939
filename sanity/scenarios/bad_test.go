package scenarios

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
)

const (
	// patience with a busy machine.
	patience = 30 * time.Second
	// attacherTimeout is the deadline of external-attacher's calls.
	attacherTimeout = 15 * time.Second
)

// fails runs the real binary, which has to end by itself with that exit code,
// and with all of parts in one message on standard error.
func fails(t *testing.T, code int, args []string, parts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, shared.programs.Fencepost, args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Fatalf("csi-fencepost %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	for _, part := range parts {
		if !strings.Contains(string(out), part) {
			t.Errorf("csi-fencepost %s: the message does not have %q:\n%s", strings.Join(args, " "), part, out)
		}
	}
	if strings.Contains(string(out), "panic") || strings.Contains(string(out), "goroutine ") {
		t.Errorf("csi-fencepost %s ends in a stack trace:\n%s", strings.Join(args, " "), out)
	}
}

// daemon starts the real binary, which goes on until the test ends.
func daemon(t *testing.T, args ...string) *controlplane.Process {
	t.Helper()
	p, err := controlplane.StartProcess(controlplane.ProcessOptions{Name: "csi-fencepost", Path: shared.programs.Fencepost,
		Args: args, LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(5 * time.Second)
		if t.Failed() {
			t.Logf("%s", logText(t, p))
		}
	})
	return p
}

func logText(t *testing.T, p *controlplane.Process) string {
	t.Helper()
	text, err := os.ReadFile(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for watch := pace.Start(); !ok(); time.Sleep(20 * time.Millisecond) {
		if watch.Counted() > patience {
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

func serves(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// driverAt is a reference driver on a socket.
func driverAt(t *testing.T, socket string) *array.Array {
	t.Helper()
	a := array.New(array.Options{DriverName: "bad.test"})
	t.Cleanup(a.Close)
	if err := a.Serve(context.Background(), socket); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnUnknownFlagIsNamed(t *testing.T) {
	fails(t, 2, []string{"run", "--csi-adress=/csi/csi.sock", "--listen=/x/csi.sock"}, "csi-adress", "csi-fencepost run --help")
}

func TestAnUnknownConfigurationFieldIsNamedWithItsPath(t *testing.T) {
	for text, part := range map[string]string{
		"apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nevidence: {outOfServiceTain: true}\n": "evidence.outOfServiceTain",
		"apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmodus: Enforce\n":                     "modus",
		"apiVersion: csi-fencepost.io/v9\nkind: Configuration\n":                                           "csi-fencepost.io/v1alpha1",
		"apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforced\n":                     "Enforced",
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fails(t, 2, []string{"run", "--csi-address=" + folder + "/csi.sock", "--listen=" + folder + "/fp.sock", "--config=" + file}, file, part)
	}
}

func TestADriverThatIsNotThereIsWaitedForAndTheSocketNotServed(t *testing.T) {
	folder := t.TempDir()
	driver, listen := filepath.Join(folder, "csi.sock"), filepath.Join(folder, "fp.sock")
	p := daemon(t, "run", "--no-kubernetes", "--csi-address="+driver, "--listen="+listen)
	eventually(t, "it says what it waits for", func() bool {
		return strings.Contains(logText(t, p), "Waiting for the CSI driver") && strings.Contains(logText(t, p), driver)
	})
	if p.Exited() || serves(listen) {
		t.Fatal("it was to wait, and to serve nobody")
	}
	driverAt(t, driver)
	eventually(t, "it serves once the driver is there", func() bool { return serves(listen) })
}

func TestASocketThatCannotBeServedIsRefusedAndLeftAlone(t *testing.T) {
	folder := t.TempDir()
	driver := filepath.Join(folder, "csi.sock")
	driverAt(t, driver)
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(folder, "used.sock")
	daemon(t, "run", "--no-kubernetes", "--csi-address="+driver, "--listen="+used)
	eventually(t, "the first one serves", func() bool { return serves(used) })
	for listen, part := range map[string]string{
		filepath.Join(folder, "none", "csi.sock"): "folder " + filepath.Join(folder, "none") + " does not exist",
		folder: "it is a directory",
		file:   "it exists and is not a socket",
		used:   "another process serves this socket",
	} {
		fails(t, 2, []string{"run", "--no-kubernetes", "--csi-address=" + driver, "--listen=" + listen}, "--listen", listen, part)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file was not left alone: %q, %v", text, err)
	}
	if !serves(used) {
		t.Error("the first one serves no more")
	}
}

func TestASocketThatACrashLeftBehindIsReplaced(t *testing.T) {
	folder := t.TempDir()
	driver, listen := filepath.Join(folder, "csi.sock"), filepath.Join(folder, "fp.sock")
	driverAt(t, driver)
	args := []string{"run", "--no-kubernetes", "--csi-address=" + driver, "--listen=" + listen}
	first := daemon(t, args...)
	eventually(t, "the first one serves", func() bool { return serves(listen) })
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(listen); err != nil || serves(listen) {
		t.Fatalf("SIGKILL was to leave a socket that nobody serves: %v", err)
	}
	second := daemon(t, args...)
	eventually(t, "the second one serves", func() bool { return serves(listen) })
	if !strings.Contains(logText(t, second), "Replacing a socket that no process serves") {
		t.Error("it does not say that it replaced the socket")
	}
}

func TestWithoutKubernetesEverythingPassesAndTheLogSaysSo(t *testing.T) {
	folder := t.TempDir()
	driver, listen := filepath.Join(folder, "csi.sock"), filepath.Join(folder, "fp.sock")
	a := driverAt(t, driver)
	a.Set(func(s *array.Switches) { s.EnforceSingleAttach = false })
	if err := a.CreateVolume("v", array.VolumeOptions{}); err != nil {
		t.Fatal(err)
	}
	p := daemon(t, "run", "--no-kubernetes", "--csi-address="+driver, "--listen="+listen)
	eventually(t, "it serves", func() bool { return serves(listen) })
	conn, err := grpc.NewClient("unix://"+listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := spec.NewControllerClient(conn)
	for _, id := range []string{"n1", "n2"} {
		if err := a.AddMachine(id); err != nil {
			t.Fatal(err)
		}
		if _, err := client.ControllerPublishVolume(t.Context(), publishTo("v", id)); err != nil {
			t.Errorf("publish to %s: %v", id, err)
		}
	}
	if _, err := client.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "n1"}); err != nil {
		t.Errorf("unpublish: %v", err)
	}
	if got := a.Attached("v"); len(got) != 1 || got[0] != "n2" {
		t.Errorf("the driver was to see all calls; the volume is attached to %q", got)
	}
	if !strings.Contains(logText(t, p), "NOTHING IS GUARDED") {
		t.Error("the log does not say that nothing is guarded")
	}
}

func publishTo(volume, node string) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}}
}

// TestBadDays share an API server without controllers; the last of them stops it.
func TestBadDays(t *testing.T) {
	t.Parallel()
	b, err := bed.StartBare(t.Context(), shared.programs, t.Failed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, f := range map[string]func(*testing.T, *bed.Bed){
		"ARightThatIsMissingForTheHoldersIsNamedAndNothingIsServed":   missingList,
		"ARightThatIsMissingForTheLedgerIsNamedAndNothingIsForwarded": missingPatch,
		"ARequestThatCannotBeJudgedIsNotForwarded":                    unjudgeable,
		"MetricsAndHealthTellWhatIsGoingOn":                           metricsAndHealth,
	} {
		t.Run(name, func(t *testing.T) { f(t, b) })
	}
	t.Run("WhileTheAPIServerIsAwayNothingIsForwarded", func(t *testing.T) { apiServerAway(t, b) })
}

// caller is a csi-fencepost on the bare bed, with two machines to publish to.
type caller struct {
	*bed.Stage
	t      *testing.T
	client spec.ControllerClient
}

func newCaller(t *testing.T, b *bed.Bed, name string, o bed.StageOptions) *caller {
	t.Helper()
	o.Nodes, o.Manual = -1, true
	c := &caller{t: t, Stage: b.Stage(t, name, o)}
	for _, id := range []string{"n1", "n2"} {
		c.machine(id)
	}
	return c
}

// machine is a Node that is Ready, with the driver on it; its ID is its name.
func (c *caller) machine(id string) {
	c.t.Helper()
	name := c.node(id)
	node, err := c.Client.CoreV1().Nodes().Create(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	c.must(err)
	node.Status.NodeInfo.BootID = "boot"
	hour := metav1.NewTime(time.Now().Add(-time.Hour))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: hour, LastHeartbeatTime: metav1.Now()}}
	_, err = c.Client.CoreV1().Nodes().UpdateStatus(c.t.Context(), node, metav1.UpdateOptions{})
	c.must(err)
	_, err = c.Client.StorageV1().CSINodes().Create(c.t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: c.Driver, NodeID: name}}}}, metav1.CreateOptions{})
	c.must(err)
	c.must(c.Array.AddMachine(name))
}

func (c *caller) node(id string) string { return c.Name + "-" + id }

func (c *caller) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// uses writes into a Node's status that its kubelet uses the volume.
func (c *caller) uses(id string, v *bed.Volume) {
	c.t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(c.t.Context(), c.node(id), metav1.GetOptions{})
	c.must(err)
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName("kubernetes.io/csi/" + c.Driver + "^" + v.Handle)}
	_, err = c.Client.CoreV1().Nodes().UpdateStatus(c.t.Context(), node, metav1.UpdateOptions{})
	c.must(err)
}

func (c *caller) serve() {
	c.t.Helper()
	c.StartFencepost()
	c.client = c.Caller("fp.sock")
}

// publish calls as external-attacher does, with its deadline.
func (c *caller) publish(v *bed.Volume, id string) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), attacherTimeout)
	defer cancel()
	_, err := c.client.ControllerPublishVolume(ctx, publishTo(v.Handle, c.node(id)))
	return err
}

// refused fails unless err has that code and all of parts, and the driver saw
// no publish or unpublish.
func (c *caller) refused(err error, code codes.Code, parts ...string) {
	c.t.Helper()
	if status.Code(err) != code {
		c.t.Errorf("got %v, want %s", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			c.t.Errorf("%q is not in: %v", part, err)
		}
	}
	if calls := append(c.Array.CallsOf(array.Publish, ""), c.Array.CallsOf(array.Unpublish, "")...); len(calls) > 0 {
		c.t.Errorf("the driver was called: %+v", calls)
	}
}

// ownRoles gives a stage's roles names of their own, so that they can be changed.
func ownRoles(stage, manifests string) string {
	return regexp.MustCompile(`(?m)name: (csi-fencepost-(observe|enforce))$`).ReplaceAllString(manifests, "name: $1-of-"+stage)
}

func missingList(t *testing.T, b *bed.Bed) {
	c := newCaller(t, b, "no-list", bed.StageOptions{FencepostArgs: []string{"--http-endpoint=127.0.0.1:0"}, Rights: func(manifests string) string {
		return strings.Replace(ownRoles("no-list", manifests),
			"resources: [volumeattachments]\n  verbs: [get, list, watch]", "resources: [volumeattachments]\n  verbs: [get]", 1)
	}})
	p := c.Launch("fp")
	// A list that is streamed is asked for as a watch.
	c.WaitLog(p, patience, `cannot (list|watch) resource \\+"volumeattachments`)
	eventually(t, "/readyz names the right", func() bool {
		code, body := c.HTTP(p, "/readyz")
		return code == 503 && regexp.MustCompile(`cannot (list|watch) resource "volumeattachments"`).MatchString(body)
	})
	if serves(c.Socket("fp.sock")) {
		t.Error("it serves without knowing who holds the volumes")
	}
}

func missingPatch(t *testing.T, b *bed.Bed) {
	c := newCaller(t, b, "no-patch", bed.StageOptions{Rights: func(manifests string) string {
		return strings.Replace(ownRoles("no-patch", manifests), "resources: [persistentvolumes]\n  verbs: [patch]", "resources: [persistentvolumes]\n  verbs: [get]", 1)
	}})
	v := c.Volume("disk", bed.VolumeOptions{})
	c.serve()
	c.refused(c.publish(v, "n1"), codes.Unavailable, `cannot patch resource "persistentvolumes"`, v.Name, "deploy/rbac")
}

func unjudgeable(t *testing.T, b *bed.Bed) {
	c := newCaller(t, b, "unjudgeable", bed.StageOptions{})
	v := c.Volume("disk", bed.VolumeOptions{})
	c.uses("n2", v)
	c.serve()
	for field, spoil := range map[string]func(*spec.ControllerPublishVolumeRequest){
		"node_id":           func(r *spec.ControllerPublishVolumeRequest) { r.NodeId = "" },
		"volume_id":         func(r *spec.ControllerPublishVolumeRequest) { r.VolumeId = "" },
		"volume_capability": func(r *spec.ControllerPublishVolumeRequest) { r.VolumeCapability = nil },
	} {
		req := publishTo(v.Handle, c.node("n1"))
		spoil(req)
		_, err := c.client.ControllerPublishVolume(t.Context(), req)
		c.refused(err, codes.InvalidArgument, "ControllerPublishVolume", field)
	}
	_, err := c.client.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{NodeId: c.node("n1")})
	c.refused(err, codes.InvalidArgument, "ControllerUnpublishVolume", "volume_id")
	// To the spec an empty node_id means all nodes, and one of them uses it.
	_, err = c.client.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: v.Handle})
	c.refused(err, codes.FailedPrecondition, c.node("n2"), "["+string(fence.UnpublishEveryone)+"]")
}

func metricsAndHealth(t *testing.T, b *bed.Bed) {
	c := newCaller(t, b, "metrics", bed.StageOptions{Array: func(s *array.Switches) { s.EnforceSingleAttach = false },
		FencepostArgs: []string{"--http-endpoint=127.0.0.1:0", "--leader-election", "--leader-election-namespace=metrics"}})
	moved, held := c.Volume("moved", bed.VolumeOptions{}), c.Volume("held", bed.VolumeOptions{})
	c.serve()
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "[+] guard", "/healthz/leader-election": "ok"} {
		eventually(t, path+" says "+want, func() bool {
			code, body := c.HTTP(c.Fencepost, path)
			return code == 200 && strings.Contains(body, want)
		})
	}
	c.uses("n1", held)
	eventually(t, "a refusal", func() bool { return status.Code(c.publish(held, "n2")) == codes.FailedPrecondition })
	c.must(c.publish(moved, "n1"))
	c.must(c.publish(moved, "n2")) // nobody uses it on n1: taken over
	if got := c.Array.Attached(moved.Handle); len(got) != 1 || got[0] != c.node("n2") {
		t.Fatalf("a takeover was to leave the volume on n2, it is on %q", got)
	}
	_, text := c.HTTP(c.Fencepost, "/metrics")
	for _, pattern := range []string{
		`csi_sidecar_operations_seconds_count\{driver_name="metrics.test",grpc_status_code="FailedPrecondition",method_name="/csi.v1.Controller/ControllerPublishVolume"\} [1-9]`,
		`csi_sidecar_operations_seconds_count\{driver_name="metrics.test",grpc_status_code="OK",method_name="/csi.v1.Controller/ControllerPublishVolume"\} 2`,
		`csi_fencepost_decisions_total\{call="ControllerPublishVolume",decision="refuse",reason="HolderAlive"\} [1-9]`,
		`csi_fencepost_decisions_total\{call="ControllerPublishVolume",decision="allow",reason="NoOtherHolder"\} [1-9]`,
		`csi_fencepost_takeover_duration_seconds_count 1`,
		`csi_fencepost_waiting_volumes\{reason="HolderAlive"\} 1`,
		`csi_fencepost_ledger_write_errors_total 0`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("/metrics has nothing like %s:\n%s", pattern, onlyOurs(text))
		}
	}
}

// onlyOurs leaves the Go runtime's and client-go's metrics out.
func onlyOurs(metrics string) string {
	var out []string
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "csi_") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func apiServerAway(t *testing.T, b *bed.Bed) {
	c := newCaller(t, b, "away", bed.StageOptions{})
	v := c.Volume("disk", bed.VolumeOptions{})
	c.serve()
	c.must(b.Cluster.PauseAPIServer())
	resume := func() { _ = b.Cluster.ResumeAPIServer() } // a second time does no harm
	t.Cleanup(resume)
	eventually(t, "the API server keeps silent", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
		return err != nil
	})
	began := time.Now()
	c.refused(c.publish(v, "n1"), codes.Unavailable, v.Handle, "the API server does not answer in time", "["+string(fence.APIUnavailable)+"]")
	if took := time.Since(began); took >= attacherTimeout {
		t.Errorf("the answer took %s, and the attacher gives up after %s", took, attacherTimeout)
	}
	_, err := c.client.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: v.Handle, NodeId: c.node("n1")})
	c.refused(err, codes.Unavailable, v.Handle, "["+string(fence.APIUnavailable)+"]")
	resume()
	eventually(t, "it goes on once the API server is back", func() bool { return c.publish(v, "n1") == nil })
}
