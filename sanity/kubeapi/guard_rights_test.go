package kubeapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

// also is the same machine as another driver knows it.
func (n *node) also(by *rig) *node {
	n.r.t.Helper()
	other := *n
	other.r, other.id = by, "id-of-"+n.name+"-at-"+by.Name
	by.must(by.Array.AddMachine(other.id))
	csiNodes := n.r.Client.StorageV1().CSINodes()
	by.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c, err := csiNodes.Get(n.r.ctx(), n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Spec.Drivers = append(c.Spec.Drivers, storagev1.CSINodeDriver{Name: by.Driver, NodeID: other.id})
		_, err = csiNodes.Update(n.r.ctx(), c, metav1.UpdateOptions{})
		return err
	}))
	return &other
}

// With the policies in force, an account that may fence for its driver's storage says of any node, also of one
// that lives, that it is cut off from that, which moves that driver's volumes. By whatever else it writes into
// the node's record the volumes of another driver stay where they are.
func TestWhoFencesForHisDriversStorageMovesThatDriversVolumesAlone(t *testing.T) {
	const config = "evidence: {outOfServiceTaint: false}"
	r := newRigOn(t, policed, "own-storage", bed.StageOptions{Config: config})
	o := &rig{t: t, Stage: policed.use(t).Stage(t, "others-storage", bed.StageOptions{Nodes: -1, Manual: true,
		Array:  func(s *array.Switches) { s.EnforceSingleAttach = false },
		Config: config + "\nfencing: {maxUnhealthy: 100%, suspectAfter: 12s}"})}
	r.writer("csi-fencepost-writer-of-", "csi-fencepost-fencer-of-")
	o.writer("csi-fencepost-writer-of-")
	for _, rig := range []*rig{r, o} {
		rig.start("fp")
		rig.proxy = rig.dial("fp")
	}
	target := r.node("target")
	targets, own, others := target.also(o), map[string]*usedBy{}, map[string]*usedBy{}
	for _, life := range []string{"silent", "lives"} {
		n := r.node(life)
		own[life], others[life] = r.usedOn(n, life, target), o.usedOn(n.also(o), life, targets)
		r.settle()
		r.wantKept(life+": nobody has fenced it", own[life])
		o.wantKept(life+": nobody has fenced it", others[life])
	}
	own["silent"].holder.fallSilent()
	own["lives"].holder.renew()
	r.keepsRenewing(own["lives"].holder)

	actor := &podToken{r, clientOf(t, r.ServiceAccountKubeconfig())}
	for life, u := range own {
		m := record.FencedMachine{NodeUID: u.holder.uid, BootID: u.holder.boot, LeaseRV: u.holder.leaseRV()}
		fenced := func(id string, kind fence.Kind, driver string) func(*record.Record) (bool, error) {
			return func(rec *record.Record) (bool, error) {
				rec.PutFence(record.Fence{ID: id, Kind: kind, Driver: driver, Phase: record.Fenced, Actor: "x", Agents: []string{"x"}, Machine: m}, "Fenced")
				return true, nil
			}
		}
		confirmed := func(rec *record.Record) (bool, error) {
			rec.AddConfirmation(record.Confirmation{ID: "c", By: "x", Reason: "x", Machines: []record.Machine{{NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV}}})
			return true, nil
		}
		for what, claim := range map[string]func(*record.Record) (bool, error){
			"another driver's storage": fenced("o", fence.StorageFence, o.Driver), "the power": fenced("p", fence.PowerReading, ""), "a person's word": confirmed,
		} {
			actor.barred(life+": it vouches for "+what, u.holder, claim)
			actor.writes(u.holder, func(rec *record.Record) { _, _ = claim(rec) })
		}
		r.settle()
		r.wantKept(life+": of its own storage it has said nothing", u)
		o.wantKept(life+": it may not vouch for it", others[life])

		_, err := record.NewStore(actor.client.CoordinationV1(), namespace).Update(r.ctx(), u.holder.name, fenced("s", fence.StorageFence, r.Driver))
		allowed(t, life+": it fences at its own storage", err)
		r.WaitFor(20*time.Second, life+": its own driver's volume moves", func() bool { return r.publish(u.Handle, target) == nil })
		r.wantCalls(u.Handle, "publish "+u.holder.id, "unpublish "+u.holder.id, "publish "+target.id)
		o.Never(2*time.Second, life+": another driver's volume moves", func() bool {
			o.wantKept(life+": its own storage is cut off", others[life])
			return t.Failed()
		})
	}
}

// No secret of a call, and no credential of a fence agent, is in anything that csi-fencepost writes, serves or
// prints, though driver and device quote it in their own words. Those words are there, without it.
func TestNoSecretIsInWhatIsWrittenServedOrPrinted(t *testing.T) {
	const ofCalls, ofDevice = "s3cr3t-of-this-call", "s3cr3t-of-this-device"
	r := newRigWithout(t, "secretive", bed.StageOptions{Secrets: map[string]string{secretKey: ofCalls}, FencepostArgs: []string{"--http-endpoint=127.0.0.1:0", "--v=5"}})
	plugs := r.Plugs("fence_bmc")
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, parameterFiles: {password: " +
		r.Write("password", ofDevice+"\n", 0o600) + "}, nodeParameters: {plug: {secretive-silent: p1}}}}]}]}"
	p := r.start("fp")
	r.proxy = r.dial("fp")
	target := r.node("target")
	u := r.silent("silent", target)
	r.waitingPod(u.Volume, target)
	printed := map[string]string{}
	command := func(name string, code int, args ...string) {
		t.Helper()
		a := execute(t, r.Bed.Fencepost, append(args, "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())...)
		if a.code != code {
			t.Errorf("%s ends with %d: %s%s", name, a.code, a.stdout, a.stderr)
		}
		printed[name] = a.stdout + a.stderr
	}
	asks := []string{"--config=" + r.Socket("config.yaml"), "--csi-address=" + r.Socket("csi.sock"), "--agent-dirs=" + r.Socket("agents")}

	// The device quotes its password: nobody has said that the node is off.
	r.settle()
	r.wantRefused(r.publish(u.Handle, target), fence.HolderUnknown, u.holder.name)
	command("fence off", 1, append([]string{"fence", "off", u.holder.name, "--reason=silent", "--force", "--yes"}, asks...)...)
	// The driver quotes the secret of the call: of the takeover's unpublish, and of a publish.
	r.must(plugs.Set("p1", false))
	quoting := array.Fault{Method: array.Unpublish, Node: u.holder.id, Do: array.Fail, Code: codes.PermissionDenied, Message: "login as admin/" + ofCalls + " failed"}
	rejected := r.Array.Inject(quoting)
	said := ""
	r.WaitFor(40*time.Second, "the takeover's unpublish fails", func() bool {
		err := r.publish(u.Handle, target)
		if err == nil {
			t.Fatal("it is published elsewhere though its unpublish fails")
		}
		said = err.Error()
		return strings.Contains(said, string(fence.UnpublishFailed))
	})
	rejected.Clear()
	quoting.Method, quoting.Node = array.Publish, target.id
	rejected = r.Array.Inject(quoting)
	if err := r.publish(u.Handle, target); err == nil {
		t.Fatal("the driver's refusal is not handed on")
	}
	rejected.Clear()
	r.WaitEvent("PersistentVolume", u.Name, 20*time.Second, "login as admin/***stripped*** failed")
	command("explain", 0, append([]string{"explain", "pv", u.Name}, asks...)...)
	command("fence status", 0, "fence", "status", u.holder.name, "-o", "yaml")
	all := r.Told()
	maps.Copy(all, printed)
	all["the refusal"], all["the log"] = said, r.LogOf(p)
	for _, path := range []string{"/metrics", "/statusz", "/statusz?format=json", "/readyz?verbose"} {
		code, body := r.HTTP(p, path)
		if code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
		all[path] = body
	}
	for what, text := range all {
		for name, secret := range map[string]string{"of a call": ofCalls, "of a device": ofDevice} {
			if strings.Contains(text, secret) {
				t.Errorf("the secret %s is in %s", name, what)
			}
		}
	}
	for what, words := range map[string]string{"the refusal": "login as admin/***stripped*** failed", "the log": "login as admin/***stripped*** failed",
		"fence off": "login <refused> for", "records": "for", "Events": "***stripped***"} {
		if !strings.Contains(all[what], words) {
			t.Errorf("%s lacks the words of the driver or the device, %q:\n%.3000s", what, words, all[what])
		}
	}
	r.must(r.publish(u.Handle, target))
	calls := r.Array.Calls()
	if !slices.ContainsFunc(calls, func(c array.Call) bool {
		return c.Volume == u.Handle && c.Method == array.Unpublish && c.Secrets && c.Code == codes.OK
	}) {
		t.Errorf("the driver has the secret of no unpublish: %+v", calls)
	}
}

// kubeletStamped has the Node of a file look as if its kubelet had registered it, and written its status since:
// whose heartbeat it was, too, or not.
func kubeletStamped(n *corev1.Node, heard bool) {
	now, status := metav1.Now(), `{"f:status":{"f:images":{}}}`
	if heard {
		status = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastHeartbeatTime":{},"f:status":{}}}}}`
	}
	for subresource, owned := range map[string]string{"": `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/hostname":{}}}}`, "status": status} {
		n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			FieldsType: "FieldsV1", Time: &now, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(owned)})
	}
}

// Who may create Nodes, and nothing else, says with one what later its kubelet alone may change. The volumes that
// it lists wait. No Node that is there is changed by it, and of a holder whose Node is gone it says nothing that
// frees a volume, also as its machine in the same boot or another, as a kubelet's own stamps would have it.
func TestWhoeverCreatesNodesKeepsVolumesWaitingAndFreesNone(t *testing.T) {
	r := newRig(t, "node-maker", bed.StageOptions{})
	creator, target := r.whoMay("create", "nodes").CoreV1().Nodes(), r.node("target")
	makes := func(name, boot, uuid string, change func(*corev1.Node)) error {
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}, Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: boot, SystemUUID: uuid},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				LastHeartbeatTime: metav1.NewTime(time.Now().Add(time.Hour)), LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))}}}}
		if change != nil {
			change(made)
		}
		_, err := creator.Create(r.ctx(), made, metav1.CreateOptions{FieldManager: "kubelet"})
		return err
	}
	stamped := func(n *corev1.Node) { kubeletStamped(n, true) }
	tainted := func(n *corev1.Node) { stamped(n); n.Spec.Taints = []corev1.Taint{bed.OutOfServiceTaint} }
	forgeries := map[string]struct {
		boot, uuid string // empty: the holder's
		change     func(*corev1.Node)
	}{
		"another": {"b", "u", stamped}, "booted": {"b", "", stamped}, "same": {"", "", stamped}, "plain": {"b", "", nil}, "tainted": {"", "", tainted}, "taintedboot": {"b", "", tainted},
	}
	gone := map[string]*usedBy{}
	use := func(name, uuid string) *usedBy {
		n := r.node(name)
		n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
		n.renew()
		r.settle()
		return r.usedOn(n, name, target)
	}
	number := 60
	uuids := map[string]string{}
	for name := range forgeries {
		number++
		uuids[name] = claimedUUID(strconv.Itoa(number))
		gone[name] = use(name, uuids[name])
	}
	there := use("there", claimedUUID("59"))
	r.keepsRenewing(there.holder)
	for _, u := range gone {
		u.holder.delete()
	}
	time.Sleep(2 * fence.StampResolution)
	for name, f := range forgeries {
		allowed(t, name+": it makes a Node under the name of one that is gone",
			makes(gone[name].holder.name, cmp.Or(f.boot, gone[name].holder.boot), cmp.Or(f.uuid, uuids[name]), f.change))
	}
	if err := makes(there.holder.name, "b", "", nil); !apierrors.IsAlreadyExists(err) {
		t.Errorf("it makes a Node that is there: %v", err)
	}
	for what, err := range map[string]error{
		"deletes": creator.Delete(r.ctx(), there.holder.name, metav1.DeleteOptions{}),
		"writes the status of": func() error {
			_, err := creator.Patch(r.ctx(), there.holder.name, types.MergePatchType, []byte(`{"status":{"volumesInUse":[]}}`), metav1.PatchOptions{}, "status")
			return err
		}(),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("it %s a Node that is there: %v", what, err)
		}
	}
	free := r.volume("free")
	allowed(t, "it makes a Node that lists a volume which nobody has", makes(r.Name+"-lister", "b", "", func(n *corev1.Node) {
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName("kubernetes.io/csi/" + r.Driver + "^" + free.Handle)}
	}))
	r.attachment(free, target)
	r.settle()
	if err := r.publish(free.Handle, target); err == nil || !strings.Contains(err.Error(), r.Name+"-lister") {
		t.Errorf("what it lists does not wait: %v", err)
	}
	r.Never(suspectAfter+4*time.Second, "a volume moves", func() bool {
		for name, u := range gone {
			r.wantKept(name, u)
		}
		r.wantKept("it is there", there)
		return t.Failed()
	})
}

// A Node that is made from a file under the name of one that is gone, and looks as if a kubelet had registered it,
// is read as that machine's. Who may write its status as well says of it that it has booted, which frees what a
// machine writes to that lives. With the policies in force nobody but its kubelet says in which boot a Node is, and
// nothing is freed by one that is made, whoever is said to have registered it; nor once that kubelet is back.
func TestAMadeNodeThatLooksRegisteredFreesAVolumeOnlyWhoseBootOthersMayWrite(t *testing.T) {
	for name, on := range map[string]*server{"made-looks": common, "made-policed": policed} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, on, name, bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}"})
			by := r.Client
			if on == policed {
				r.writer("csi-fencepost-writer-of-")
				by = stranger
			}
			r.start("fp")
			r.proxy = r.dial("fp")
			target := r.node("target")
			n := r.node("gone")
			uuid := claimedUUID("91")
			n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
			n.renew()
			r.settle()
			u := r.usedOn(n, "gone", target)
			n.delete()
			r.keepsRenewing(n) // the machine lives
			time.Sleep(2 * fence.StampResolution)

			makes := func(boot string, heard bool) error {
				made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{corev1.LabelHostname: n.name}}}
				if made.Status.NodeInfo.BootID = boot; boot != "" {
					made.Status.NodeInfo.SystemUUID = uuid
				}
				kubeletStamped(made, heard)
				_, err := by.CoreV1().Nodes().Create(r.ctx(), made, metav1.CreateOptions{FieldManager: "kubelet"})
				return err
			}
			says := func(boot string) error {
				now := metav1.Now()
				body, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"bootID": boot, "systemUUID": uuid}, "conditions": []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}}})
				r.must(err)
				_, err = by.CoreV1().Nodes().Patch(r.ctx(), n.name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
				return err
			}
			if on == policed {
				const boot, heard = "status.nodeInfo.bootID, status.nodeInfo.systemUUID of Node", "metadata.managedFields of Node"
				for _, made := range []struct {
					err   error
					field string
				}{{makes(n.boot, false), boot}, {makes("another", false), boot}, {makes("", true), heard}} {
					if !apierrors.IsForbidden(made.err) || !strings.Contains(made.err.Error(), made.field) {
						t.Errorf("a Node is made: %v, want it to be refused for %s", made.err, made.field)
					}
				}
				allowed(t, "a Node is made that looks registered", makes("", false))
			} else {
				allowed(t, "a Node is made that looks registered, in its boot", makes(n.boot, true))
			}
			made, err := r.Client.CoreV1().Nodes().Get(r.ctx(), n.name, metav1.GetOptions{})
			r.must(err)
			if !evidence.RegisteredByKubelet(made) {
				t.Fatalf("it does not look registered, so that nothing is shown: %+v", made.ManagedFields)
			}
			r.settle()
			r.wantKept("it is made", u)
			if on == common {
				for range 2 {
					allowed(t, "it is said to be heard", says(n.boot))
					time.Sleep(1100 * time.Millisecond)
				}
				r.wantKept("it is said to be heard", u)
				allowed(t, "it is said to have booted", says("another"))
				r.settle()
				r.must(r.publish(u.Handle, target))
				r.wantCalls(u.Handle, "publish "+n.id, "unpublish "+n.id, "publish "+target.id)
				return
			}
			for _, boot := range []string{n.boot, "another"} {
				if err := says(boot); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status.nodeInfo.bootID") {
					t.Errorf("it is said to be in a boot: %v", err)
				}
			}
			r.Never(suspectAfter, "it moves", func() bool { r.wantKept("it is made", u); return t.Failed() })
			n.status(func(s *corev1.NodeStatus) { // its kubelet's, in the boot of before
				s.NodeInfo.BootID, s.NodeInfo.SystemUUID = n.boot, uuid
				s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
			})
			n.lists(u.Volume, true, false)
			r.Never(suspectAfter/2, "it moves", func() bool { r.wantKept("its kubelet is back", u); return t.Failed() })
		})
	}
}

// Who may write records takes out what a node's machine is known by, and who may deletes the record. It is bound
// anew to the one Node that says it, also what that has of an earlier machine, which is taken for off by it; to
// none while two do; and whose record still says it keeps it. No other machine is switched off by that.
func TestAForgottenIdentityIsBoundAnewToTheOneNodeThatSaysIt(t *testing.T) {
	c := newClaimsBy(t, "forgotten", byInstance, "i-earlier", "i-first", "i-other")
	stays, owner, late, other, target := c.kubelet("stays"), c.kubelet("owner"), c.kubelet("late"), c.kubelet("other"), c.node("target")
	for n, says := range map[*kubelet][2]string{stays: {claimedUUID("21"), "i-earlier"}, owner: {claimedUUID("22"), "i-first"}, other: {claimedUUID("23"), "i-other"}} {
		n.registers(says[0])
		n.saysProvider("x://z/" + says[1])
		c.waitBound(n, record.InstanceID, says[1])
	}
	late.registers(claimedUUID("24"))
	late.saysProvider("x://z/i-first")
	const after = "i-first after forgotten-owner"
	c.waitBound(late, record.InstanceID, after)
	// Under the Node that stays there is another machine by now.
	stays.status(func(s *corev1.NodeStatus) {
		s.NodeInfo.SystemUUID, s.NodeInfo.BootID = claimedUUID("25"), "boot-of-the-next"
	})
	stays.boot = "boot-of-the-next"
	volumes := map[*kubelet]*bed.Volume{stays: c.volume("of-stays"), late: c.volume("of-late")}
	for n, v := range volumes {
		c.attach(v, n.node)
		n.fallSilent()
		n.lists(v, true, false)
		c.deleting(v, n.node)
		c.attachment(v, target)
	}
	keeps := func(when string, nodes ...*kubelet) {
		t.Helper()
		c.must(c.plugs.Set("i-earlier", false))
		c.must(c.plugs.Set("i-first", false))
		c.Never(3*time.Second, when+" a node is taken for off by another machine", func() bool {
			return slices.ContainsFunc(nodes, func(n *kubelet) bool { return c.publish(volumes[n].Handle, target) == nil })
		})
	}
	// looks has the sidecar look at all nodes again: one more registers.
	looks := func(name, uuid string) {
		t.Helper()
		more := c.kubelet(name)
		more.registers(uuid)
		c.waitBound(more, record.SystemUUID, uuid)
	}
	keeps("before anything is forgotten", stays, late)

	pod := &podToken{c.rig, guardOnly}
	forgets := func(n *kubelet) {
		t.Helper()
		pod.writes(n.node, func(rec *record.Record) { rec.Identity = nil })
		if got := n.bound(record.InstanceID); got != "" {
			t.Errorf("%s is bound to %s still", n.name, got)
		}
	}
	forgets(stays)
	forgets(late)
	looks("one-more", claimedUUID("26"))
	c.waitBound(late, record.InstanceID, after)
	c.waitBound(stays, record.InstanceID, "i-earlier")
	c.must(c.plugs.Set("i-earlier", false))
	c.WaitFor(30*time.Second, "what the Node has of an earlier machine is a first sight", func() bool { return c.publish(volumes[stays].Handle, target) == nil })
	keeps("whose owner's record says it", late)

	forgets(late)
	leases := operator.CoordinationV1().Leases(namespace)
	allowed(t, "an operator deletes a record", leases.Delete(c.ctx(), record.LeaseName(owner.name), metav1.DeleteOptions{}))
	looks("another-one", claimedUUID("27"))
	for _, n := range []*kubelet{owner, late} {
		if got := n.bound(record.InstanceID); got != "" {
			t.Errorf("two Nodes say it, and it is bound to %s: %s", n.name, got)
		}
	}
	keeps("that two Nodes say", late)
	for _, n := range []*kubelet{owner, late} {
		c.off(n, byInstance)
	}
	c.off(other, byInstance, "i-other")
	c.wantCalls(volumes[late].Handle, "publish "+late.id)
}

// In mode Observe, too, nothing is served before the fence agents are as they have to be; and what an agent reads
// then, such as a running machine as off, is written nowhere, while every call goes to the driver.
func TestInModeObserveAWrongAgentKeepsItFromServingAndWhatAgentsReadIsNotWritten(t *testing.T) {
	const ofDevice = "s3cr3t-of-the-observed"
	r := newRigWithout(t, "observing", bed.StageOptions{ObserveRights: true})
	plugs := r.Plugs("fence_bmc")
	r.must(plugs.Set("p1", false))
	r.Options.Config = "mode: Observe\nfencing: {suspectAfter: 12s, maxUnhealthy: 100%, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, parameterFiles: {password: " +
		r.Write("password", ofDevice+"\n", 0o600) + "}, nodeParameters: {plug: {observing-n: p1}}}}]}]}"
	program := r.Socket("agents/fence_bmc")
	r.must(os.Chmod(program, 0o777)) // others can write it
	p := r.Launch("fp")
	r.WaitLog(p, 30*time.Second, `fence_bmc.*(may write|others)`)
	r.Never(3*time.Second, "it serves", func() bool {
		conn, err := net.Dial("unix", r.Socket("fp.sock"))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if strings.Contains(r.LogOf(p), ofDevice) {
		t.Error("the device's secret is in the log")
	}
	r.must(os.Chmod(program, 0o755))
	r.must(p.Serving(r.ctx(), r.Socket("fp.sock"), 60*time.Second))
	r.proxy = r.dial("fp")

	v, n, target := r.volume("v"), r.node("n"), r.node("target")
	r.attach(v, n)
	n.fallSilent()
	n.lists(v, true, false)
	r.deleting(v, n)
	r.attachment(v, target)
	r.settle()
	r.must(r.publish(v.Handle, target))
	r.must(r.unpublish(v.Handle, n))
	r.wantCalls(v.Handle, "publish "+n.id, "publish "+target.id, "unpublish "+n.id)
	r.WaitLog(p, 10*time.Second, `"Decided" call="ControllerPublishVolume" volume="`+v.Handle+`"[^\n]*reason="HolderFenced"`) // by what the agent read
	if reads, err := plugs.Reads("p1"); err != nil || reads == 0 {
		t.Errorf("the agent was asked %d times, so that nothing is shown: %v", reads, err)
	}
	rec, err := r.records().Get(r.ctx(), n.name)
	if err != nil || rec != nil || v.Ledger() != "" {
		t.Errorf("written are the record %+v (%v) and the ledger %q", rec, err, v.Ledger())
	}
}

// A person who has looked releases a volume from a node that lives and is not believed. That frees this one: not
// another of the same node, and the command refuses one that the node lists.
func TestAReleaseFromANodeThatLivesFreesTheOneVolumeThatItDoesNotList(t *testing.T) {
	r := newRig(t, "released-living", bed.StageOptions{})
	n, target := r.node("n"), r.node("target")
	one, other, used := r.volume("one"), r.volume("other"), r.volume("used")
	for _, v := range []*bed.Volume{one, other, used} {
		r.refusedInUse(v, n)
		r.attachment(v, target)
	}
	n.ready(corev1.ConditionTrue) // restarted: it may have forgotten what it has mounted
	n.lists(one, false, false)
	n.lists(other, false, false)
	r.settle()
	refused := func(v *bed.Volume, reason fence.Reason) {
		t.Helper()
		r.wantRefused(r.publish(v.Handle, target), reason, n.name)
		r.wantRefused(r.unpublish(v.Handle, n), reason, n.name)
		r.wantCalls(v.Handle, "publish "+n.id)
	}
	refused(one, fence.HolderContested)
	releases := func(v *bed.Volume) answer {
		return execute(t, r.Bed.Fencepost, "release", "pv", v.Name, "--node="+n.name, "--reason=looked", "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())
	}
	releases(one).ends(t, 0)
	releases(used).ends(t, 1).says(t, "volumesInUse")
	r.WaitFor(20*time.Second, "what was released moves", func() bool { return r.publish(one.Handle, target) == nil })
	r.wantAttached(one.Handle, target)
	refused(other, fence.HolderContested)
	refused(used, fence.HolderAlive)
}

// A person's release is of one machine, as it was then. One that lists the volume again, or is given it anew, one
// that was silent and is heard again, and one that has the name under another UID keep it, whatever he has said.
func TestAReleaseEndsWithWhatItWasSaidOf(t *testing.T) {
	r := newRig(t, "released-then", bed.StageOptions{})
	target, all := r.node("target"), map[string]*usedBy{}
	released := func(what string, u *usedBy) {
		t.Helper()
		r.settle()
		r.wantKept(what+": nothing is released yet", u)
		args := []string{"release", "pv", u.Name, "--node=" + u.holder.name, "--reason=looked", "--kubeconfig=" + r.Bed.Cluster.AdminKubeconfig()}
		execute(t, r.Bed.Fencepost, args...).ends(t, 0)
		all[what] = u
	}
	// Those that live, and are not believed.
	for _, what := range []string{"moves", "lists", "attached", "registers"} {
		u := &usedBy{r.volume(what), r.node(what), target}
		r.refusedInUse(u.Volume, u.holder)
		r.attachment(u.Volume, target)
		u.holder.ready(corev1.ConditionTrue) // restarted: it may have forgotten what it has mounted
		u.holder.lists(u.Volume, false, false)
		released(what, u)
	}
	// Those of which nothing is heard.
	silent := map[string]*usedBy{}
	for _, what := range []string{"moves-silent", "heard", "registers-silent"} {
		silent[what] = r.used(what, target)
		silent[what].holder.fallSilent()
	}
	time.Sleep(suspectAfter + watchLag)
	for what, u := range silent {
		released(what, u)
	}
	// One whose Node is gone, and with it its Lease.
	gone := r.used("registers-gone", target)
	gone.holder.delete()
	leases := r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	r.must(leases.Delete(r.ctx(), gone.holder.name, metav1.DeleteOptions{}))
	released("registers-gone", gone)

	all["lists"].holder.lists(all["lists"].Volume, true, false)
	r.gone(all["attached"].Volume, all["attached"].holder)
	r.attachment(all["attached"].Volume, all["attached"].holder)
	r.attached(all["attached"].Volume, all["attached"].holder)
	all["heard"].holder.renew()
	for _, what := range []string{"registers", "registers-silent", "registers-gone"} {
		n := all[what].holder
		if what != "registers-gone" {
			n.delete()
		}
		n.registersAgain()
		if what == "registers-silent" {
			// As its kubelet does within seconds. Until then what a person said of the silent machine counts: it is in
			// the boot that he said it of.
			n.renew()
		}
		_, err := r.Client.StorageV1().CSINodes().Create(r.ctx(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: n.id}}}}, metav1.CreateOptions{})
		r.must(err)
		n.lists(all[what].Volume, true, false)
	}
	r.settle()
	r.Never(suspectAfter+4*time.Second, "a release of before counts", func() bool {
		for what, u := range all {
			if !strings.HasPrefix(what, "moves") {
				r.wantKept(what, u)
			}
		}
		return t.Failed()
	})
	for what, u := range all {
		if strings.HasPrefix(what, "moves") {
			r.must(r.publish(u.Handle, target))
			r.wantAttached(u.Handle, target)
		}
	}
}

// A device that reads a silent node's machine as off is not believed while another agent of its level reads it as
// on, nor while it says that it is another machine's.
func TestADeviceThatIsContradictedIsNotBelieved(t *testing.T) {
	const name, foreigners = "contradicted", "11111111-2222-4333-8444-555555555699"
	r := newRigWithout(t, name, bed.StageOptions{})
	plugs := r.Plugs("fence_bmc", "fence_pdu", "fence_own")
	script, err := os.ReadFile(r.Socket("agents/fence_own"))
	r.must(err)
	said := strings.Replace(string(script), `status) echo "Status`, `status) echo "Identity: $(cat '`+r.Socket("plugs")+`'/"id-$plug")"; echo "Status`, 1)
	r.must(os.WriteFile(r.Socket("agents/fence_own"), []byte(said), 0o755))
	agent := func(of, plugs string) string {
		return "{name: " + of + ", timeout: 5s, exec: {agent: fence_" + of + ", nodeParameters: {plug: {" + plugs + "}}}}"
	}
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [" + agent("bmc", name+"-two: a") + ", " + agent("pdu", name+"-two: b") + "]}, " +
		"{agents: [" + agent("own", name+"-foreign: c, "+name+"-checked: d") + "]}]}"
	for plug, on := range map[string]bool{"a": false, "b": true, "c": false, "d": false} {
		r.must(plugs.Set(plug, on))
	}
	says := func(plug, uuid string) { r.t.Helper(); r.Write("plugs/id-"+plug, uuid+"\n", 0o644) }
	says("c", foreigners)
	says("d", claimedUUID("33"))
	r.start("fp")
	r.proxy = r.dial("fp")
	target, all := r.node("target"), map[string]*usedBy{}
	for of, uuid := range map[string]string{"two": claimedUUID("31"), "foreign": claimedUUID("32"), "checked": claimedUUID("33")} {
		n := r.node(of)
		n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
		r.settle()
		all[of] = r.usedOn(n, of, target)
		n.fallSilent()
	}
	moves := func(of string) {
		t.Helper()
		r.WaitFor(40*time.Second, of+" is taken for off", func() bool { return r.publish(all[of].Handle, target) == nil })
		r.wantAttached(all[of].Handle, target)
	}
	moves("checked")
	r.Never(5*time.Second, "a device that is contradicted is believed", func() bool {
		r.wantKept("another agent reads it as on", all["two"])
		r.wantKept("it is another machine's", all["foreign"])
		return t.Failed()
	})
	r.must(plugs.Set("b", false))
	says("c", claimedUUID("32"))
	moves("two")
	moves("foreign")
}

// A BMC that answers where the node's is said to be, and that is another machine's by its GUID, is believed of none,
// and gets no command; the same machine's is.
func TestABMCOfAnotherMachineIsNotBelievedAndGetsNoCommand(t *testing.T) {
	const name = "bmc-of-another"
	r := newRigWithout(t, name, bed.StageOptions{})
	off, on := bmc.NewMachine(false), bmc.NewMachine(true)
	of := map[string]*bmc.BMC{"own": r.StartBMC(claimedUUID("41"), off), "another": r.StartBMC(claimedUUID("49"), off), "on": r.StartBMC(claimedUUID("48"), on)}
	agent := "{agents: [{name: bmc, timeout: 5s, ipmi: " + r.IPMIOf([]string{name + "-own: " + quote(of["own"].Addr), name + "-another: " + quote(of["another"].Addr), name + "-on: " + quote(of["on"].Addr)}) + "}]}"
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [" + agent + "]}"
	r.start("fp")
	r.proxy = r.dial("fp")
	target, all := r.node("target"), map[string]*usedBy{}
	for of, uuid := range map[string]string{"own": claimedUUID("41"), "another": claimedUUID("42"), "on": claimedUUID("43")} {
		n := r.node(of)
		n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
		r.settle()
		all[of] = r.usedOn(n, of, target)
		n.fallSilent()
	}
	r.WaitFor(40*time.Second, "its own BMC's word counts", func() bool { return r.publish(all["own"].Handle, target) == nil })
	r.wantAttached(all["own"].Handle, target)
	r.Never(5*time.Second, "another machine's BMC is believed", func() bool {
		for _, of := range []string{"another", "on"} {
			r.wantKept("its BMC is another machine's", all[of])
		}
		return t.Failed()
	})
	got := execute(t, r.Bed.Fencepost, "fence", "off", all["on"].holder.name, "--reason=silent", "--force", "--yes", "--config="+r.Socket("config.yaml"),
		"--csi-address="+r.Socket("csi.sock"), "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())
	got.ends(t, 1)
	got.says(t, claimedUUID("48"))
	if !on.On() {
		t.Errorf("another machine is switched off: %s%s", got.stdout, got.stderr)
	}
	r.wantKept("its BMC is another machine's", all["on"])
}
