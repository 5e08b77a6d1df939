package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// A stampForgery makes the Node say that its kubelet was Ready for longer than it is.
type stampForgery struct {
	name, resource string // which its author may patch
	vain           bool   // the API server does not take it
	forge          func(ctx context.Context, by kubernetes.Interface, n *corev1.Node) error
}

// stampForgeries are the ways to it. The API server takes what a request says of the owners of fields, but their
// stamps only with another change, and none with a Node's status.
var stampForgeries = []stampForgery{
	{name: "stamps", resource: "nodes", forge: func(ctx context.Context, by kubernetes.Interface, n *corev1.Node) error {
		_, err := by.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, stampedBy(n, -time.Hour), metav1.PatchOptions{FieldManager: "forger"})
		return err
	}},
	{name: "stamps-of-status", resource: "nodes/status", vain: true, forge: func(ctx context.Context, by kubernetes.Interface, n *corev1.Node) error {
		_, err := by.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, stampedBy(n, -time.Hour), metav1.PatchOptions{FieldManager: "forger"}, "status")
		return err
	}},
	{name: "condition", resource: "nodes/status", forge: func(ctx context.Context, by kubernetes.Interface, n *corev1.Node) error {
		ready := *fence.ReadyCondition(n)
		ready.LastTransitionTime = metav1.NewTime(ready.LastTransitionTime.Add(-time.Hour))
		return conditionAs(ctx, by, "forger", n.Name, ready)
	}},
}

// stampedBy is the patch by which every owner of the Node's fields has changed them so much later.
func stampedBy(n *corev1.Node, later time.Duration) []byte {
	owners := n.DeepCopy().ManagedFields
	for i := range owners {
		at := metav1.NewTime(owners[i].Time.Add(later))
		owners[i].Time = &at
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": owners, "labels": map[string]string{"forged": fmt.Sprintf("by%v", later.Seconds())}}})
	if err != nil {
		panic(err)
	}
	return body
}

// conditionAs writes that condition, and no other.
func conditionAs(ctx context.Context, by kubernetes.Interface, manager, node string, c corev1.NodeCondition) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}})
	if err != nil {
		return err
	}
	_, err = by.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: manager}, "status")
	return err
}

// A kubelet that restarts while its volume is being detached forgets what it has mounted. Who forges when it
// became Ready ends that doubt for a sidecar that has not watched it, or not for as long as a watch may be late;
// not for one that has. Nothing but nodes.yaml keeps him from it.
func TestWhoeverForgesWhenAKubeletBecameReadyFreesWhatNoSidecarWatched(t *testing.T) {
	r := newRigWithout(t, "stamps", bed.StageOptions{})
	r.start("fp")
	r.proxy = r.dial("fp")
	target := r.node("target")
	type story struct {
		stampForgery
		n *node
		v *bed.Volume
	}
	restarting := func(of string, all []stampForgery) (out []story) {
		for _, f := range all {
			s := story{f, r.node(of + "-" + f.name), r.volume(of + "-" + f.name)}
			r.attach(s.v, s.n)
			s.n.lists(s.v, true, false)
			r.deleting(s.v, s.n)
			out = append(out, s)
		}
		return out
	}
	who := map[string]kubernetes.Interface{"nodes": r.whoMay("patch", "nodes"), "nodes/status": r.whoMay("patch", "nodes/status")}
	forged := func(s story) {
		t.Helper()
		now, err := r.Client.CoreV1().Nodes().Get(r.ctx(), s.n.name, metav1.GetOptions{})
		r.must(err)
		if s.forge != nil {
			r.must(s.forge(r.ctx(), who[s.resource], now))
		}
	}
	watched := restarting("watched", stampForgeries)
	time.Sleep(observe.OrderSlack + 2*time.Second)
	late := restarting("late", append([]stampForgery{{name: "not"}}, stampForgeries...))
	for _, s := range append(watched, late...) {
		s.n.ready(corev1.ConditionTrue)
		s.n.lists(s.v, false, false)
		forged(s)
	}
	r.settle()
	for _, s := range watched {
		r.wantRefused(r.unpublish(s.v.Handle, s.n), fence.HolderContested, s.n.name)
		r.wantRefused(r.publish(s.v.Handle, target), fence.HolderContested, s.n.name)
		r.wantCalls(s.v.Handle, "publish "+s.n.id)
	}
	for _, s := range late {
		if s.forge == nil || s.vain {
			r.wantRefused(r.unpublish(s.v.Handle, s.n), fence.HolderContested, s.n.name)
			continue
		}
		if err := r.unpublish(s.v.Handle, s.n); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		r.wantCalls(s.v.Handle, "publish "+s.n.id, "unpublish "+s.n.id)
	}
}

// With nodes.yaml nobody says in a kubelet's place since when it is Ready, nor when the API server heard it last.
// Who says that it is not heard, as the node controller does, or what else he has to say, may.
func TestOnlyItsKubeletSaysSinceWhenItIsReady(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	as := func(user string, groups ...string) kubernetes.Interface {
		t.Helper()
		client, err := impersonate(policed.bed, rest.ImpersonationConfig{UserName: user, Groups: groups})
		must(t, err)
		return client
	}
	nodes := policed.admin.CoreV1().Nodes()
	kubelet, controller := as("system:node:n-heard", "system:nodes"), as("system:serviceaccount:kube-system:node-controller")
	// The API server keeps owners only of what has some from its creation on.
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-heard", Labels: map[string]string{corev1.LabelHostname: "n-heard"}}}, metav1.CreateOptions{})
	must(t, err)
	read := func() *corev1.Node {
		t.Helper()
		n, err := nodes.Get(ctx, "n-heard", metav1.GetOptions{})
		must(t, err)
		return n
	}
	says := func(who kubernetes.Interface, manager string, change func(*corev1.NodeCondition)) error {
		c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))}
		if was := fence.ReadyCondition(read()); was != nil {
			c = *was
		}
		change(&c)
		return conditionAs(ctx, who, manager, "n-heard", c)
	}
	beats := func(c *corev1.NodeCondition) {
		c.LastHeartbeatTime = metav1.NewTime(c.LastHeartbeatTime.Add(time.Second))
	}
	unheard := func(c *corev1.NodeCondition) {
		c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", metav1.Now()
	}
	refusedFor := func(what string, err error, field string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), field+" of Node ") || !strings.Contains(err.Error(), "kubelets.csi-fencepost.io") {
			t.Errorf("%s: %v, want it to be refused for %s", what, err, field)
		}
	}
	const ready, owners = "status.conditions[Ready]", "metadata.managedFields"

	// Of one that was never heard the node controller says so itself.
	refusedFor("a stranger says that it is Ready", says(stranger, "npd", beats), ready)
	allowed(t, "the node controller says that it was never heard", says(controller, "kube-controller-manager", unheard))
	for range 2 { // its fields are its own from the second time on
		must(t, says(kubelet, "kubelet", func(c *corev1.NodeCondition) { c.Status, c.Reason = corev1.ConditionTrue, "KubeletReady"; beats(c) }))
	}
	heard := evidence.HeardAt(read())
	if heard.IsZero() {
		t.Fatalf("the API server does not say when it heard the kubelet: %+v", read().ManagedFields)
	}

	for _, f := range stampForgeries {
		for _, who := range []kubernetes.Interface{stranger, sidecar, operator, controller, as("system:node:another"), as("system:node")} {
			if err := f.forge(ctx, who, read()); f.vain {
				allowed(t, f.name, err)
			} else {
				refusedFor(f.name, err, map[string]string{"nodes": owners, "nodes/status": ready}[f.resource])
			}
		}
	}
	for what, change := range map[string]func(*corev1.NodeCondition){
		"a heartbeat": beats,
		"a reason":    func(c *corev1.NodeCondition) { c.Reason = "x" },
		"not Ready":   func(c *corev1.NodeCondition) { c.Status = corev1.ConditionFalse },
		"a later turn": func(c *corev1.NodeCondition) {
			c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(time.Minute))
		},
		"Unknown with a heartbeat": func(c *corev1.NodeCondition) {
			unheard(c)
			beats(c)
		},
	} {
		refusedFor(what, says(stranger, "npd", change), ready)
		refusedFor(what, says(controller, "kube-controller-manager", change), ready)
	}
	refusedFor("all conditions taken away", statusAs(ctx, stranger, "n-heard", `{"conditions":[]}`), ready)

	for _, later := range []time.Duration{-time.Second, time.Second, time.Hour} {
		_, err := stranger.CoreV1().Nodes().Patch(ctx, "n-heard", types.MergePatchType, stampedBy(read(), later), metav1.PatchOptions{FieldManager: "forger"})
		refusedFor(fmt.Sprintf("stamps %v later", later), err, owners)
	}

	// What others have to say.
	time.Sleep(1100 * time.Millisecond)
	deadlock := corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionFalse}
	allowed(t, "node-problem-detector sets its condition", conditionAs(ctx, stranger, "npd", "n-heard", deadlock))
	allowed(t, "the node controller says that it is not heard", says(controller, "kube-controller-manager", unheard))
	if at := evidence.HeardAt(read()); !at.Equal(heard) {
		t.Errorf("it was heard at %s, and by what others write at %s", heard, at)
	}
	allowed(t, "its kubelet is heard again", says(kubelet, "kubelet", func(c *corev1.NodeCondition) {
		c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.Now()
		beats(c)
	}))
	time.Sleep(1100 * time.Millisecond)
	deadlock.Status = corev1.ConditionTrue
	allowed(t, "controllers of the kubelet's own program", conditionAs(ctx, stranger, "kubelet", "n-heard", deadlock))
	if at := evidence.HeardAt(read()); !at.After(heard) {
		t.Errorf("the stamp of what two write under one name is %s, want it to be of the second", at)
	}
	whole := read()
	unheard(fence.ReadyCondition(whole))
	_, err = controller.CoreV1().Nodes().UpdateStatus(ctx, whole, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
	allowed(t, "the node controller writes the whole status", err)
	whole = read()
	whole.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	_, err = controller.CoreV1().Nodes().Update(ctx, whole, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
	allowed(t, "the node controller writes the whole Node", err)

	// Owners of whom no time is told keep nobody from writing, as those of a file that a tool has stripped of times.
	timeless := read()
	for i := range timeless.ManagedFields {
		timeless.ManagedFields[i].Time = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": timeless.ManagedFields, "labels": map[string]string{"timeless": "x"}}})
	must(t, err)
	_, err = stranger.CoreV1().Nodes().Patch(ctx, "n-heard", types.MergePatchType, body, metav1.PatchOptions{FieldManager: "forger"})
	allowed(t, "all times are forgotten", err)
	if at := evidence.HeardAt(read()); !at.IsZero() {
		t.Errorf("it is told when the kubelet was heard: %s", at)
	}
	must(t, says(kubelet, "kubelet", beats))
	allowed(t, "node-problem-detector sets its condition then", conditionAs(ctx, stranger, "npd", "n-heard", corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionFalse}))

	// Of more than ten writers the API server merges the oldest.
	time.Sleep(1100 * time.Millisecond)
	for i := range 14 {
		_, err := stranger.CoreV1().Nodes().Patch(ctx, "n-heard", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"l%d":"x"}}}`, i), metav1.PatchOptions{FieldManager: fmt.Sprintf("writer-%d", i)})
		allowed(t, "one of many writers", err)
	}
	if at := evidence.HeardAt(read()); !at.IsZero() {
		t.Errorf("the API server still tells when it heard the kubelet: %s", at)
	}
	whole.ManagedFields = slices.Clone(whole.ManagedFields)
	_, err = stranger.CoreV1().Nodes().Patch(ctx, "n-heard", types.MergePatchType, stampedBy(whole, -time.Hour), metav1.PatchOptions{FieldManager: "forger"})
	refusedFor("stamps where there are none", err, owners)
	must(t, says(kubelet, "kubelet", func(c *corev1.NodeCondition) {
		c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.Now()
		beats(c)
	}))
	_, err = stranger.CoreV1().Nodes().Patch(ctx, "n-heard", types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{FieldManager: "forger"})
	allowed(t, "all owners are forgotten", err)

	// Who creates Nodes.
	made := func(change func(*corev1.Node)) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-made-ready"}}
		change(n)
		_, err := stranger.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	refusedFor("a Node is made that is Ready", made(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}), ready)
	refusedFor("a Node is made with stamps", made(func(n *corev1.Node) { n.ManagedFields = whole.ManagedFields }), owners)
	allowed(t, "a Node is made that was never heard", made(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	}))
}

// Who patches a Node has the API server keep no owners of its fields any more, for good, also with the policies.
// Then nobody can tell when its kubelet was heard: one that has turned to Ready since the publish is doubted,
// however long before the detach that was, and an out-of-service taint is not known to be later than its last
// word. What it holds waits, until it boots, or until a person says that it is off. It never moves by that.
func TestWhoeverHasTheOwnersOfANodesFieldsForgottenKeepsItsVolumesWaiting(t *testing.T) {
	for name, on := range map[string]*server{"forgotten-owners": common, "forgotten-policed": policed} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, on, name, bed.StageOptions{})
			by := r.Client
			if on == policed {
				r.writer("csi-fencepost-writer-of-")
				by = stranger
			}
			r.start("fp")
			r.proxy = r.dial("fp")
			forgets := func(n *node) {
				t.Helper()
				_, err := by.CoreV1().Nodes().Patch(r.ctx(), n.name, types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{FieldManager: "forger"})
				allowed(t, "all owners are forgotten", err)
			}
			target, turned, silent := r.node("target"), map[bool]*usedBy{}, map[bool]*usedBy{}
			for forgotten, what := range map[bool]string{true: "forgotten", false: "known"} {
				for kind, all := range map[string]map[bool]*usedBy{"turned": turned, "silent": silent} {
					all[forgotten] = &usedBy{r.volume(kind + "-" + what), r.node(kind + "-" + what), target}
					r.attach(all[forgotten].Volume, all[forgotten].holder)
					r.attachment(all[forgotten].Volume, target)
				}
				turned[forgotten].holder.ready(corev1.ConditionFalse)
				turned[forgotten].holder.ready(corev1.ConditionTrue)
				silent[forgotten].holder.renew()
			}
			lives := r.used("lives", target)
			for _, n := range []*node{turned[true].holder, silent[true].holder, lives.holder} {
				forgets(n)
			}
			time.Sleep(2 * fence.StampResolution) // so that what is known is known to be earlier
			for forgotten, u := range turned {
				r.deleting(u.Volume, u.holder)
				u.holder.lists(u.Volume, false, false)
				r.deleting(silent[forgotten].Volume, silent[forgotten].holder)
				silent[forgotten].holder.lists(silent[forgotten].Volume, true, false)
				silent[forgotten].holder.unheard()
				silent[forgotten].holder.taint()
				r.bound(silent[forgotten].holder, true)
			}
			lives.holder.taint()
			r.keepsRenewing(lives.holder)
			for _, n := range []*node{turned[true].holder, silent[true].holder} {
				now, err := r.Client.CoreV1().Nodes().Get(r.ctx(), n.name, metav1.GetOptions{})
				r.must(err)
				if len(now.ManagedFields) > 0 {
					t.Fatalf("the API server keeps owners of the fields of %s again, so that nothing is shown: %+v", n.name, now.ManagedFields)
				}
			}
			r.settle()
			r.must(r.unpublish(turned[false].Handle, turned[false].holder))
			r.WaitFor(40*time.Second, "a taint that is later is believed", func() bool { return r.publish(silent[false].Handle, target) == nil })
			r.wantAttached(silent[false].Handle, target)
			r.WaitFor(40*time.Second, "the other's silence is known, too", func() bool {
				err := r.publish(silent[true].Handle, target)
				return err == nil || strings.Contains(err.Error(), string(fence.EvidenceVoid))
			})
			r.Never(suspectAfter/2, "it moves", func() bool {
				r.wantRefused(r.publish(turned[true].Handle, target), fence.HolderContested, turned[true].holder.name)
				r.wantRefused(r.publish(silent[true].Handle, target), fence.EvidenceVoid, silent[true].holder.name, "before the node was last heard")
				for what, u := range map[string]*usedBy{"it may have restarted": turned[true], "its taint may be earlier": silent[true], "it uses it": lives} {
					r.wantKept(what, u)
				}
				turned[true].holder.status(nothingButAHeartbeat)
				return t.Failed()
			})

			turned[true].holder.bootAgain()
			r.settle()
			r.must(r.publish(turned[true].Handle, target))
			heard := func(n *node) bool {
				t.Helper()
				now, err := r.Client.CoreV1().Nodes().Get(r.ctx(), n.name, metav1.GetOptions{})
				r.must(err)
				return !evidence.HeardAt(now).IsZero()
			}
			n := turned[true].holder
			if n.status(nothingButAHeartbeat); heard(n) {
				t.Errorf("the API server tells again when it heard %s", n.name)
			}
			_, err := r.Client.CoreV1().Nodes().Patch(r.ctx(), n.name, types.ApplyPatchType, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":{"applied":"x"}}}`, n.name), metav1.PatchOptions{FieldManager: "a-person"})
			r.must(err)
			time.Sleep(1100 * time.Millisecond) // heartbeats are of the second
			if n.status(nothingButAHeartbeat); !heard(n) {
				t.Errorf("once somebody has applied %s the API server does not tell when it heard it", n.name)
			}
			if on == common {
				silent[true].holder.confirm()
				r.settle()
				r.must(r.publish(silent[true].Handle, target))
			}
			r.wantKept("it uses it", lives)
		})
	}
}
