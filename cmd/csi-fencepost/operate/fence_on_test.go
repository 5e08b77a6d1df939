package operate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// cutOff is node n1, cut off from the storage by a sidecar; its volume has moved to n2.
// It returns the flags of a command.
func cutOff(t *testing.T) (*clitest.APIServer, *switchboard, []string) {
	t.Helper()
	api, kubeconfig := clitest.NewAPI(t)
	b := newSwitchboard(t)
	b.write("fence_scsi", fakeAgent, 0o755)
	b.write("1", "OFF", 0o600)
	b.write("config.yaml", "apiVersion: "+config.APIVersion+"\nkind: Configuration\nfencing:\n  levels:\n  - agents:\n    - name: array\n      timeout: 20s\n      attempts: 1\n"+
		"      exec: {agent: fence_scsi, parameterFiles: {password: "+b.dir+"/password}, nodeParameters: {plug: {n1: \"1\"}}}\n", 0o600)
	changeRecord(t, kubeconfig, func(r *record.Record) {
		r.PutFence(record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: clitest.Driver, Phase: record.Fenced, Actor: "sidecar", Reason: "silent",
			Machine: record.FencedMachine{NodeUID: "uid-1", BootID: "boot-1"}, StartedAt: "2026-01-02T03:04:05Z"}, "Fence")
	})
	api.AddPV("pv-1", clitest.Entry("i-2", "n2", "uid-2", "boot-2", fence.Publishing), clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.TakenOver))
	api.AddAttachment("n2", true)
	return api, b, []string{kubeconfig, "--yes", "--driver=" + clitest.Driver, "--config=" + b.dir + "/config.yaml", "--agent-dirs=" + b.dir}
}

// changeRecord changes that of n1.
func changeRecord(t *testing.T, kubeconfig string, change func(*record.Record)) {
	t.Helper()
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig[len("--kubeconfig="):])
	if err != nil {
		t.Fatal(err)
	}
	store := record.NewStore(kubernetes.NewForConfigOrDie(rc).CoordinationV1(), "csi-fencepost")
	if _, err := store.Update(context.Background(), "n1", func(r *record.Record) (bool, error) { change(r); return true, nil }); err != nil {
		t.Fatal(err)
	}
}

// Whose lock a person waits for, and what ends it, he is told at once.
func TestFenceOnSaysWhoseLockItWaitsFor(t *testing.T) {
	api, b, flags := cutOff(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
	rc, err := clientcmd.BuildConfigFromFlags("", flags[0][len("--kubeconfig="):])
	if err != nil {
		t.Fatal(err)
	}
	lock, err := record.NewStore(kubernetes.NewForConfigOrDie(rc).CoordinationV1(), "csi-fencepost").Lock(t.Context(), "n1", "someone\nelse", 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _ = lock.Release(context.Background()) })
	_, stderr := commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n1", "--reason=repaired", "--force"}, flags...)...)
	clitest.Says(t, stderr, "Node n1 is locked by someone", "waiting until it is through", "kubectl patch lease -n csi-fencepost "+record.LeaseName("n1")+" --type=merge -p '{\"spec\":{\"holderIdentity\":null}}'")
	if strings.Contains(stderr, "someone\nelse") {
		t.Errorf("what others wrote goes to the terminal as it is: %q", stderr)
	}
	if b.reads("1") != "ON" {
		t.Error("it has not got its access back")
	}
}

// R1: a machine that goes on would write to what was moved off it.
func TestFenceOnOpensNoStorageToANodeThatListsWhatMoved(t *testing.T) {
	api, b, flags := cutOff(t)
	on := with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)
	refused := func(parts ...string) {
		t.Helper()
		_, stderr := commandLine(t, cli.ExitFailure, on...)
		clitest.Says(t, stderr, parts...)
		if b.reads("1") != "OFF" {
			t.Fatal("it has its access back")
		}
		if f := api.Record("n1").Fence(fence.StorageFence, clitest.Driver); f == nil || f.Phase != record.Fenced {
			t.Fatalf("the fence is %+v", f)
		}
	}
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Held))
	refused("there is no Node n1, so that nothing tells", "--force")
	api.AddPV("pv-1", clitest.Entry("i-2", "n2", "uid-2", "boot-2", fence.Publishing), clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.TakenOver))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady, clitest.InUse)
	refused("the kubelet of node n1 lists in use what was moved off it", "volume "+clitest.Handle, "reboot the node", "kubectl drain n1", "--force")

	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady, func(n *corev1.Node) {
		for i := range 7 {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, corev1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/%s^v%d", clitest.Driver, i)))
		}
	})
	refused("volume v0, v1, v2, v3, v4 and 2 more")
	commandLine(t, cli.ExitOK, with(on, "--force")...)
	if b.reads("1") != "ON" {
		t.Error("--force changes nothing")
	}
	audit := api.Record("n1").Audit
	clitest.Says(t, fmt.Sprintf("%+v", audit), "repaired (--force)")
}

// R1: what somebody else has cut off is given back too, and another driver's volumes may
// have moved because of it: on a NetworkFence, which no record names, or on a fence whose
// word was taken back.
func TestFenceOnOpensNoStorageToANodeThatListsWhatMovedOfAnotherDriver(t *testing.T) {
	const another = "another.example.com"
	of := func(id string, kind fence.Kind, driver, boot string) record.Fence {
		return record.Fence{ID: id, Kind: kind, Driver: driver, Phase: record.Fenced, Actor: "sidecar", Reason: "silent",
			Machine: record.FencedMachine{NodeUID: "uid-1", BootID: boot}, StartedAt: "2026-01-02T03:04:05Z"}
	}
	withdrawn := func(boot string) func(r *record.Record) {
		return func(r *record.Record) {
			r.PutFence(of("f2", fence.StorageFence, another, boot), "Fence")
			r.WithdrawFence("f2", "wrong", "ann")
		}
	}
	for name, tt := range map[string]struct {
		boot    string // of the Node
		records []func(r *record.Record)
		kept    bool // the other driver's volume is still the node's
		// unrecorded: the node has no record.
		unrecorded bool
		wants      string
	}{
		"that nothing tells of":                       {boot: "boot-1", wants: "OFF"},
		"that is cut off, as nobody has written down": {boot: "boot-1", unrecorded: true, wants: "OFF"},
		"that is the node's still":                    {boot: "boot-1", kept: true, wants: "ON"},
		"under no fence of this driver":               {boot: "boot-1", records: []func(*record.Record){func(r *record.Record) { r.EndFence("f1", record.Lifted, "open", "a") }}, wants: "OFF"},
		"under a withdrawn fence of this boot":        {boot: "boot-1", records: []func(*record.Record){withdrawn("boot-1")}, wants: "OFF"},
		"under a withdrawn fence of the boot before":  {boot: "boot-1", records: []func(*record.Record){withdrawn("boot-0")}, wants: "OFF"},
		"of a node that has booted":                   {boot: "boot-2", wants: "OFF"},
		"of one that has booted since both":           {boot: "boot-2", records: []func(*record.Record){withdrawn("boot-1")}, wants: "OFF"},
		"of one that has booted, and was cut off by nobody of whom the record tells": {boot: "boot-2", records: []func(*record.Record){func(r *record.Record) {
			r.EndFence("f1", record.Lifted, "open", "a")
			r.PutFence(of("f3", fence.StorageFence, "third.example.com", "boot-1"), "Fence")
		}, withdrawn("boot-1")}, wants: "OFF"},
		"and the word of its own fence of the boot before was taken back": {boot: "boot-2", records: []func(*record.Record){func(r *record.Record) { r.WithdrawFence("f1", "wrong", "ann") }}, wants: "OFF"},
		"of one that has booted, and is cut off anew":                     {boot: "boot-2", records: []func(*record.Record){withdrawn("boot-2")}, wants: "OFF"},
	} {
		t.Run(name, func(t *testing.T) {
			api, b, flags := cutOff(t)
			api.AddNode("n1", "uid-1", tt.boot, "i-1", clitest.KubeletReady, func(n *corev1.Node) {
				n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/" + another + "^theirs"}
			})
			if tt.kept {
				api.AddAttachmentOf(another, "theirs", "pv-of-theirs", "n1", true)
			}
			for _, change := range tt.records {
				changeRecord(t, flags[0], change)
			}
			if tt.unrecorded {
				api.DeleteRecord("n1")
			}
			on := with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)
			if tt.wants == "ON" {
				commandLine(t, cli.ExitOK, on...)
			} else {
				_, stderr := commandLine(t, cli.ExitFailure, on...)
				clitest.Says(t, stderr, "the kubelet of node n1 lists in use what was moved off it", "volume theirs of driver "+another, "--force")
			}
			if got := b.reads("1"); got != tt.wants {
				t.Errorf("%s, want %s", got, tt.wants)
			}
		})
	}
}

func TestFenceOnOpensTheStorageToANodeThatHasBootedOrListsNothingThatMoved(t *testing.T) {
	for name, node := range map[string]func(*clitest.APIServer){
		"booted": func(a *clitest.APIServer) {
			a.AddNode("n1", "uid-1", "boot-7", "i-1", clitest.KubeletReady, clitest.InUse)
		},
		"lists nothing": func(a *clitest.APIServer) { a.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady) },
		"has it again": func(a *clitest.APIServer) {
			a.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady, clitest.InUse)
			a.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
			a.AddAttachment("n1", true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			api, b, flags := cutOff(t)
			node(api)
			commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)...)
			if b.reads("1") != "ON" {
				t.Error("it has no access")
			}
		})
	}
}

// R1: only a fence that proves, and has since the boot before, says what is not mounted.
func TestFenceOnAsksForItsOwnDriversVolumesUnlessItsOwnFenceProvesThatTheNodeHasBooted(t *testing.T) {
	for name, change := range map[string]func(r *record.Record){
		"it is being lifted": func(r *record.Record) {
			s := r.Fence(fence.StorageFence, clitest.Driver)
			r.Still(s, func() bool { return s.Lift("booted") })
		},
		"nobody vouches for it": func(r *record.Record) { r.Fence(fence.StorageFence, clitest.Driver).What = "something else" },
		"it is of another machine": func(r *record.Record) {
			f := *r.Fence(fence.StorageFence, clitest.Driver)
			f.Machine.SystemUUID = "99999999-2222-3333-4444-555555555555"
			r.PutFence(f, "Fence")
		},
		"it is of this boot": func(r *record.Record) {
			f := *r.Fence(fence.StorageFence, clitest.Driver)
			f.Machine.BootID = "boot-7"
			r.PutFence(f, "Fence")
		},
		"it was taken back": func(r *record.Record) { r.WithdrawFence("f1", "wrong", "ann") },
	} {
		t.Run(name, func(t *testing.T) {
			api, b, flags := cutOff(t)
			api.AddNode("n1", "uid-1", "boot-7", "i-1", clitest.KubeletReady, clitest.InUse, func(n *corev1.Node) {
				n.Status.NodeInfo.SystemUUID = "11111111-2222-3333-4444-555555555555"
			})
			changeRecord(t, flags[0], change)
			_, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)...)
			clitest.Says(t, stderr, "volume "+clitest.Handle)
			if b.reads("1") != "OFF" {
				t.Error("it has its access back")
			}
		})
	}
}

// What the Node of a machine that is off lists is of before: it boots before it mounts
// anything.
func TestFenceOnOfAMachineThatIsProvenOffIsNotAskedWhatItLists(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, api *clitest.APIServer, b *switchboard, flags []string)
		wants  string
	}{
		"proven off":  {func(*testing.T, *clitest.APIServer, *switchboard, []string) {}, "ON"},
		"it reads on": {func(_ *testing.T, _ *clitest.APIServer, b *switchboard, _ []string) { b.write("2", "ON", 0o600) }, "OFF"},
		"its lease is another": {func(_ *testing.T, api *clitest.APIServer, _ *switchboard, _ []string) {
			api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse)
		}, "OFF"},
		"no fence says so": {func(t *testing.T, _ *clitest.APIServer, _ *switchboard, flags []string) {
			changeRecord(t, flags[0], func(r *record.Record) { r.EndFence(r.Fence(fence.PowerReading, "").ID, record.Void, "wrong", "ann") })
		}, "OFF"},
		"nobody vouches for the fence": {func(t *testing.T, _ *clitest.APIServer, _ *switchboard, flags []string) {
			changeRecord(t, flags[0], func(r *record.Record) { r.Fence(fence.PowerReading, "").What = "something else" })
		}, "OFF"},
	} {
		t.Run(name, func(t *testing.T) {
			api, b, flags := cutOff(t)
			b.write("1", "ON", 0o600)
			b.write("2", "ON", 0o600)
			b.write("config.yaml", "apiVersion: "+config.APIVersion+"\nkind: Configuration\nfencing:\n  levels:\n"+
				"  - agents:\n    - name: power\n      timeout: 20s\n      attempts: 1\n      exec: {agent: fence_fake, parameterFiles: {password: "+b.dir+"/password}, nodeParameters: {plug: {n1: \"2\"}}}\n"+
				"  - agents:\n    - name: array\n      timeout: 20s\n      attempts: 1\n      exec: {agent: fence_scsi, parameterFiles: {password: "+b.dir+"/password}, nodeParameters: {plug: {n1: \"1\"}}}\n", 0o600)
			changeRecord(t, flags[0], func(r *record.Record) { r.EndFence("f1", record.Lifted, "open", "a") })
			api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse)
			commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1", "--reason=hangs", "--force"}, flags...)...)
			b.write("1", "OFF", 0o600)
			tt.change(t, api, b, flags)
			_, stderr := commandLine(t, map[string]int{"ON": cli.ExitOK, "OFF": cli.ExitFailure}[tt.wants], with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)...)
			if got := b.reads("1"); got != tt.wants {
				t.Errorf("%s, want %s: %s", got, tt.wants, stderr)
			}
			if tt.wants == "OFF" {
				clitest.Says(t, stderr, "volume "+clitest.Handle)
			} else if b.reads("2") != "ON" {
				t.Error("it has no power")
			}
		})
	}
}

// The button was pressed: asking that is what ends the power fence on record.
func TestFenceOnOfAMachineThatWasSwitchedOnByHandIsNotRefusedByWhatItAsks(t *testing.T) {
	api, b, flags := cutOff(t)
	b.write("2", "ON", 0o600)
	b.write("config.yaml", "apiVersion: "+config.APIVersion+"\nkind: Configuration\nfencing:\n  levels:\n"+
		"  - agents:\n    - name: power\n      timeout: 20s\n      attempts: 1\n      exec: {agent: fence_fake, parameterFiles: {password: "+b.dir+"/password}, nodeParameters: {plug: {n1: \"2\"}}}\n", 0o600)
	changeRecord(t, flags[0], func(r *record.Record) { r.EndFence("f1", record.Lifted, "open", "a") })
	api.AddNode("n1", "uid-1", "boot-1", "i-1")
	commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1", "--reason=hangs", "--force"}, flags...)...)
	b.write("2", "ON", 0o600)
	commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n1", "--reason=repaired"}, flags...)...)
}
