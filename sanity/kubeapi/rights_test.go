package kubeapi

import (
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

var withHTTP = []string{"--http-endpoint=127.0.0.1:0"}

// account is the stages' service account.
const account = "driver-controller"

// toAnother binds the rights to a service account that is not the sidecar's, as
// `helm --namespace` left out does.
func toAnother(manifests string) string {
	return strings.ReplaceAll(manifests, "name: "+account, "name: somebody-else")
}

// given gives the sidecar the rights after all.
func (r *rig) given(render func(deploy.Names) ([]byte, error)) {
	r.t.Helper()
	manifests, err := render(deploy.Names{Namespace: r.Name, ServiceAccount: account, Driver: r.Driver})
	r.must(err)
	r.Apply(manifests)
}

// wantReady waits until /readyz has that code and all of parts.
func (r *rig) wantReady(p *controlplane.Process, code int, parts ...string) {
	r.t.Helper()
	var got int
	var body string
	defer func() {
		if r.t.Failed() {
			r.t.Logf("/readyz: %d\n%s", got, body)
		}
	}()
	r.WaitFor(30*time.Second, "/readyz says "+strings.Join(parts, ", "), func() bool {
		got, body = r.HTTP(p, "/readyz")
		for _, part := range parts {
			if !strings.Contains(body, part) {
				return false
			}
		}
		return got == code
	})
}

func TestInObserveVolumesAreAttachedWhateverRightIsMissing(t *testing.T) {
	r := newRigWithout(t, "rightless", bed.StageOptions{Config: "mode: Observe", ObserveRights: true, FencepostArgs: withHTTP, Rights: toAnother})
	v, n := r.volume("v"), r.node("n")
	r.attachment(v, n)
	p := r.start("fp")
	r.proxy = r.dial("fp")
	r.must(r.publish(v.Handle, n))
	r.must(r.unpublish(v.Handle, n))
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id)
	r.wantReady(p, 503, "[-] guard: ", "[-] rights: system:serviceaccount:"+r.Name+":"+account+" may not get, list, watch persistentvolumes, nor",
		"get, list, watch leases.coordination.k8s.io in namespace csi-fencepost", "deploy/rbac has for mode Observe", "[+] socket")

	r.given(deploy.Observe)
	r.wantReady(p, 200, "[+] guard", "[+] rights")
	r.must(r.publish(v.Handle, n))
	r.WaitFor(5*time.Second, "the publish is judged", func() bool {
		_, metrics := r.HTTP(p, "/metrics")
		return strings.Contains(metrics, `csi_fencepost_decisions_total{call="ControllerPublishVolume"`)
	})
}

func TestEnforceSaysAtOnceWhichRightsAreMissingAndForwardsNothing(t *testing.T) {
	r := newRigWithout(t, "rightless-enforce", bed.StageOptions{FencepostArgs: withHTTP, Rights: toAnother})
	p := r.Launch("fp")
	r.WaitLog(p, 20*time.Second, `"A right is missing" err="system:serviceaccount:`+r.Name+":"+account+` may not .*, nor patch persistentvolumes, nor`)
	r.wantReady(p, 503, "[-] guard: ", "[-] rights: ", "create, update, delete leases.coordination.k8s.io in namespace csi-fencepost", "[-] socket")
	r.Never(15*time.Second, "it serves what it cannot judge", func() bool { _, err := os.Stat(r.Socket("fp.sock")); return err == nil })

	r.given(deploy.Enforce)
	r.wantReady(p, 200, "[+] guard", "[+] rights", "[+] socket")
}

// A right to write shows in no watch.
func TestARightToWriteThatIsMissingIsSaidBeforeAnythingIsWritten(t *testing.T) {
	r := newRigWithout(t, "observe-rights", bed.StageOptions{ObserveRights: true, FencepostArgs: withHTTP})
	p := r.start("fp")
	r.wantReady(p, 503, "[+] guard", "[-] rights: ", "may not patch persistentvolumes, nor patch volumeattachments.storage.k8s.io, nor create, update, delete leases.coordination.k8s.io in namespace csi-fencepost: ")
	v, n := r.volume("v"), r.node("n")
	r.attachment(v, n)
	r.proxy = r.dial("fp")
	r.wantError(r.publish(v.Handle, n), codes.Unavailable, `cannot patch resource "persistentvolumes"`)
	r.wantCalls(v.Handle)
}

func TestAMissingNamespaceOfTheRecordsIsSaidAtTheStartAndInTheRefusal(t *testing.T) {
	const nowhere = "records-nowhere"
	everywhere := func(manifests string) string {
		return manifests + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: records-everywhere}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: records-everywhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: records-everywhere}
subjects: [{kind: ServiceAccount, name: ` + account + `, namespace: no-namespace}]
`
	}
	r := newRigWithout(t, "no-namespace", bed.StageOptions{Config: "fencing: {namespace: " + nowhere + ", maxUnhealthy: 100%, suspectAfter: 12s}",
		FencepostArgs: withHTTP, Rights: everywhere})
	p := r.start("fp")
	r.wantReady(p, 503, "[+] guard", "[-] rights: ", "namespace "+nowhere, "kubectl create namespace "+nowhere)

	v, target := r.volume("v"), r.node("target")
	r.proxy = r.dial("fp")
	old := r.deadHolder(v, "old", false)
	old.taint()
	r.attachment(v, target)
	r.settle()
	r.wantError(r.publish(v.Handle, target), codes.Unavailable, nowhere, "To unblock: create the namespace")

	_, err := r.Client.CoreV1().Namespaces().Create(r.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nowhere}}, metav1.CreateOptions{})
	r.must(err)
	r.wantReady(p, 200, "[+] rights")
}
