package kubeapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// Two trust domains in one cluster: the drivers of each keep their records in a namespace of its
// own (fencing.namespace), and go by nothing else. Whoever has all that a sidecar may do in the one
// neither writes nor removes anything that the other goes by.
func TestNobodyOfOneTrustDomainClaimsAnythingInAnother(t *testing.T) {
	staged.take(t)
	r := &rig{t: t, Stage: ownServer(t).Stage(t, "domains", bed.StageOptions{Nodes: -1, Manual: true})}
	ctx, domains := t.Context(), map[string]kubernetes.Interface{}
	for _, domain := range []string{"csi-fencepost", "csi-fencepost-other"} {
		home := "of-" + domain
		_, err := r.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
		r.must(err)
		_, err = r.Client.CoreV1().ServiceAccounts(home).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}, metav1.CreateOptions{})
		r.must(err)
		manifests, err := deploy.Failover(deploy.Names{Namespace: home, ServiceAccount: "driver", Driver: home + ".example.com"})
		r.must(err)
		r.Apply([]byte(strings.NewReplacer("namespace: csi-fencepost\n", "namespace: "+domain+"\n", "  name: csi-fencepost\n", "  name: "+domain+"\n").Replace(string(manifests))))
		path, err := r.Bed.Cluster.ServiceAccountKubeconfig(ctx, home, "driver")
		r.must(err)
		domains[domain] = clientOf(t, path)
	}
	for domain, by := range domains {
		for in := range domains {
			_, err := record.NewStore(by.CoordinationV1(), in).Update(ctx, "n1", func(r *record.Record) (bool, error) {
				r.PutFence(record.Fence{ID: "f-" + domain, Kind: fence.PowerReading, Phase: record.Fenced, Actor: "x", Agents: []string{"bmc"},
					Machine: record.FencedMachine{NodeUID: "u", BootID: "b"}}, "Fenced")
				return true, nil
			})
			if domain == in && err != nil || domain != in && !apierrors.IsForbidden(err) {
				t.Errorf("an account of %s writes a record in %s: %v", domain, in, err)
			}
			err = by.CoordinationV1().Leases(in).Delete(ctx, record.LeaseName("n1"), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if domain == in && err != nil || domain != in && !apierrors.IsForbidden(err) {
				t.Errorf("an account of %s deletes a record in %s: %v", domain, in, err)
			}
		}
	}
}
