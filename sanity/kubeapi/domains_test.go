package kubeapi

import (
	"os"
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
	fences := func(by kubernetes.Interface, in, id string) error {
		_, err := record.NewStore(by.CoordinationV1(), in).Update(ctx, "n1", func(r *record.Record) (bool, error) {
			r.PutFence(record.Fence{ID: id, Kind: fence.PowerReading, Phase: record.Fenced, Actor: "x", Agents: []string{"bmc"},
				Machine: record.FencedMachine{NodeUID: "u", BootID: "b"}}, "Fenced")
			return true, nil
		})
		return err
	}
	for domain, by := range domains {
		for in := range domains {
			err := fences(by, in, "f-"+domain)
			if domain == in && err != nil || domain != in && !apierrors.IsForbidden(err) {
				t.Errorf("an account of %s writes a record in %s: %v", domain, in, err)
			}
			err = by.CoordinationV1().Leases(in).Delete(ctx, record.LeaseName("n1"), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if domain == in && err != nil || domain != in && !apierrors.IsForbidden(err) {
				t.Errorf("an account of %s deletes a record in %s: %v", domain, in, err)
			}
		}
	}

	// The policy, applied once for each domain, holds in both against a role that allows Leases
	// everywhere. Given to a driver of one domain, that opens the other to it: its right to write
	// records is for each.
	for domain := range domains {
		names := strings.NewReplacer("${NAMESPACE}", "of-"+domain, "${SERVICE_ACCOUNT}", "driver", "${DRIVER}", "of-"+domain+".example.com", "${OPERATORS}", operatorsGroup)
		writers, err := os.ReadFile(policyFolder + "writers.yaml")
		r.must(err)
		r.Apply([]byte(names.Replace(string(writers))))
		records, err := os.ReadFile(policyFolder + "records.yaml")
		r.must(err)
		r.Apply([]byte(strings.NewReplacer("kubernetes.io/metadata.name: csi-fencepost\n", "kubernetes.io/metadata.name: "+domain+"\n", "csi-fencepost-records", domain+"-records").Replace(string(records))))
	}
	_, err := r.Client.CoreV1().ServiceAccounts("of-csi-fencepost").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}, metav1.CreateOptions{})
	r.must(err)
	path, err := r.Bed.Cluster.ServiceAccountKubeconfig(ctx, "of-csi-fencepost", "stranger")
	r.must(err)
	stranger := clientOf(t, path)
	leasesEverywhere := func(to string) {
		r.Apply([]byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: leases-everywhere}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: leases-everywhere-` + to + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: leases-everywhere}
subjects: [{kind: ServiceAccount, name: ` + to + `, namespace: of-csi-fencepost}]
`))
	}
	leasesEverywhere("stranger")
	for domain, by := range domains {
		eventually(t, "the policy of "+domain+" is in force", func() bool {
			err := fences(stranger, domain, "forged")
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "records.csi-fencepost.io")
		})
		r.must(fences(by, domain, "anew-"+domain))
	}
	one, other := domains["csi-fencepost"], "csi-fencepost-other"
	if err := fences(one, other, "forged"); !apierrors.IsForbidden(err) {
		t.Errorf("with the policies an account of csi-fencepost writes a record in %s: %v", other, err)
	}
	leasesEverywhere("driver")
	eventually(t, "what SECURITY.md warns of", func() bool { return fences(one, other, "as-warned-of") == nil })
}
