package kubeapi

import (
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// podToken is of whoever has the token of a driver's controller pod, whose sidecar has no fence agents: with the
// policies in force it may write records, and vouch for nothing in them.
type podToken struct {
	*rig
	client kubernetes.Interface
}

// driversPod has the token of the rig's own driver.
func (r *rig) driversPod() *podToken {
	r.t.Helper()
	r.writer("csi-fencepost-writer-of-")
	return &podToken{r, clientOf(r.t, r.ServiceAccountKubeconfig())}
}

// writer gives the rig's sidecar what these ClusterRoleBindings of writers.yaml give, each without the driver's name.
func (r *rig) writer(bindings ...string) {
	r.t.Helper()
	names := strings.NewReplacer("${NAMESPACE}", r.Name, "${SERVICE_ACCOUNT}", account, "${DRIVER}", r.Driver)
	for i := range bindings {
		bindings[i] += r.Driver
	}
	must(r.t, applySome(r.ctx(), policyFolder+"writers.yaml", names, bindings...))
}

// writes has the pod change the node's record, and vouch for nothing that it did not find vouched for.
func (p *podToken) writes(n *node, change func(*record.Record)) {
	p.t.Helper()
	leases := p.client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(p.ctx(), record.LeaseName(n.name), metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if absent {
		lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: record.LeaseName(n.name)}}, nil
	}
	p.must(err)
	vouched := maps.Clone(lease.Annotations)
	rec, err := record.FromLease(lease, n.name)
	p.must(err)
	if rec == nil {
		rec = record.New(n.name)
	}
	change(rec)
	p.must(rec.ToLease(lease))
	for _, name := range []string{record.FencedAnnotation, record.ClaimedAnnotation} {
		delete(lease.Annotations, name)
		if was, is := vouched[name]; is {
			lease.Annotations[name] = was
		}
	}
	if absent {
		_, err = leases.Create(p.ctx(), lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(p.ctx(), lease, metav1.UpdateOptions{})
	}
	p.must(err)
}

// barred fails unless the API server keeps the pod from vouching for what it writes.
func (p *podToken) barred(what string, n *node, change func(*record.Record) (bool, error)) {
	p.t.Helper()
	_, err := record.NewStore(p.client.CoordinationV1(), namespace).Update(p.ctx(), n.name, change)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "csi-fencepost.io") {
		p.t.Errorf("%s: %v", what, err)
	}
}

// ended has whatever the record claims count no more, as whoever sees it end does.
func ended(rec *record.Record) {
	rec.EndFence("x", record.Void, "seen", "x")
	for i := range rec.Confirmations {
		if c := &rec.Confirmations[i]; c.ID == "x" {
			c.Machines[0].Void = "seen"
		}
	}
	for i := range rec.Releases {
		rec.Releases[i].Void = "seen"
	}
	for i := range rec.Overrides {
		rec.Overrides[i].Machine.Void = "seen"
	}
}

// With the policies in force, whoever has the token of a driver's controller pod writes a fence, or a person's
// word, into the record of a silent node: it moves no volume and frees none, and whoever asks is told that
// nobody vouches for it. Nor does a claim that has ended, once the pod has written it back. It counts as soon as
// somebody writes it who may.
func TestWhatADriversPodClaimsMovesNothingUntilSomebodyVouchesForIt(t *testing.T) {
	const name = "unvouched"
	r := newRigOn(t, policed, name, bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}\n" +
		"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {" + name + "-overridden: p1}}}}]}]}"})
	r.must(r.Plugs("fence_bmc").Set("p1", true))
	pod := r.driversPod()
	r.start("fp")
	r.proxy = r.dial("fp")
	target := r.node("target")
	fenced := func(kind fence.Kind, driver string) func(*record.Record, *usedBy, record.FencedMachine) {
		return func(rec *record.Record, _ *usedBy, m record.FencedMachine) {
			rec.PutFence(record.Fence{ID: "x", Kind: kind, Driver: driver, Phase: record.Fenced, Actor: "x", Agents: []string{"x"}, Machine: m}, "Fenced")
		}
	}
	confirmed := func(id string) func(*record.Record, *usedBy, record.FencedMachine) {
		return func(rec *record.Record, u *usedBy, m record.FencedMachine) {
			rec.Confirmations = nil
			rec.AddConfirmation(record.Confirmation{ID: id, By: "x", Reason: "x",
				Machines: []record.Machine{{NodeID: u.holder.id, NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV}}})
		}
	}
	const nobodyFenced, nobodySaid = "nobody who may fence vouches for it", "nobody who may say so vouches for it"
	for of, c := range map[string]struct {
		claim  func(*record.Record, *usedBy, record.FencedMachine)
		before func(*record.Record, *usedBy, record.FencedMachine) // what somebody has said who may; nil: nobody has
		reason fence.Reason
		says   string
	}{
		"power":     {fenced(fence.PowerReading, ""), nil, fence.EvidenceVoid, nobodyFenced},
		"storage":   {fenced(fence.StorageFence, r.Driver), nil, fence.EvidenceVoid, nobodyFenced},
		"confirmed": {confirmed("x"), nil, fence.EvidenceVoid, nobodySaid},
		"released": {func(rec *record.Record, u *usedBy, m record.FencedMachine) {
			rec.Releases = nil
			rec.AddRelease(record.Release{ID: "x", Volume: u.Handle, Driver: r.Driver, NodeID: u.holder.id, NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV,
				Token: r.readLedger(u.Volume).Get(u.holder.id).Token, Life: record.Silent, By: "x", Reason: "x"})
		}, nil, fence.EvidenceVoid, nobodySaid},
		"overridden": {func(rec *record.Record, u *usedBy, m record.FencedMachine) {
			rec.Overrides = nil
			rec.AddOverride(record.Override{ID: "x", Agent: "bmc", By: "x", Reason: "x",
				Machine: record.Machine{NodeID: u.holder.id, NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV}})
		}, confirmed("c"), fence.EvidenceContradicted, "bmc"},
	} {
		t.Run(of, func(t *testing.T) {
			parts.take(t)
			r, pod := r.in(t), &podToken{r.in(t), pod.client}
			u := r.silent(of, target)
			m := record.FencedMachine{NodeUID: u.holder.uid, BootID: u.holder.boot}
			claims := func(rec *record.Record) (bool, error) { c.claim(rec, u, m); return true, nil }
			refused := func(when string) {
				t.Helper()
				r.settle()
				r.wantRefused(r.publish(u.Handle, target), c.reason, u.holder.name, c.says)
				r.wantKept(when, u)
				execute(t, r.Bed.Fencepost, "explain", "pv", u.Name, "--config="+r.Socket("config.yaml"), "--csi-address="+r.Socket("csi.sock"),
					"--agent-dirs="+r.Socket("agents"), "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig()).says(t, "["+string(c.reason)+"]", c.says)
			}
			if c.before != nil {
				_, err := r.records().Update(r.ctx(), u.holder.name, func(rec *record.Record) (bool, error) { c.before(rec, u, m); return true, nil })
				r.must(err)
			}
			pod.barred("the pod vouches for what it claims", u.holder, claims)
			pod.writes(u.holder, func(rec *record.Record) { c.claim(rec, u, m) })
			refused("the pod claims it")

			_, err := r.records().Update(r.ctx(), u.holder.name, claims)
			r.must(err)
			lease, err := pod.client.CoordinationV1().Leases(namespace).Get(r.ctx(), record.LeaseName(u.holder.name), metav1.GetOptions{})
			r.must(err)
			was := lease.Annotations
			_, err = record.NewStore(pod.client.CoordinationV1(), namespace).Update(r.ctx(), u.holder.name, func(rec *record.Record) (bool, error) { ended(rec); return true, nil })
			r.must(err)
			lease, err = pod.client.CoordinationV1().Leases(namespace).Get(r.ctx(), record.LeaseName(u.holder.name), metav1.GetOptions{})
			r.must(err)
			ends := maps.Clone(lease.Annotations)
			lease.Annotations = was
			if _, err := pod.client.CoordinationV1().Leases(namespace).Update(r.ctx(), lease, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("the pod takes up again what has ended, and what vouched for it: %v", err)
			}
			lease.Annotations = ends
			lease.Annotations[record.Annotation] = was[record.Annotation]
			_, err = pod.client.CoordinationV1().Leases(namespace).Update(r.ctx(), lease, metav1.UpdateOptions{})
			r.must(err)
			refused("the pod has taken up again what has ended")

			_, err = r.records().Update(r.ctx(), u.holder.name, claims)
			r.must(err)
			r.WaitFor(20*time.Second, "it counts once somebody vouches for it", func() bool { return r.publish(u.Handle, target) == nil })
			r.wantCalls(u.Handle, "publish "+u.holder.id, "unpublish "+u.holder.id, "publish "+target.id)
		})
	}
}

// With the policies in force, who writes into a node's record that its kubelet was seen to list what had moved,
// by which a fence at the storage is lifted, has nothing lifted: neither is he let vouch for it, nor is it
// believed. It is once somebody who may fence writes it.
func TestAWitnessOfWhichNobodyVouchesLiftsNoFence(t *testing.T) {
	const address = "192.0.2.161"
	r := newRigOn(t, policed, "unwitnessed", bed.StageOptions{Failover: true, Array: func(s *array.Switches) { s.NetworkFence = true },
		Config: "evidence: {outOfServiceTaint: false}\nfailover: {enabled: true}\n" +
			"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: array, timeout: 5s, csiAddons: {}}]}]}"})
	r.writer("csi-fencepost-writer-of-", "csi-fencepost-fencer-of-")
	another := &podToken{r, guardOnly} // the pod of a driver without fence agents
	a := (&addressed{rig: r}).configured("operators.yaml", r.Options.Config)
	n := a.at("n", address)
	n.renew()
	a.person("off", n, "--force").ends(t, 0)
	witnessed := func(f *record.Fence) record.Witness {
		return record.Witness{NodeUID: n.uid, BootID: n.boot, ReadySince: n.since.UTC().Format(time.RFC3339), LeaseRV: f.Machine.LeaseRV, Actor: "x"}
	}
	forge := func() {
		t.Helper()
		another.barred("another driver's pod vouches for a witness", n, func(rec *record.Record) (bool, error) {
			f := rec.Fence(fence.StorageFence, r.Driver)
			return rec.PutWitness(f.ID, witnessed(f)), nil
		})
		another.writes(n, func(rec *record.Record) {
			f := rec.Fence(fence.StorageFence, r.Driver)
			rec.PutWitness(f.ID, witnessed(f))
		})
	}
	forge()
	r.start("fp")
	n.renew()
	r.WaitEvent("Node", n.name, 30*time.Second, "FencepostFencingBlocked", "Reboot it")
	forge()
	n.renew()
	r.Never(2*time.Second, "the fence is lifted", func() bool { return !r.Array.CutOff(n.id) })

	_, err := r.records().Update(r.ctx(), n.name, func(rec *record.Record) (bool, error) {
		f := *rec.Fence(fence.StorageFence, r.Driver)
		seen := witnessed(&f)
		f.Witness = &seen
		rec.VouchFor(f, "x")
		return true, nil
	})
	r.must(err)
	r.WaitFor(30*time.Second, "it is lifted once somebody vouches for the witness", func() bool { n.renew(); return !r.Array.CutOff(n.id) })
}
