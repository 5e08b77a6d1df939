package kubeapi

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// whoMay is a client of somebody who may do that to Nodes, or to their status, and nothing else.
func (r *rig) whoMay(verb, resource string) kubernetes.Interface {
	r.t.Helper()
	user := r.Name + "-may-" + verb + "-" + strings.ReplaceAll(resource, "/", "-")
	meta := metav1.ObjectMeta{Name: user}
	_, err := r.Client.RbacV1().ClusterRoles().Create(r.ctx(), &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{verb}}}}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.Client.RbacV1().ClusterRoleBindings().Create(r.ctx(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{})
	r.must(err)
	path, err := r.Bed.Cluster.Kubeconfig(user)
	r.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	r.must(err)
	client, err := kubernetes.NewForConfig(config)
	r.must(err)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	r.WaitFor(10*time.Second, user+" has that right", func() bool {
		_, created := client.CoreV1().Nodes().Create(r.ctx(), &corev1.Node{ObjectMeta: meta}, dry)
		_, patched := client.CoreV1().Nodes().Patch(r.ctx(), user, types.MergePatchType, []byte("{}"), metav1.PatchOptions{DryRun: dry.DryRun}, strings.Split(resource, "/")[1:]...)
		return !apierrors.IsForbidden(created) || !apierrors.IsForbidden(patched)
	})
	return client
}

// Whoever may patch Nodes can by the provider ID of a Node that has none what its kubelet can, and no
// more. The ID of another node reaches no machine and proves nothing, whatever the cloud calls the
// instance besides, and that node's machine is switched off by it as before. An ID that no node has is
// the Node's: that machine is switched off in its place, and while it reads off the Node is taken for
// off once it is silent. Whose it is said later is not reached by it.
func TestWhoeverPatchesNodesReachesNoOtherNodesMachineByAProviderID(t *testing.T) {
	const victims, nobodys = "i-victim", "i-nobody"
	r := newRigWithout(t, "patcher", bed.StageOptions{Config: "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, " + byInstance + "}}]}]}"})
	c := &claims{rig: r, plugs: r.Plugs("fence_bmc"), by: byInstance, names: []string{victims, nobodys}}
	c.on()
	c.guard = r.start("fp")
	r.proxy = r.dial("fp")
	victim, same, alike, free, owner, target := c.kubelet("victim"), c.kubelet("same"), c.kubelet("alike"), c.kubelet("free"), c.kubelet("owner"), c.node("target")
	for n, uuid := range map[*kubelet]string{victim: "71", same: "72", alike: "73", free: "74"} {
		n.registers(claimedUUID(uuid))
	}
	victim.saysProvider("x://z/" + victims)
	c.waitBound(victim, record.InstanceID, victims)

	patcher := r.whoMay("patch", "nodes").CoreV1().Nodes()
	provides := func(n *kubelet, id string) error {
		_, err := patcher.Patch(r.ctx(), n.name, types.MergePatchType, []byte(`{"spec":{"providerID":`+quote(id)+`}}`), metav1.PatchOptions{})
		return err
	}
	if _, err := patcher.Patch(r.ctx(), same.name, types.MergePatchType, []byte(`{"status":{"nodeInfo":{"systemUUID":"x"}}}`), metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) {
		t.Errorf("who may patch Nodes patches their status: %v", err)
	}
	if err := provides(victim, "x://z/i-other"); !apierrors.IsInvalid(err) {
		t.Errorf("a provider ID is changed: %v", err)
	}
	r.must(provides(same, "x://z/"+victims))
	r.must(provides(alike, "y://elsewhere/"+victims))
	r.must(provides(free, "x://z/"+nobodys))
	c.waitBound(same, record.InstanceID, victims+" after "+victim.name)
	c.waitBound(alike, record.InstanceID, victims+" after "+victim.name)
	c.waitBound(free, record.InstanceID, nobodys)

	// What is read of the machines.
	c.must(c.plugs.Set(victims, false))
	c.must(c.plugs.Set(nobodys, false))
	held := map[*kubelet]*bed.Volume{}
	for _, n := range []*kubelet{same, alike, free} {
		held[n] = c.volume("of-" + n.name)
		c.attach(held[n], n.node)
		n.lists(held[n], true, false)
		c.deleting(held[n], n.node)
		c.attachment(held[n], target)
	}
	c.settle()
	for n, v := range held {
		c.wantRefused(c.publish(v.Handle, target), fence.HolderAlive, n.name)
	}
	for n := range held {
		n.fallSilent()
	}
	c.WaitFor(30*time.Second, "the Node with an ID that nobody has is taken for off", func() bool { return c.publish(held[free].Handle, target) == nil })
	c.Never(3*time.Second, "a Node is taken for off by the ID of another node", func() bool {
		return c.publish(held[same].Handle, target) == nil || c.publish(held[alike].Handle, target) == nil
	})
	for _, n := range []*kubelet{same, alike} {
		c.wantCalls(held[n].Handle, "publish "+n.id)
	}

	// Whom commands reach.
	owner.registers(claimedUUID("75"))
	owner.saysProvider("x://z/" + nobodys)
	c.waitBound(owner, record.InstanceID, nobodys+" after "+free.name)
	c.off(same, byInstance).says(t, "node "+victim.name+" was known by "+victims+" first")
	c.off(alike, byInstance)
	c.off(owner, byInstance).says(t, "node "+free.name+" was known by "+nobodys+" first")
	c.off(victim, byInstance, victims)
	c.off(free, byInstance, nobodys)
}

// Whoever may patch Nodes can mark one as one that failover is to leave alone. The guard goes by none of
// these marks: a node that lives keeps its volumes, and what is proven off does not keep its.
func TestWhoeverMarksANodeFreesNoVolumeAndKeepsNoneThatIsProvenFree(t *testing.T) {
	r := newRigWithout(t, "marked", bed.StageOptions{Config: "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {marked-old: plug}}}}]}]}"})
	plugs := r.Plugs("fence_bmc")
	r.must(plugs.Set("plug", true))
	r.start("fp")
	r.proxy = r.dial("fp")
	v, old, target := r.volume("v"), r.node("old"), r.node("target")
	r.attach(v, old)
	old.lists(v, true, false)
	r.deleting(v, old)
	r.attachment(v, target)
	_, err := r.whoMay("patch", "nodes").CoreV1().Nodes().Patch(r.ctx(), old.name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+failover.OptOutAnnotation+`":"false","`+failover.MaintenanceAnnotation+`":"x"},
		"labels":{"`+corev1.LabelTopologyZone+`":"elsewhere"}},"spec":{"unschedulable":true,"taints":[{"key":"ToBeDeletedByClusterAutoscaler","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	r.must(err)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderAlive, old.name)
	old.fallSilent()
	r.settle()
	if err := r.publish(v.Handle, target); err == nil {
		t.Fatal("it is published elsewhere while its machine is on")
	}
	r.wantCalls(v.Handle, "publish "+old.id)
	r.must(plugs.Set("plug", false))
	r.WaitFor(30*time.Second, "it is published elsewhere", func() bool { return r.publish(v.Handle, target) == nil })
}
