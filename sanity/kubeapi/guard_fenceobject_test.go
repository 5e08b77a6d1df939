package kubeapi

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// keepsRenewing has the kubelets of these nodes renew their leases until the test ends.
func (r *rig) keepsRenewing(nodes ...*node) {
	r.t.Helper()
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for tick := time.NewTicker(2 * time.Second); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for _, n := range nodes {
				// The test's context ends before this is told to. Where others change the lease, too, the next one renews it.
				if err := n.renewed(context.WithoutCancel(r.ctx())); err != nil && !apierrors.IsConflict(err) {
					r.t.Error(err)
				}
			}
		}
	})
	r.t.Cleanup(func() { close(stop); renewing.Wait() })
}

// Who may write the status of all Nodes names an address that a NetworkFence cuts off, and that no other Node
// has. Of a silent node the volume moves by that. Of one that renews its lease none does, also where its
// kubelet was refused and has forgotten the volume, or the Node is tainted, so that more is asked about it.
// Nor where the driver's agent has read that address as cut off while the node was silent once, nor where
// who may write records as well has it asked of a node that lives.
func TestWhoeverWritesTheStatusOfAllNodesHasNoLivingNodeTakenForCutOff(t *testing.T) {
	own := &server{} // the definition is of the whole cluster
	t.Cleanup(func() { must(t, own.stop()) })
	own.use(t)
	fences := networkFence.at(own)
	fences.install(t)
	for name, c := range map[string]struct {
		config string
		living map[string]string // and the address that is named of each
		silent string
		once   string
	}{
		"renamed":          {"", map[string]string{"lives": "192.0.2.171", "contested": "192.0.2.172", "tainted": "192.0.2.173"}, "192.0.2.174", "192.0.2.177"},
		"renamed-read":     {withArray(""), map[string]string{}, "192.0.2.179", "192.0.2.180"},
		"renamed-recorded": {withArray(""), map[string]string{"recorded": "192.0.2.175"}, "192.0.2.176", "192.0.2.178"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, own, name, bed.StageOptions{Config: c.config, Array: func(s *array.Switches) { s.NetworkFence = true }})
			r.start("fp")
			r.proxy = r.dial("fp")
			actor, target := r.statusWriter(), r.node("target")
			cutOff := func(u *usedBy, address string) {
				t.Helper()
				block := netip.MustParsePrefix(address + "/32")
				r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{block})) // of whoever had that address
				switch name {
				case "renamed":
					fences.put(t, u.holder.name, fields{"driver": r.Driver, "fenceState": "Fenced", "cidrs": []string{block.String()}},
						fields{"result": "Succeeded", "message": "fencing operation successful"})
				case "renamed-recorded":
					(&podToken{r, r.Client}).writes(u.holder, func(rec *record.Record) {
						rec.PutFence(record.Fence{ID: "x", Kind: fence.StorageFence, Driver: r.Driver, Phase: record.Fenced, Actor: "x", Agents: []string{"array"},
							Machine: record.FencedMachine{NodeUID: u.holder.uid, BootID: u.holder.boot},
							Steps:   []record.FenceStep{{Agent: "array", Action: "off", Detail: "fence " + block.String() + " at driver " + r.Driver}}}, "Fenced")
					})
				}
				r.WaitFor(10*time.Second, "the address may be written", func() bool {
					return statusAs(r.ctx(), actor, u.holder.name, `{"addresses":[{"type":"InternalIP","address":"`+address+`"}]}`) == nil
				})
			}
			silent, once := r.usedOn(r.node("silent"), "silent", target), r.node("once")
			moved, kept := r.usedOn(once, "moved", target), r.usedOn(once, "kept", target)
			living := map[string]*usedBy{}
			for name := range c.living {
				u := r.used(name, target)
				living[name] = u
				r.keepsRenewing(u.holder)
				r.settle()
				r.wantKept("nobody has named another address", u) // the refused unpublish is written down
			}
			if u := living["tainted"]; u != nil {
				u.holder.taint()
				n := living["contested"].holder
				n.ready(corev1.ConditionTrue)
				n.lists(living["contested"].Volume, false, false)
			}
			silent.holder.fallSilent()
			once.fallSilent()
			r.settle()
			for name, u := range living {
				cutOff(u, c.living[name])
			}
			cutOff(silent, c.silent)
			cutOff(moved, c.once)
			r.WaitFor(20*time.Second, "of a silent node it counts", func() bool { return r.publish(silent.Handle, target) == nil })
			r.wantAttached(silent.Handle, target)
			r.WaitFor(20*time.Second, "of one that is silent once, too", func() bool { return r.publish(moved.Handle, target) == nil })
			r.keepsRenewing(once)
			once.ready(corev1.ConditionTrue)
			r.settle()
			living["kept"] = kept
			r.Never(4*time.Second, "a living node's volume moves", func() bool {
				for _, u := range living {
					r.wantKept("an address is named of it that is cut off", u)
				}
				return t.Failed()
			})
		})
	}
}
