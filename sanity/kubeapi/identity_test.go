package kubeapi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// as is a client with the credential of the node's kubelet.
func (n *node) as() kubernetes.Interface {
	n.r.t.Helper()
	path, err := n.r.Bed.Cluster.Kubeconfig("system:node:"+n.name, "system:nodes")
	n.r.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	n.r.must(err)
	client, err := kubernetes.NewForConfig(config)
	n.r.must(err)
	return client
}

// knownBy is the system UUID that is bound to the node.
func (n *node) knownBy() string {
	n.r.t.Helper()
	rec, err := n.r.records().Get(n.r.ctx(), n.name)
	n.r.must(err)
	return rec.Known().Of(record.SystemUUID).Value
}

// With all that Kubernetes lets a kubelet's credential write, nobody has the machine of
// another node switched off, where agents find machines by what their nodes say.
func TestNoKubeletHasAnotherMachineSwitchedOff(t *testing.T) {
	r := newRigWithout(t, "claims", bed.StageOptions{})
	plugs := r.Plugs("fence_bmc")
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, parameters: {plug: $(SYSTEM_UUID)}}}]}]}"
	victim, hostile := r.node("victim"), r.node("hostile")
	uuids := map[*node]string{victim: "11111111-2222-4333-8444-555555555501", hostile: "11111111-2222-4333-8444-555555555502"}
	for n, uuid := range uuids {
		r.must(plugs.Set(uuid, true))
		n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
	}
	p := r.start("fp")
	r.WaitFor(30*time.Second, "both machines are bound", func() bool {
		return victim.knownBy() == uuids[victim] && hostile.knownBy() == uuids[hostile]
	})

	kubelet := hostile.as()
	claim := []byte(fmt.Sprintf(`{"status":{"nodeInfo":{"systemUUID":%q}}}`, uuids[victim]))
	_, err := kubelet.CoreV1().Nodes().Patch(r.ctx(), hostile.name, types.StrategicMergePatchType, claim, metav1.PatchOptions{}, "status")
	r.must(err) // Kubernetes lets it
	for what, try := range map[string]func() error{
		"the victim's Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Patch(r.ctx(), victim.name, types.StrategicMergePatchType, claim, metav1.PatchOptions{}, "status")
			return err
		},
		"its Node, by deleting it": func() error { return kubelet.CoreV1().Nodes().Delete(r.ctx(), hostile.name, metav1.DeleteOptions{}) },
		"another Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Create(r.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Name + "-third"}}, metav1.CreateOptions{})
			return err
		},
		"the records": func() error {
			_, err := record.NewStore(kubelet.CoordinationV1(), "csi-fencepost").Update(r.ctx(), hostile.name, func(r *record.Record) (bool, error) {
				r.Identity = nil
				return true, nil
			})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet may write %s: %v", what, err)
		}
	}
	// The sidecar is gone: whoever has nodes switched off goes by the record.
	p.Stop(5 * time.Second)
	off := func(n *node) answer {
		return execute(t, r.Bed.Fencepost, "fence", "off", n.name, "--reason=silent", "--force", "--yes", "--config="+r.Socket("config.yaml"), "--agent-dirs="+r.Socket("agents"),
			"--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())
	}
	power := func(want string) {
		t.Helper()
		for _, n := range []*node{hostile, victim} {
			got, err := os.ReadFile(r.Socket("plugs/" + uuids[n]))
			if state := strings.TrimSpace(string(got)); err != nil || !strings.Contains(want, n.name+"="+state) {
				t.Errorf("the machine of %s is %q, want %s (%v)", n.name, state, want, err)
			}
		}
	}
	off(hostile).ends(t, 1)
	power(hostile.name + "=ON " + victim.name + "=ON")
	// Nor is the victim kept from being switched off.
	off(victim).ends(t, 0)
	power(hostile.name + "=ON " + victim.name + "=OFF")
}
