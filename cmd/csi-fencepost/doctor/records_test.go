package doctor

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// record adds a node's record; unvouched: as an account writes it that may not claim so.
func (w *world) record(r *record.Record, unvouched bool) *coordinationv1.Lease {
	w.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: record.LeaseName(r.Node), Namespace: "csi-fencepost"}}
	if err := r.ToLease(lease); err != nil {
		w.t.Fatal(err)
	}
	if unvouched {
		delete(lease.Annotations, record.FencedAnnotation)
		delete(lease.Annotations, record.ClaimedAnnotation)
	}
	w.add(lease)
	return lease
}

func fenced(n *corev1.Node) *record.Record {
	r := record.New(n.Name)
	r.PutFence(record.Fence{ID: "f", Kind: fence.PowerReading, Actor: "a", Phase: record.Fenced, Agents: []string{"bmc"}, StartedAt: "2026-01-01T00:00:00Z",
		Machine: record.FencedMachine{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, LeaseRV: "1"}}, "Fence")
	return r
}

func TestAFenceForWhichNobodyVouchesIsFound(t *testing.T) {
	for _, unvouched := range []bool{true, false} {
		w, _ := guarded(t, bmc, deploy.Failover)
		w.record(fenced(w.node("n1", block)), unvouched)
		d := w.look("n1")
		found := slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.About == "records" })
		if found != unvouched {
			t.Errorf("unvouched: %v, found: %v\n%s", unvouched, found, d.text())
		}
		if d.Node.Record == "" || !d.Node.Ready || !d.Node.Exists {
			t.Errorf("of the node it says %+v", d.Node)
		}
	}
}

func TestARecordThatCannotBeReadIsBroken(t *testing.T) {
	w, _ := guarded(t, bmc, deploy.Failover)
	w.record(fenced(w.node("n1", block)), false).Annotations[record.Annotation] = "{"
	w.look("").says(t, Broken, "records", "n1")
}

// An identity that is bound lets agents find the machine by it, and one that only stands there
// does not.
func TestABoundIdentityLetsAgentsFenceByIt(t *testing.T) {
	const cloud = "failover: {enabled: true}\nfencing: {fenceAfter: 60s, levels: [{agents: [{name: cloud, exec: {agent: fence_x, parameters: {uuid: \"$(SYSTEM_UUID)\"}}}]}]}\n"
	for want, unvouched := range map[Outcome]bool{Fenced: false, Waits: true} {
		w, _ := guarded(t, cloud, deploy.Failover)
		n := w.node("n1", block)
		r := record.New("n1")
		r.Bind(string(n.UID), record.IdentifiersOf(fence.MachineOf(n), ""), func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} })
		w.record(r, unvouched)
		if f := w.look("").fateOn(t, block, "n1"); f.Outcome != want {
			t.Errorf("unvouched %v: %s, %s", unvouched, f.Outcome, f.What)
		}
	}
}

// What a ledger says counts where it is this volume's and this cluster's, and the entry holds.
func TestOnlyALedgerOfThisVolumeCounts(t *testing.T) {
	for name, change := range map[string]func(*ledger.Ledger){
		"counts": nil, "another cluster's": func(l *ledger.Ledger) { l.Cluster = "other" }, "a backup's": func(l *ledger.Ledger) { l.PVUID = "other" },
		"taken over": func(l *ledger.Ledger) { l.Holders[0].State = fence.TakenOver },
	} {
		w, _ := guarded(t, bmc, deploy.Failover)
		w.node("n1", block)
		pv, _ := w.volume("pv-1", block, "n1", true)
		if change != nil {
			l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
			if err != nil {
				t.Fatal(err)
			}
			change(l)
			pv.Annotations[ledger.Annotation] = l.String()
		}
		if f := w.look("").fateOn(t, block, "n1"); (f.Volumes == 1) != (change == nil) {
			t.Errorf("%s: %d volumes", name, f.Volumes)
		}
	}
}

// A driver of which one attacher is not guarded has the fate of one that nobody guards.
func TestADriverThatIsPartlyGuardedIsNot(t *testing.T) {
	w, p := guarded(t, bmc, deploy.Failover)
	other := p.DeepCopy()
	other.Name, other.OwnerReferences, other.Spec.Containers = "old-0", owned("StatefulSet", "old"), other.Spec.Containers[:2]
	other.Spec.Containers[1].Args[0] = "--csi-address=/csi/csi.sock"
	w.add(other)
	w.node("n1", block)
	if f := w.look("").fateOn(t, block, "n1"); f.Outcome != NotGuarded {
		t.Errorf("%s: %s", f.Outcome, f.What)
	}
}

// Without the Roles all pods count: what is guarded is said to be, and no right is judged.
func TestWithoutTheRolesAPodIsTakenForWhatItLooksLike(t *testing.T) {
	w, _ := guarded(t, bmc, deploy.Failover)
	for _, right := range []string{"list clusterroles", "list clusterrolebindings"} {
		if d := w.look("", right); d.Drivers[0].Guarded != "yes" || d.Drivers[0].Lacks != nil {
			t.Errorf("without %s: %+v", right, d.Drivers[0])
		}
	}
}

// A policy without a binding does nothing.
func TestAPolicyThatIsNotBoundIsNotInstalled(t *testing.T) {
	w, _ := guarded(t, bmc, deploy.Failover)
	w.add(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-ledger"}})
	w.look("").says(t, LookAt, "policies", "not installed: ledger,")
}

func TestRolesAreReadAsTheAPIServerDoes(t *testing.T) {
	rule := func(names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"g"}, Resources: []string{"things"}, Verbs: []string{"get"}, ResourceNames: names}
	}
	right := authorizationv1.ResourceAttributes{Verb: "get", Group: "g", Resource: "things", Name: "one", Namespace: "ns"}
	of := account{"ns", "sa"}
	sa := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns", Name: "sa"}
	for name, c := range map[string]struct {
		rule    rbacv1.PolicyRule
		subject rbacv1.Subject
		in      string // of a RoleBinding; empty: a ClusterRoleBinding
		want    bool
	}{
		"by name":                  {rule("one"), sa, "", true},
		"of all names":             {rule(), sa, "", true},
		"of another name":          {rule("two"), sa, "", false},
		"another's verb":           {rbacv1.PolicyRule{APIGroups: []string{"g"}, Resources: []string{"things"}, Verbs: []string{"list"}}, sa, "", false},
		"another's group":          {rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"things"}, Verbs: []string{"get"}}, sa, "", false},
		"everything":               {rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, sa, "", true},
		"an account elsewhere":     {rule(), rbacv1.Subject{Kind: "ServiceAccount", Namespace: "other", Name: "sa"}, "", false},
		"another account":          {rule(), rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns", Name: "other"}, "", false},
		"as a user":                {rule(), rbacv1.Subject{Kind: "User", Name: "system:serviceaccount:ns:sa"}, "", true},
		"by the namespace's group": {rule(), rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:ns"}, "", true},
		"by another's group":       {rule(), rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:other"}, "", false},
		"bound there":              {rule(), sa, "ns", true},
		"bound elsewhere":          {rule(), sa, "other", false},
	} {
		r := rbac{unseen: func(string) bool { return false }, clusterRoles: map[string][]rbacv1.PolicyRule{"r": {c.rule}}, roles: map[string][]rbacv1.PolicyRule{c.in + "/r": {c.rule}}}
		for _, kind := range []string{"ClusterRole", "Role"} {
			ref := rbacv1.RoleRef{Kind: kind, Name: "r"}
			r.cluster, r.namespaced = nil, nil
			if c.in == "" {
				r.cluster = []*rbacv1.ClusterRoleBinding{{RoleRef: ref, Subjects: []rbacv1.Subject{c.subject}}}
			} else {
				r.namespaced = []*rbacv1.RoleBinding{{ObjectMeta: metav1.ObjectMeta{Namespace: c.in}, RoleRef: ref, Subjects: []rbacv1.Subject{c.subject}}}
			}
			if got := len(r.lacks(of, []authorizationv1.ResourceAttributes{right})) == 0; got != c.want {
				t.Errorf("%s (%s): %v, want %v", name, kind, got, c.want)
			}
		}
	}
}

// Whoever gets past the guard is named before whatever else is broken.
func TestWhoGetsPastTheGuardIsNamedFirst(t *testing.T) {
	w, _ := guarded(t, "", deploy.Observe) // block lacks rights
	w.driver(disk, image+ownVersion, "/csi/csi.sock", deploy.Observe)
	d := w.look("")
	if first := d.Findings[0]; first.About != disk || d.count(Broken, block) == 0 {
		t.Errorf("the first is about %s:\n%s", first.About, d.text())
	}
}

// A node that only a ledger names is shown when it is asked for, and what nobody knows is not found.
func TestANodeThatIsGoneIsShown(t *testing.T) {
	w, _ := guarded(t, bmc, deploy.Failover)
	w.volume("pv-1", block, "n1", true)
	d := w.look("n1")
	if f := d.fateOn(t, block, "n1"); f.Outcome != Waits || !strings.Contains(f.What, "its Node object is gone") || !slices.Equal(f.PVs, []string{"pv-1"}) || d.Node.Exists {
		t.Errorf("%+v, %+v", f, d.Node)
	}
	if _, err := look(t.Context(), &cluster.Cluster{Client: w.client(), Config: config.Default()}, "n2"); err == nil || !strings.Contains(err.Error(), "nothing is known of a node n2") {
		t.Errorf("of a node that nobody knows: %v", err)
	}
}
