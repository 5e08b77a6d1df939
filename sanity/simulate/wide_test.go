package simulate

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// wideScript replays a script of the wide world that has to be possible.
func wideScript(t *testing.T, factory Factory, setup, script string) Result {
	t.Helper()
	s, events, err := ParseScript("setup wide=true " + setup + "\n" + strings.ReplaceAll(script, ";", "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return Replay(t, factory, s, events, false)
}

// broken is a script and the rule that it breaks; empty: none.
type broken struct{ script, rule string }

// breakUnguarded replays scripts in which nobody guards.
func breakUnguarded(t *testing.T, scripts map[string]broken) {
	for name, c := range scripts {
		t.Run(name, func(t *testing.T) {
			if r := wideScript(t, withoutGuard, "", c.script); r.Rule != c.rule {
				t.Errorf("breaks %q (%s), not %q", r.Rule, r.Violation, c.rule)
			}
		})
	}
}

// gullible is a sidecar that binds every taint that it sees, however old, and takes it for
// proof.
type gullible struct {
	passed
	p Parts
}

func isGullible(_ context.Context, p Parts) (Sidecar, error) {
	return gullible{p: p, passed: passed{driverOf(p)}}, nil
}

func (g gullible) Sight(ctx context.Context, n *corev1.Node) error {
	if !tainted(n) {
		return nil
	}
	lease, err := g.p.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	records := record.NewStore(g.p.Client.CoordinationV1(), g.p.Config.Fencing.Namespace)
	bound := record.TaintBinding{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, LeaseRV: lease.ResourceVersion, NodeRV: n.ResourceVersion, Value: "nodeshutdown"}
	_, err = records.BindTaint(ctx, n.Name, outOfService, bound, g.p.Name)
	return err
}

// TestAnOldTaintExcusesNobody: who takes a volume from a machine because of a taint that the
// machine has outlived breaks R2; a lie of just now is excused.
func TestAnOldTaintExcusesNobody(t *testing.T) {
	const silent = "cut-node n1; clock 16s; "
	const moved = "start r1; sight r1 n1; reads r1; serve r1 create:record/node-n1; delete-va v1 n1; unpublish r1 v1 n1; serve r1 driver:unpublish/v1/n1-id1"
	for name, c := range map[string]struct {
		script string
		rule   string
	}{
		"put on days ago":                       {"crash r1; old-taint n1 72h; " + silent + moved, "R2"},
		"put on before it fell silent":          {"crash r1; old-taint n1 20s; " + silent + moved, "R2"},
		"a lie, and then it was heard":          {"crash r1; taint n1; clock 5s; " + silent + moved, "R2"},
		"a lie of now":                          {"crash r1; " + silent + "taint n1; " + moved, ""},
		"an old one, taken off and put on anew": {"crash r1; old-taint n1 72h; " + silent + "untaint n1; taint n1; " + moved, ""},
		"the same, when another has its name":   {"crash r1; old-taint n1 72h; " + silent + "replace n1; untaint n1; taint n1; " + moved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := wideScript(t, isGullible, "lies=true", c.script)
			if r.Rule != c.rule || c.rule == "" && r.Stats.Excused == 0 {
				t.Errorf("breaks %q (%s), not %q, and %d are excused", r.Rule, r.Violation, c.rule, r.Stats.Excused)
			}
		})
	}
}

// asking is a sidecar that asks the driver where the volumes are before it publishes.
type asking struct {
	passed
	took *time.Duration // how long the last list took
}

func (a asking) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	began := time.Now()
	list, err := a.ListVolumes(ctx, &spec.ListVolumesRequest{})
	if err != nil {
		return nil, err
	}
	*a.took = time.Since(began)
	if nodes := list.Entries[0].Status.PublishedNodeIds; len(nodes) > 0 && nodes[0] != r.NodeId {
		return nil, status.Error(codes.FailedPrecondition, "it is elsewhere")
	}
	return a.passed.ControllerPublishVolume(ctx, r)
}

// TestASlowListSaysWhatWasSoWhenItBegan: who goes by it as if it said what is so now breaks
// R1. It has to be waited for.
func TestASlowListSaysWhatWasSoWhenItBegan(t *testing.T) {
	const let = "delete-pod v1; sync n1; unmount v1 n1; status n1; end-pod v1; unlist v1 n1; detach v1 n1; unpublish r1 v1 n1; serve r1 driver:unpublish/v1/n1-id1; serve r1 answer:unpublish/v1/n1; "
	const wanted = "schedule v1 n2; another-pod v1 n3; attach v1 n2; attach v1 n3; publish r1 v1 n2; "
	const had = "serve r1 driver:publish/v1/n2-id1; serve r1 answer:publish/v1/n2; confirmed v1 n2; sync n2; status n2; verify v1 n2; mount v1 n2; "
	const second = "serve r1 driver:publish/v1/n3-id1; serve r1 answer:publish/v1/n3; confirmed v1 n3; sync n3; status n3; verify v1 n3"
	var took time.Duration
	factory := func(_ context.Context, p Parts) (Sidecar, error) { return asking{passed{driverOf(p)}, &took}, nil }
	for name, c := range map[string]broken{
		"begun before the other had it": {"slow-lists; " + let + wanted + "publish r1 v1 n3; clock 12s; serve r1 driver:list; serve r1 driver:list; " + had + second, "R1"},
		"not waited for":                {"slow-lists; " + let + wanted + "publish r1 v1 n3; clock 5s; serve r1 driver:list", "story"},
	} {
		t.Run(name, func(t *testing.T) {
			r := wideScript(t, factory, "lists=truthfully by-list=true", c.script)
			if r.Rule != c.rule || c.rule == "R1" && took < slowList {
				t.Errorf("breaks %q (%s), not %q; the list took %s", r.Rule, r.Violation, c.rule, took)
			}
		})
	}
}

// TestASecondPersistentVolumeIsOfTheSameDisk: its pod gets the disk under its access modes,
// and who takes two PersistentVolumes for two disks breaks R1.
func TestASecondPersistentVolumeIsOfTheSameDisk(t *testing.T) {
	const had = "another-pod v1 n2; restart-adc; strip-va v1 n1; attach v1 n2; publish r1 v1 n2; serve r1 driver:publish/v1/n2-id1; serve r1 answer:publish/v1/n2; confirmed v1 n2; sync n2; status n2; verify v1 n2"
	breakUnguarded(t, map[string]broken{
		"of one writer":                          {"second-pv v1 a-v1 one; " + had, "R1"},
		"of many writers":                        {"second-pv v1 v1-b many; another-pod v1 n2; attach v1 n2; publish r1 v1 n2; serve r1 driver:publish/v1/n2-id1; serve r1 answer:publish/v1/n2; confirmed v1 n2; sync n2; status n2; verify v1 n2", "R1"},
		"of a pod that waits, it is not dropped": {"second-pv v1 v1-b one; another-pod v1 n2; drop-pv v1", "story"},
		"of nobody, it is":                       {"second-pv v1 v1-b one; drop-pv v1; second-pv v1 a-v1 many", ""},
	})
}

// TestWhileAllAreAwayNothingIsDoneForANode: what was detached and judged meanwhile in another
// world is not here; who comes back finds what kubelets and people have done.
func TestWhileAllAreAwayNothingIsDoneForANode(t *testing.T) {
	breakUnguarded(t, map[string]broken{
		"no node is called unready":   {"away; cut-node n1; clock 60s; not-ready n1", "story"},
		"nothing is attached":         {"force-delete-pod v1; schedule v1 n2; away; attach v1 n2", "story"},
		"nothing is scheduled":        {"away; force-delete-pod v1; schedule v1 n2", "story"},
		"no sidecar starts":           {"away; start r1", "story"},
		"a kubelet goes on":           {"away; delete-pod v1; sync n1; unmount v1 n1; status n1; end-pod v1; back", ""},
		"a pod is moved by a person":  {"away; cut-node n1; force-delete-pod v1; strip-va v1 n1; back; start r1; schedule v1 n2; attach v1 n2; publish r1 v1 n2; serve r1 driver:publish/v1/n2-id1; serve r1 answer:publish/v1/n2; confirmed v1 n2; sync n2; status n2; verify v1 n2", "R1"},
		"they are back when it heals": {"away; heal; crash r1; start r1", ""},
	})
}

// confusing is a sidecar that takes the other driver's VolumeAttachments of the handle for
// those of its own disk.
type confusing struct {
	passed
	p Parts
}

func (c confusing) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	for _, name := range c.p.Index.Attachments(r.VolumeId) {
		va, err := c.p.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		if err == nil && csi.AttachmentNodeID(va) != r.NodeId && va.Status.Attached {
			return nil, status.Error(codes.FailedPrecondition, "it is elsewhere")
		}
	}
	return c.passed.ControllerPublishVolume(ctx, r)
}

// TestANeighbourIsAnotherDriver: who does not tell the two apart gives no volume to anybody.
func TestANeighbourIsAnotherDriver(t *testing.T) {
	confuses := func(_ context.Context, p Parts) (Sidecar, error) { return confusing{passed{driverOf(p)}, p}, nil }
	for setup, rule := range map[string]string{"": "", "neighbour=true": "stuck"} {
		if r := wideScript(t, confuses, setup, ""); r.Rule != rule {
			t.Errorf("with %q it breaks %q (%s), not %q", setup, r.Rule, r.Violation, rule)
		}
	}
	if r := wideScript(t, withoutGuard, "neighbour=true", "delete-pod v1; settle; schedule v1 n2; settle; expect mounted v1 n2"); r.Rule != "" {
		t.Errorf("the volumes of ours do not move beside it: %s (%s)", r.Rule, r.Violation)
	}
}
