package kubeapi

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// forgeries are what is written in place of the entry of a holder. other is a node that holds nothing, under
// the UID of the holder's VolumeAttachment.
var forgeries = map[string]func(e ledger.Entry, other *node, under string) []ledger.Entry{
	"none": func(ledger.Entry, *node, string) []ledger.Entry { return nil },
	"another": func(_ ledger.Entry, other *node, _ string) []ledger.Entry {
		return []ledger.Entry{other.entry(fence.Held)}
	},
	"leaving":  state(fence.Leaving),
	"taken":    state(fence.TakenOver),
	"released": state(fence.Released),
	"for-good": func(e ledger.Entry, _ *node, under string) []ledger.Entry {
		e.State, e.ReleasedUnder = fence.Released, under
		return []ledger.Entry{e}
	},
	"only": func(e ledger.Entry, _ *node, under string) []ledger.Entry {
		e.OnlyUnder = under
		return []ledger.Entry{e}
	},
	"rebooted": func(e ledger.Entry, _ *node, _ string) []ledger.Entry {
		e.BootID = "an-earlier-boot"
		return []ledger.Entry{e}
	},
	"machine": func(e ledger.Entry, other *node, _ string) []ledger.Entry {
		e.NodeUID, e.BootID, e.SystemUUID = other.uid, other.boot, claimedUUID("81")
		return []ledger.Entry{e}
	},
	"name": func(e ledger.Entry, other *node, _ string) []ledger.Entry {
		e.NodeName, e.NodeUID, e.BootID = other.name, other.uid, other.boot
		return []ledger.Entry{e}
	},
}

// takenByForgery is what SECURITY.md says of a forged ledger: by life of the holder's node.
var takenByForgery = map[string][]string{
	"alive": {"taken", "for-good"}, "silent": {"taken", "for-good"}, "gone": {"taken", "name"}, "left": {"taken", "for-good", "released", "name"},
}

func state(s fence.State) func(ledger.Entry, *node, string) []ledger.Entry {
	return func(e ledger.Entry, _ *node, _ string) []ledger.Entry { e.State = s; return []ledger.Entry{e} }
}

// forgedLedgers has the ledgers of volumes in use forged in place by that account, and fails where one of
// them is unpublished from its holder, or published elsewhere, but for what it takes by that. Where
// barred, it is refused, and takes nothing.
func forgedLedgers(r *rig, by kubernetes.Interface, barred bool) {
	r.t.Helper()
	other, target := r.node("other"), r.node("target")
	all := map[string]*usedBy{}
	for _, life := range []string{"alive", "silent", "gone", "left"} {
		for what := range forgeries {
			u := &usedBy{r.volume(life + "-" + what), r.node(life + "-" + what), target}
			r.attach(u.Volume, u.holder)
			r.attachment(u.Volume, target)
			all[life+"-"+what] = u
		}
	}
	for name, u := range all {
		life, what, _ := strings.Cut(name, "-")
		under := r.attachmentUID(u)
		switch life {
		case "alive": // it lists the volume, and is asked to let it go
			u.holder.lists(u.Volume, true, false)
			r.deleting(u.Volume, u.holder)
		case "silent":
			u.holder.fallSilent()
			u.holder.lists(u.Volume, true, false)
			r.deleting(u.Volume, u.holder)
		case "gone": // what is left is the VolumeAttachment and the driver's list
			u.holder.delete()
		case "left":
			u.holder.delete()
			r.deleting(u.Volume, u.holder)
		}
		l := r.readLedger(u.Volume)
		l.Holders = forgeries[what](*l.Get(u.holder.id), other, under)
		err := annotateAs(r.ctx(), by, u.Name, l.String())
		if barred {
			notIts(r.t, "it forges a ledger", r.Driver, err)
		} else {
			allowed(r.t, "it forges a ledger", err)
		}
	}
	r.settle()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u := all[name]
		life, what, _ := strings.Cut(name, "-")
		if !barred && slices.Contains(takenByForgery[life], what) {
			if err := r.publish(u.Handle, target); err != nil {
				r.t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err := r.unpublish(u.Handle, u.holder); err == nil && slices.Contains(r.calls(u.Handle), "unpublish "+u.holder.id) {
			r.t.Errorf("%s: it is unpublished from its holder", name)
		}
		if err := r.publish(u.Handle, target); err == nil {
			r.t.Errorf("%s: it is published elsewhere", name)
		}
		if calls := r.calls(u.Handle); len(calls) != 1 {
			r.t.Errorf("%s: the driver was called with %q", name, calls)
		}
	}
}

// Without the policies whoever writes PersistentVolumes forges a volume's ledger in place: another node, a
// holder that was released, or another machine of its name. He takes by that what the guard's own test has
// (TestAForgedLedgerTakesAVolumeThatIsBeingDetachedOrWhoseNodeIsGone), and no more.
func TestWhoeverForgesALedgerTakesWhatIsBeingDetachedOrWhoseNodeIsGone(t *testing.T) {
	r := newRig(t, "ledger-forger", bed.StageOptions{})
	forgedLedgers(r, r.Client, false)
}

// With the policies in force another driver's pod, whose sidecar may write ledgers of its own driver's
// volumes (guardOnly), forges none, and takes nothing.
func TestADriversPodForgesNoLedgerOfAnotherDriversVolume(t *testing.T) {
	r := newPolicedRig(t, "ledger-forged")
	forgedLedgers(r.rig, guardOnly, true)
}

// What the agents read as off, and said so to who asked, is of one machine, in one boot, of which nothing is heard:
// of a Node of that name that was made later, of a later boot, or once the lease was renewed it is not believed,
// though the record still says it, or somebody puts it back there.
func TestAnAnswerAboutPowerIsNotBelievedOnceTheNodeWasBack(t *testing.T) {
	r := newRigThatAnswers(t, "stale", bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}\nfencing: {apart: true, maxUnhealthy: 100%, suspectAfter: 12s}"})
	target, lives := r.node("target"), []string{"boots", "registers", "renews"}
	nodes, plugsOf := map[string]*node{}, ""
	for _, name := range lives {
		nodes[name] = r.node(name)
		plugsOf += nodes[name].name + ": " + name + ", "
	}
	// Another driver's sidecar has the agents, and may fence.
	answers := &rig{t: t, Stage: policed.use(t).Stage(t, "stale-answers", bed.StageOptions{Nodes: -1, Manual: true, Config: "evidence: {outOfServiceTaint: false}\n" +
		"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {" +
		strings.TrimSuffix(plugsOf, ", ") + "}}}}]}]}"})}
	plugs := answers.Plugs("fence_bmc")
	r.writer("csi-fencepost-writer-of-")
	answers.writer("csi-fencepost-writer-of-", "csi-fencepost-fencer-")
	for _, of := range []*rig{r, answers} {
		of.start("fp")
	}
	r.proxy = r.dial("fp")
	waits := func(v *bed.Volume, n *node) {
		t.Helper()
		r.attach(v, n)
		n.fallSilent()
		n.lists(v, true, false)
		r.deleting(v, n)
		r.attachment(v, target)
	}
	for _, name := range lives {
		r.must(plugs.Set(name, false))
		if name == "renews" {
			nodes[name].renew()
		}
	}
	before, after, said := map[string]*bed.Volume{}, map[string]*bed.Volume{}, map[string]string{}
	for _, name := range lives {
		before[name], after[name] = r.volume("before-"+name), r.volume("after-"+name)
		waits(before[name], nodes[name])
	}
	moves := func(name string, v *bed.Volume) {
		t.Helper()
		r.WaitFor(40*time.Second, name+" is read as off", func() bool { return r.publish(v.Handle, target) == nil })
	}
	leases := guardOnly.CoordinationV1().Leases(namespace)
	for _, name := range lives {
		n := nodes[name]
		moves(name, before[name])
		lease, err := leases.Get(r.ctx(), record.LeaseName(n.name), metav1.GetOptions{})
		r.must(err)
		said[name] = lease.Annotations[record.Annotation]
		rec, err := r.records().Get(r.ctx(), n.name)
		r.must(err)
		if f := rec.Fence(fence.PowerReading, ""); f == nil || !rec.Vouched(f) {
			t.Fatalf("%s is not written down as off: %+v", name, f)
		}

		// It is back, and its agents are not heard from then on.
		r.must(os.Remove(answers.Socket("plugs/" + name)))
		switch name {
		case "boots":
			n.bootAgain()
		case "registers":
			n.delete()
			n.registersAgain()
			_, err := r.Client.StorageV1().CSINodes().Create(r.ctx(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.name},
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: n.id}}}}, metav1.CreateOptions{})
			r.must(err)
		case "renews":
			n.renew()
			n.ready(corev1.ConditionTrue)
		}
		r.settle()
		waits(after[name], n)
	}
	stays := func() bool {
		for _, name := range lives {
			if err := r.publish(after[name].Handle, target); err == nil {
				t.Fatalf("%s: an answer of before is believed", name)
			}
		}
		return false
	}
	r.Never(suspectAfter/2, "an answer of before is believed", stays)
	// A driver's pod puts back what the record said then, which takes away what is asked since.
	r.Never(suspectAfter/2+4*time.Second, "an answer of before that is put back is believed", func() bool {
		for _, name := range lives {
			_, err := leases.Patch(r.ctx(), record.LeaseName(nodes[name].name), types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{`+quote(record.Annotation)+`:`+quote(said[name])+`}}}`), metav1.PatchOptions{})
			allowed(t, "a driver's pod puts back what a record said", err)
		}
		return stays()
	})
	for _, name := range lives {
		r.wantAttached(after[name].Handle, nodes[name])
		r.must(plugs.Set(name, false))
	}
	for _, name := range lives {
		moves(name, after[name])
	}
}
