package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// policed is a life of two nodes with the policies of deploy/admission in force, which see each write of
// their kubelets and of Kubernetes' controllers, and fail closed.
func policed(p *play) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	p.policies()
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	next.Delete()
	next.KillKubelet()
	next.StartKubelet()
	next.WaitReady(60 * time.Second)
	old.Drain()
	db2 := p.Pod("db2", next, v)
	moved := db2.WaitRunning(60 * time.Second)
	next.KillKubelet()
	next.WaitNotReady()
	next.StartKubelet()
	next.WaitReady(60 * time.Second)
	next.PowerOff()
	next.WaitNotReady()
	db2.ForceDelete()
	old.Uncordon()
	next.Confirm()
	db3 := p.Pod("db3", old, v)
	taken := db3.WaitRunning(60 * time.Second)
	next.Boot()
	next.WaitReady(60 * time.Second)
	db3.Delete()
	p.WaitFor(60*time.Second, "the volume is detached", func() bool { return db3.Get() == nil && v.Attachment(old) == nil })
	p.outcome("the pod ran %.1f s after the drain and %.1f s after the node was confirmed off; the nodes registered and were Ready again", moved.Seconds(), taken.Seconds())
}

// policies applies the policies, with the sidecar's rights, and waits until one that fails closed
// refuses what it is there to refuse.
func (p *play) policies() {
	p.t.Helper()
	names := strings.NewReplacer("${NAMESPACE}", p.Name, "${SERVICE_ACCOUNT}", "driver-controller", "${DRIVER}", p.Driver, "${OPERATORS}", "storage-operators")
	for _, file := range []string{"writers.yaml", "ledger.yaml", "nodes.yaml", "records.yaml", "taint.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "admission", file))
		p.must(err)
		p.Apply([]byte(names.Replace(string(text))))
	}
	config := p.Bed.Cluster.Admin()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:node-controller"}
	controller, err := kubernetes.NewForConfig(config)
	p.must(err)
	p.WaitFor(30*time.Second, "nodes.yaml is in force", func() bool {
		_, err := controller.CoreV1().Nodes().Patch(p.t.Context(), p.Nodes[0].Name, types.MergePatchType,
			[]byte(`{"status":{"volumesInUse":["kubernetes.io/csi/x^y"]}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "is its kubelet's word")
	})
}
