package kubeapi

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	process "github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const apartUser = "system:serviceaccount:" + deploy.ApartNamespace + ":" + deploy.ApartAccount

// Under the policies its account vouches that machines are off, and puts the taint on. It writes
// no ledger, and nothing that is a person's word.
func TestTheAccountOfFailoverMayWhatItNeedsAndNothingOfAGuardOrAPerson(t *testing.T) {
	single.take(t)
	b, ctx, node := policed.use(t), t.Context(), "apart-node"
	manifests, err := deploy.Apart(deploy.Names{Namespace: "storage", ServiceAccount: "x", Driver: "x"})
	must(t, err)
	must(t, applyStream(ctx, string(manifests)))
	api, err := impersonating(b, rest.ImpersonationConfig{UserName: apartUser})
	must(t, err)
	apart, err := kubernetes.NewForConfig(api)
	must(t, err)
	_, err = policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	must(t, err)
	_, err = policed.admin.CoreV1().PersistentVolumes().Create(ctx, policedVolume("apart-pv"), metav1.CreateOptions{})
	must(t, err)

	c := config.Default()
	c.Failover.Enabled, c.Fencing.Levels = true, []config.Level{{Agents: []config.Agent{{Name: "bmc", IPMI: &config.IPMI{}}}}}
	check, err := process.CheckApartRights(ctx, api, c, false)
	must(t, err)
	for end := time.Now().Add(20 * time.Second); check() != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("rights: %v", check())
		}
	}

	put := func(by kubernetes.Interface, f record.Fence) error {
		_, err := record.NewStore(by.CoordinationV1(), namespace).Update(ctx, node, func(r *record.Record) (bool, error) { r.PutFence(f, "Fenced"); return true, nil })
		return err
	}
	off := record.Fence{ID: "f1", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "csi-fencepost failover@h", Agents: []string{"bmc"}, Machine: record.FencedMachine{NodeUID: "u", BootID: "b"}}
	allowed(t, "it vouches for a fence", put(apart, off))
	allowed(t, "it puts our taint on", taintAs(ctx, apart, node, evidence.OurTaintValue))
	allowed(t, "it takes our taint off", taintAs(ctx, apart, node, ""))
	barred := func(what, right string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), right) || !strings.Contains(err.Error(), apartUser) {
			t.Errorf("%s: %v", what, err)
		}
	}
	barred("it writes a ledger", "ledgers.csi-fencepost.io", annotateAs(ctx, apart, "apart-pv", "x"))
	barred("it puts a person's taint on", "claims.csi-fencepost.io", taintAs(ctx, apart, node, "nodeshutdown"))

	// A person's words are not its to say. It may take one away, as whoever writes records, and not take it up again.
	person := map[string]func(by kubernetes.Interface) error{
		"confirms": func(by kubernetes.Interface) error {
			_, err := record.NewStore(by.CoordinationV1(), namespace).Confirm(ctx, node, record.Confirmation{By: "ann", Reason: "unplugged", Machines: []record.Machine{{NodeUID: "u", BootID: "b"}}})
			return err
		},
		"releases": func(by kubernetes.Interface) error {
			_, err := record.NewStore(by.CoordinationV1(), namespace).ReleaseVolume(ctx, node, record.Release{By: "ann", Reason: "unmounted", Volume: "v", Driver: "d", NodeID: "i", NodeUID: "u", BootID: "b", Token: "t", Life: record.Silent})
			return err
		},
		"overrides an agent": func(by kubernetes.Interface) error {
			_, err := record.NewStore(by.CoordinationV1(), namespace).OverrideAgent(ctx, node, record.Override{By: "ann", Reason: "broken", Agent: "bmc", Machine: record.Machine{NodeUID: "u", BootID: "b"}})
			return err
		},
	}
	for what, says := range person {
		barred("it "+what+" as a person does", "claims.csi-fencepost.io", says(apart))
	}
	for what, says := range person {
		allowed(t, "an operator "+what, says(operator))
	}
	leases := apart.CoordinationV1().Leases(namespace)
	said, err := leases.Get(ctx, record.LeaseName(node), metav1.GetOptions{})
	must(t, err)
	if got := len(strings.Split(said.Annotations[record.ClaimedAnnotation], ",")); got != len(person) {
		t.Errorf("%d words of a person's are vouched for, want %d", got, len(person))
	}
	_, err = record.NewStore(apart.CoordinationV1(), namespace).Withdraw(ctx, node, "x", "x")
	allowed(t, "it takes a person's word away", err)
	now, err := leases.Get(ctx, record.LeaseName(node), metav1.GetOptions{})
	must(t, err)
	now.Annotations = said.Annotations
	_, err = leases.Update(ctx, now, metav1.UpdateOptions{})
	barred("it takes the word up again", "claims.csi-fencepost.io", err)
	off.ID = "f2"
	if err := put(guardOnly, off); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "fences.csi-fencepost.io") {
		t.Errorf("a driver's account vouches for a fence: %v", err)
	}
}

// RBAC alone: the driver's account has the rights of a guard, and failover those of its own.
func TestADriverWhoseFailoverIsApartNeitherTaintsNorDeletesPods(t *testing.T) {
	staged.take(t)
	// Failover looks after all nodes of a cluster, those of other tests too.
	r := &rig{t: t, Stage: ownServer(t).Stage(t, "apart", bed.StageOptions{Nodes: -1, Manual: true})}
	node, pod := r.node("n"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err := r.Client.CoreV1().Pods(r.Name).Create(t.Context(), pod, metav1.CreateOptions{})
	r.must(err)
	guard := clientOf(t, r.ServiceAccountKubeconfig())
	may := func(by kubernetes.Interface, want bool) {
		t.Helper()
		_, taint := by.CoreV1().Nodes().Patch(t.Context(), node.name, types.MergePatchType, []byte(`{"spec":{"taints":[]}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		end := by.CoreV1().Pods(r.Name).Delete(t.Context(), "p", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		for what, err := range map[string]error{"patch nodes": taint, "delete pods": end} {
			if (err == nil) != want || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v, want allowed: %v", what, err, want)
			}
		}
	}
	may(guard, false)

	p := r.LaunchApart("failover: {enabled: true}\nfencing: {maxUnhealthy: 100%}", "--http-endpoint=127.0.0.1:0", "--leader-election", "--leader-election-namespace="+deploy.ApartNamespace)
	r.wantReady(p, 200, "[+] drivers", "[+] rights")
	r.WaitLog(p, 20*time.Second, `"Failover for these drivers" drivers=\[.*"`+r.Driver+`".*\]`)
	r.WaitLog(p, 20*time.Second, `"Leader of the background work" .* me=true`)
	if code, page := r.HTTP(p, "/statusz.json"); code != 200 || !strings.Contains(page, `"leader": "Leading"`) && !strings.Contains(page, `"leader":"Leading"`) || !strings.Contains(page, r.Driver) {
		t.Errorf("the status page: %d %s", code, page)
	}
	path, err := r.Bed.Cluster.ServiceAccountKubeconfig(t.Context(), deploy.ApartNamespace, deploy.ApartAccount)
	r.must(err)
	apart := clientOf(t, path)
	may(apart, true)
	for what, err := range map[string]error{
		"patch persistentvolumes": func() error {
			_, err := apart.CoreV1().PersistentVolumes().Patch(t.Context(), "none", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}(),
		"patch volumeattachments": func() error {
			_, err := apart.StorageV1().VolumeAttachments().Patch(t.Context(), "none", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}(),
		"get secrets": func() error {
			_, err := apart.CoreV1().Secrets(r.Name).Get(t.Context(), "none", metav1.GetOptions{})
			return err
		}(),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("failover may %s: %v", what, err)
		}
	}

	// The next leader does not wait for the lead of one that ends in good order.
	p.Stop(10 * time.Second)
	lease, err := r.Client.CoordinationV1().Leases(deploy.ApartNamespace).Get(t.Context(), cluster.FailoverLock, metav1.GetOptions{})
	r.must(err)
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		t.Errorf("after its end %s still leads", holder)
	}
	for _, file := range []string{"config.yaml", "deployment.yaml", "networkpolicy.yaml"} {
		text, err := deploy.Files.ReadFile("failover/" + file)
		r.must(err)
		r.Apply([]byte(strings.ReplaceAll(string(text), "${PROMETHEUS}", "monitoring")))
	}
}

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	return kubernetes.NewForConfigOrDie(c)
}
