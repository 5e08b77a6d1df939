package doctor

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// notGuarded begins the worst finding.
const notGuarded = "NOT GUARDED although csi-fencepost is there: "

// A workload is what keeps a pod.
type workload struct{ kind, namespace, name string }

func (w workload) String() string { return w.kind + " " + w.namespace + "/" + w.name }

// manifest is the command that prints it.
func (w workload) manifest() string {
	return fmt.Sprintf("kubectl get %s -n %s %s -o yaml", printable.Word(strings.ToLower(w.kind)), printable.Word(w.namespace), printable.Word(w.name))
}

// check is the command that says what is to be changed in it.
func (w workload) check() string { return w.manifest() + " | csi-fencepost inject --check" }

// restart is the command that has its pods made anew; of a kind that kubectl restarts none of, the
// one that prints it.
func (w workload) restart() string {
	if !slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, w.kind) {
		return w.manifest()
	}
	return fmt.Sprintf("kubectl rollout restart %s -n %s %s", strings.ToLower(w.kind), printable.Word(w.namespace), printable.Word(w.name))
}

// A wired attacher is one external-attacher of one pod.
type wired struct {
	inject.Wire
	pod *corev1.Pod
	of  workload
}

// A process of ours, and what it would do.
type process struct {
	Process
	pod    *corev1.Pod
	guard  *corev1.Container
	config *config.Configuration
	driver string // empty: it works for all
	fencer *fencer.Fencer
}

// doctoring is one look.
type doctoring struct {
	*facts
	Report
	holdings  *holdings
	workloads map[string]workload // by the UID of what controls a pod
	wires     map[string][]wired  // by driver
	own       map[string]*process // the sidecar's, by driver
	apart     *process            // csi-fencepost failover
}

// lookAtDrivers finds the attachers, and says how each driver is guarded.
func (d *doctoring) lookAtDrivers(ctx context.Context) {
	attaches := map[string]bool{}
	for _, c := range d.drivers {
		attaches[c.Name] = c.Spec.AttachRequired == nil || *c.Spec.AttachRequired
	}
	d.findWires(ctx, attaches)
	d.lookAtApart(ctx)
	for name := range d.wires {
		if _, known := attaches[name]; !known && name != "" {
			attaches[name] = true
		}
	}
	var idle []string
	for _, name := range sorted(attaches) {
		switch {
		case attaches[name]:
			d.lookAtDriver(ctx, name)
		case len(d.wires[name]) == 0:
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		d.Notes = append(d.Notes, "Nothing to guard (attachRequired: false): "+strings.Join(idle, ", ")+".")
	}
	for _, w := range d.wires[""] {
		what := fmt.Sprintf("of which driver its external-attacher (container %s) is cannot be told", w.Attacher.Name)
		if w.Err != nil {
			what += ": " + w.Err.Error()
		}
		d.add(LookAt, w.of.String(), what, w.of.check())
	}
}

// read tells whether something more was had. Why it was not is said.
func (d *doctoring) read(what string, err error) bool {
	if other := d.forgive(what, err); other != nil && d.count(LookAt, "cluster") == 0 { // one is enough
		d.add(LookAt, "cluster", other.Error(), "")
	}
	return err == nil
}

// findWires sorts the attachers that count by driver.
func (d *doctoring) findWires(ctx context.Context, attaches map[string]bool) {
	for _, p := range d.pods {
		if !d.rbac.attaches(accountOf(p)) {
			continue
		}
		for _, w := range inject.Wires(&p.Spec, attaches) {
			if w.Elsewhere {
				d.Notes = append(d.Notes, fmt.Sprintf("Container %s of pod %s/%s attaches in another cluster (--kubeconfig): not judged here.", w.Attacher.Name, p.Namespace, p.Name))
				continue
			}
			name := w.Driver
			if name == "" {
				name = d.driverOf(ctx, p, attaches)
			}
			d.wires[name] = append(d.wires[name], wired{w, p, d.workloadOf(ctx, p)})
		}
	}
}

func accountOf(p *corev1.Pod) account {
	return account{p.Namespace, cmp.Or(p.Spec.ServiceAccountName, "default")}
}

// driverOf finds the driver of an attacher whose pod does not say it: by the binding of the
// sidecar's rights, or by the Lease of external-attacher's leader; empty: neither says it.
func (d *doctoring) driverOf(ctx context.Context, p *corev1.Pod, attaches map[string]bool) string {
	var bound []string
	for _, b := range d.rbac.cluster {
		if driver, ours := strings.CutPrefix(b.Name, explain.ObserveRole+"-"); ours && accountOf(p).among(b.Subjects) {
			bound = append(bound, driver)
		}
	}
	if len(bound) == 1 {
		return bound[0]
	}
	for _, driver := range sorted(attaches) {
		lease, err := d.client.CoordinationV1().Leases(p.Namespace).Get(ctx, explain.AttacherLease(driver), metav1.GetOptions{})
		if !d.read("get leases in namespace "+p.Namespace, err) || lease.Spec.HolderIdentity == nil {
			continue
		}
		if holder := *lease.Spec.HolderIdentity; holder == p.Name || p.GenerateName != "" && strings.HasPrefix(holder, p.GenerateName) {
			return driver
		}
	}
	return ""
}

// workloadOf is what keeps the pod, through its ReplicaSet.
func (d *doctoring) workloadOf(ctx context.Context, p *corev1.Pod) workload {
	ref := metav1.GetControllerOf(p)
	if ref == nil {
		return workload{"Pod", p.Namespace, p.Name}
	}
	w, known := d.workloads[string(ref.UID)]
	if known {
		return w
	}
	w = workload{ref.Kind, p.Namespace, ref.Name}
	if ref.Kind == "ReplicaSet" {
		set, err := d.client.AppsV1().ReplicaSets(p.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if d.read("get replicasets in namespace "+p.Namespace, err) && metav1.GetControllerOf(set) != nil {
			w.kind, w.name = metav1.GetControllerOf(set).Kind, metav1.GetControllerOf(set).Name
		}
	}
	d.workloads[string(ref.UID)] = w
	return w
}

// lookAtDriver says how one is guarded.
func (d *doctoring) lookAtDriver(ctx context.Context, name string) {
	v := Driver{Name: name, Guarded: "unknown", Workloads: []string{}, Volumes: d.holdings.total[name]}
	var pods []*corev1.Pod // that csi-fencepost guards
	var guard, beside *wired
	wires := d.wires[name]
	for i := range wires {
		w := &wires[i]
		switch {
		case w.Guard != nil && !slices.Contains(pods, w.pod):
			pods, guard = append(pods, w.pod), cmp.Or(guard, w)
		case w.Guard == nil && len(w.Beside) > 0:
			beside = cmp.Or(beside, w)
		}
	}
	if guard != nil {
		v.Guarded = "yes"
		own := d.lookAtProcess(ctx, name, name, guard.Guard, pods)
		d.own[name], v.Process = own, &own.Process
		d.lookAtSidecar(name, own, guard.of)
	} else if beside != nil {
		v.Process = &d.lookAtProcess(ctx, name, name, beside.Beside[0], []*corev1.Pod{beside.pod}).Process
	}
	for i, w := range wires {
		if !slices.Contains(v.Workloads, w.of.String()) {
			v.Workloads = append(v.Workloads, w.of.String())
		}
		if slices.IndexFunc(wires, func(o wired) bool { return o.of == w.of && o.Guard == nil }) != i {
			continue // guarded, or its workload was spoken of
		}
		where := fmt.Sprintf("external-attacher (container %s of %s)", w.Attacher.Name, w.of)
		switch {
		case w.Err != nil:
			d.add(LookAt, name, "where its "+where+" calls cannot be told: "+w.Err.Error(), w.of.manifest())
		case len(w.Beside) > 0:
			v.Guarded = "past"
			d.add(Broken, name, fmt.Sprintf("%sits %s calls %s, where no csi-fencepost listens (container %s does, elsewhere): no call is judged", notGuarded, where, w.Socket, w.Beside[0].Name), w.of.check())
		case guard != nil:
			v.Guarded = "partly"
			d.add(Broken, name, fmt.Sprintf("%sof its attachers, %s in pod %s calls the driver by itself, and both attach its volumes", notGuarded, where, w.pod.Name), w.of.check())
		default:
			v.Guarded = "no"
			d.lookAtUnguarded(name, w, where)
		}
	}
	if len(wires) == 0 && v.Volumes > 0 {
		d.add(LookAt, name, cli.Either(d.sees("pods"), "no external-attacher of it was found that may attach volumes in this cluster: it runs elsewhere (a managed control plane), or not at all",
			"whether it is guarded cannot be seen without the right to list pods"), "")
	}
	d.Drivers = append(d.Drivers, v)
}

// lookAtUnguarded says of an attacher without csi-fencepost how bad that is, and what would put
// it there.
func (d *doctoring) lookAtUnguarded(driver string, w wired, where string) {
	grade, what, next := LookAt, "not guarded: ", w.of.check()
	if slices.ContainsFunc(d.rbac.cluster, func(b *rbacv1.ClusterRoleBinding) bool { return b.Name == deploy.EnforcingPrefix+driver }) {
		// Failover, too, goes by this binding: it moves the pods of a dead node, and nobody guards.
		grade, what = Broken, "NOT GUARDED although it is set up for mode Enforce: "
	}
	what += "no csi-fencepost is beside its " + where
	switch said := w.pod.Annotations[injectAnnotation]; {
	case !d.bound[injects+driver]:
	case said == "disabled":
		what, next = what+", whose pod says "+injectAnnotation+": disabled", w.of.manifest()
	default:
		what += fmt.Sprintf(". %s puts it into pods as they are created: pod %s is older, has no annotation %s: enabled, or was let in with a warning", injects+driver, w.pod.Name, injectAnnotation)
		next = w.of.restart()
	}
	d.add(grade, driver, what, next)
}

// lookAtSidecar says what is only a sidecar's.
func (d *doctoring) lookAtSidecar(name string, p *process, of workload) {
	if p.config.Mode == config.Observe {
		d.add(LookAt, name, "mode Observe: it reports what it would refuse, and forwards everything", of.check()+" --mode Enforce")
	}
	switch apart := p.config.Fencing.Apart; {
	case apart && d.apart == nil && d.sees("pods"):
		d.add(Broken, name, "fencing.apart: true, and no csi-fencepost failover runs: nobody reads or cuts the power of its nodes, nor moves pods", "kubectl get deployment -n "+deploy.ApartNamespace)
	case apart:
		p.Moves = "apart"
	case p.config.Mode == config.Enforce && p.Moves == nobody:
		d.add(LookAt, name, "nobody moves the pods of a dead node (failover is off): once it is proven off, a person taints it", of.check()+" --mode Enforce --failover")
	}
}

// nobody moves pods.
const nobody = "nobody"

// lookAtApart looks for csi-fencepost failover.
func (d *doctoring) lookAtApart(ctx context.Context) {
	var pods []*corev1.Pod
	var c *corev1.Container
	for _, p := range d.pods {
		if !isApart(p) {
			continue
		}
		pods = append(pods, p)
		for i := range p.Spec.Containers {
			if one := &p.Spec.Containers[i]; slices.Contains(slices.Concat(one.Command, one.Args), "failover") {
				c = one
			}
		}
	}
	if c == nil {
		return
	}
	d.apart = d.lookAtProcess(ctx, "", failoverName, c, pods)
	d.Failover = &d.apart.Process
	if err := d.apart.config.CheckApart(); err != nil && d.apart.Config != "" {
		d.add(Broken, failoverName, "its configuration is not one for it: "+cli.OneLineOf(err), "")
	}
}

// failoverName is what failover as a Deployment of its own is called here.
const failoverName = "csi-fencepost failover"

// lookAtProcess says what is the same of every csi-fencepost. pods has one at least.
func (d *doctoring) lookAtProcess(ctx context.Context, driver, about string, c *corev1.Container, pods []*corev1.Pod) *process {
	p := &process{pod: pods[0], guard: c, driver: driver}
	var wrong error
	if p.config, p.Config, wrong = explain.ConfigOf(ctx, d.client, pods[0], c); wrong != nil {
		d.add(LookAt, about, "its configuration could not be read, the defaults are taken for it: "+wrong.Error(), "")
	}
	sources, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.config.Evidence) // switches never fail
	p.Process = Process{Pods: len(pods), Image: c.Image, Version: tagOf(c.Image), Mode: p.config.Mode, Config: p.Config, Agents: []string{}, Evidence: []string{},
		Moves: cli.Either(p.config.Failover.Enabled, "sidecar", nobody)}
	for source, on := range sources {
		if on == true {
			p.Evidence = append(p.Evidence, source)
		}
	}
	slices.Sort(p.Evidence)
	images := map[string]bool{}
	for _, pod := range pods {
		for _, one := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			if one.Name == c.Name {
				images[one.Image] = true
			}
		}
	}
	if len(images) > 1 {
		d.add(LookAt, about, "its pods run csi-fencepost of several versions: "+strings.Join(sorted(images), ", "), "")
	}
	if own, err := version.ParseGeneric(cli.BuildVersion()); err == nil {
		if theirs, err := version.ParseGeneric(p.Version); err == nil && theirs.LessThan(own) {
			d.add(LookAt, about, fmt.Sprintf("csi-fencepost there is %s, older than this one (%s)", p.Version, cli.BuildVersion()), "")
		}
	}
	if down, why := notReady(pods, c.Name); len(down) > 0 {
		d.add(Broken, about, fmt.Sprintf("csi-fencepost is not ready in %d of %d pods: %s", len(down), len(pods), why),
			fmt.Sprintf("kubectl logs -n %s %s -c %s", printable.Word(down[0].Namespace), printable.Word(down[0].Name), printable.Word(c.Name)))
	}
	o := fencer.Options{Levels: sidecar.Declared(p.config), Driver: driver, Actor: "csi-fencepost doctor", ReadOnly: true,
		Records: record.NewStore(d.client.CoordinationV1(), p.config.Fencing.Namespace), Nodes: d.client.CoreV1(), Leases: d.client.CoordinationV1()}
	reads := false
	for _, level := range o.Levels {
		for _, b := range level {
			p.Agents, reads = append(p.Agents, b.Agent.Name()), reads || b.Agent.Proves() == fence.PowerReading
		}
	}
	d.lookAtRights(p, about, reads)
	if p.fencer, wrong = fencer.New(o); wrong != nil {
		d.add(Broken, about, "it cannot start with its fence agents: "+wrong.Error(), "")
		o.Levels = nil
		p.fencer, _ = fencer.New(o) // only agents make it fail
	}
	return p
}

// notReady are the pods whose container is not, and why the first is not.
func notReady(pods []*corev1.Pod, container string) (down []*corev1.Pod, why string) {
	for _, p := range pods {
		all := slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses)
		at := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == container })
		said := "it has not started"
		switch {
		case at >= 0 && all[at].Ready:
			continue
		case at >= 0 && all[at].State.Waiting != nil:
			said = all[at].State.Waiting.Reason
		case at >= 0 && all[at].State.Running != nil:
			said = "/readyz does not say that it is ready"
		}
		if down = append(down, p); why == "" {
			why = said
		}
	}
	return down, why
}

// lookAtRights holds what the account may do against what its mode needs, and against the
// policies that are installed (deploy/admission/writers.yaml). reads: an agent of it reads the power.
func (d *doctoring) lookAtRights(p *process, about string, reads bool) {
	if !d.rbac.known {
		return
	}
	renders, next := []func(deploy.Names) ([]byte, error){deploy.Apart}, "kubectl apply -f deploy/failover/rbac.yaml"
	if p.driver != "" {
		renders[0], next = sidecar.RightsOf(p.config), "kubectl get clusterrolebindings | grep "+printable.Word(p.driver)
	}
	if value, given := explain.Argument(p.guard, "http-authorization"); given && value != "false" {
		renders = append(renders, deploy.Authorization)
	}
	var needed []authorizationv1.ResourceAttributes
	for _, render := range renders {
		rights, err := deploy.Rights(render)
		if err != nil {
			d.add(LookAt, about, "its rights cannot be judged: "+err.Error(), "")
			return
		}
		needed = append(needed, rights...)
	}
	for i := range needed {
		if needed[i].Namespace == config.Default().Fencing.Namespace {
			needed[i].Namespace = p.config.Fencing.Namespace
		}
	}
	writes := func(policy, resource string, does bool) {
		if does && p.config.Mode == config.Enforce && slices.Contains(d.Policies, Policy{policyPrefix + policy, true}) {
			needed = append(needed, authorizationv1.ResourceAttributes{Verb: "write", Group: "csi-fencepost.io", Resource: resource, Name: p.driver})
		}
	}
	writes("ledger", "ledgers", p.driver != "")
	writes("records", "records", true)
	writes("records", "fences", len(p.Agents) > 0 && (reads || p.driver != ""))
	writes("taint", "taints", p.config.Failover.Enabled)
	lacks := d.rbac.lacks(accountOf(p.pod), needed)
	if p.Lacks = append([]string{}, sidecar.RightsInWords(lacks)...); len(lacks) > 0 {
		d.add(Broken, about, fmt.Sprintf("its account %s may not %s, which mode %s needs (deploy/rbac, deploy/admission/writers.yaml)", accountOf(p.pod), strings.Join(p.Lacks, ", nor "), p.Mode), next)
	}
	allLedgers := authorizationv1.ResourceAttributes{Verb: "write", Group: "csi-fencepost.io", Resource: "ledgers"}
	if p.driver != "" && slices.Contains(d.Policies, Policy{policyPrefix + "ledger", true}) && !d.sharedLedgers() && len(d.rbac.lacks(accountOf(p.pod), []authorizationv1.ResourceAttributes{allLedgers})) == 0 {
		d.add(LookAt, about, fmt.Sprintf("its account %s may write the ledgers of all drivers, and so take their volumes: its own driver's are enough (deploy/admission/writers.yaml)", accountOf(p.pod)), "kubectl get clusterrolebindings -o wide | grep "+printable.Word(accountOf(p.pod).String()))
	}
	token := authorizationv1.ResourceAttributes{Namespace: p.config.Fencing.Namespace, Verb: "create", Resource: "serviceaccounts/token", Name: deploy.KubeletAccount}
	asks := p.driver != "" && p.config.Mode == config.Enforce && p.config.Evidence.Kubelet
	if asks && len(d.rbac.lacks(accountOf(p.pod), []authorizationv1.ResourceAttributes{token})) > 0 {
		d.add(LookAt, about, fmt.Sprintf("kubelets are not asked (evidence.kubelet): its account may not have tokens of %s/%s made (deploy/rbac/kubelet.yaml)", token.Namespace, token.Name), "kubectl get serviceaccounts,rolebindings -n "+printable.Word(token.Namespace))
	}
}

// policyPrefix begins the names of the policies of deploy/admission, and policies end them.
const policyPrefix = "csi-fencepost-"

var policies = []string{"ledger", "ledger-kept", "nodes", "records", "taint"}

// injects, and a driver's name, is the policy that puts csi-fencepost into its pods, and the one
// that looks at what came of it (deploy/injection); injectAnnotation says which pods.
const (
	injects          = policyPrefix + "inject-"
	injectAnnotation = "csi-fencepost.io/inject"
)

// lookAtPolicies says which are installed.
func (d *doctoring) lookAtPolicies() {
	var absent []string
	for _, name := range policies {
		there := slices.ContainsFunc(d.facts.policies, func(p *admissionv1.ValidatingAdmissionPolicy) bool {
			return p.Name == policyPrefix+name && d.bound[p.Name]
		})
		if d.Policies = append(d.Policies, Policy{policyPrefix + name, there}); !there {
			absent = append(absent, name)
		}
	}
	for _, p := range d.facts.policies {
		if strings.HasPrefix(p.Name, injects) {
			d.Policies = append(d.Policies, Policy{p.Name, d.bound[p.Name]})
			if !d.bound[p.Name] && d.sees("validatingadmissionpolicybindings") {
				d.add(LookAt, "policies", p.Name+" has no binding: nobody looks whether csi-fencepost was put into the driver's pods", "kubectl get mutatingadmissionpolicybindings,validatingadmissionpolicybindings "+printable.Word(p.Name))
			}
		}
	}
	if d.sharedLedgers() {
		d.add(LookAt, "policies", "csi-fencepost-ledger is of an earlier build: it asks for the right to write the ledgers of all drivers, and refuses an account that may write those of its own driver alone", "kubectl apply -f deploy/admission/ledger.yaml")
	}
	d.lookAtForgetters()
	if len(absent) > 0 && d.sees("validatingadmissionpolicies") && d.sees("validatingadmissionpolicybindings") {
		d.add(LookAt, "policies", "not installed: "+strings.Join(absent, ", ")+". Who may write PersistentVolumes, the status of Nodes, records or taints can say there that a node is off (SECURITY.md)", "kubectl apply -f deploy/admission")
	}
}

// lookAtForgetters names the bindings by which an account may have the ledgers of all drivers
// forgotten (deploy/admission/writers.yaml), where the policy knows a lesser right. A RoleBinding gives
// nothing: the policy asks for a right in the whole cluster.
func (d *doctoring) lookAtForgetters() {
	if !slices.Contains(d.Policies, Policy{policyPrefix + "ledger", true}) || d.sharedLedgers() {
		return
	}
	const forgets = policyPrefix + "provisioner"
	for _, b := range d.rbac.cluster {
		if b.RoleRef.Kind == "ClusterRole" && b.RoleRef.Name == forgets && len(b.Subjects) > 0 {
			d.add(LookAt, "policies", fmt.Sprintf("by ClusterRoleBinding %s %s may have the ledgers of all drivers forgotten: a driver's external-provisioner needs its own driver's alone (ClusterRole %s-of-DRIVER, deploy/admission/writers.yaml), and all are for programs that make PersistentVolumes anew while they are in use", b.Name, few(subjects(b.Subjects)), forgets),
				"kubectl describe clusterrolebinding "+printable.Word(b.Name))
		}
	}
}

// subjects of a binding, as people write them.
func subjects(all []rbacv1.Subject) (names []string) {
	for _, s := range all {
		name := strings.ToLower(s.Kind) + " " + s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			name = account{s.Namespace, s.Name}.String()
		}
		names = append(names, name)
	}
	return names
}

// sharedLedgers tells whether the policy of ledgers knows no right that is named as a driver.
func (d *doctoring) sharedLedgers() bool {
	named := func(v admissionv1.Validation) bool { return strings.Contains(v.Expression, ".name(") }
	return slices.ContainsFunc(d.facts.policies, func(p *admissionv1.ValidatingAdmissionPolicy) bool {
		return p.Name == policyPrefix+"ledger" && len(p.Spec.Validations) > 0 && !slices.ContainsFunc(p.Spec.Validations, named)
	})
}

// tagOf an image; empty: it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(path.Base(image), ":")
	return tag
}
