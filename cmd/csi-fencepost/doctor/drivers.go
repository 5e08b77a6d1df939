package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func (d *doctoring) lookAtDrivers(ctx context.Context) error {
	attaches := map[string]bool{}
	for _, c := range d.drivers {
		attaches[c.Name] = c.Spec.AttachRequired == nil || *c.Spec.AttachRequired
	}
	if err := d.findWires(ctx, attaches); err != nil {
		return err
	}
	if err := d.lookAtApart(ctx); err != nil {
		return err
	}
	for name := range d.wires {
		if _, known := attaches[name]; !known && name != "" {
			attaches[name] = true
		}
	}
	var idle []string
	for _, name := range sorted(attaches) {
		switch {
		case attaches[name]:
			if err := d.lookAtDriver(ctx, name); err != nil {
				return err
			}
		case len(d.wires[name]) == 0:
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		d.Notes = append(d.Notes, "Nothing to guard (attachRequired: false): "+strings.Join(idle, ", ")+".")
	}
	for _, w := range d.wires[""] {
		d.add(LookAt, w.of.String(), fmt.Sprintf("of which driver its external-attacher (container %s) is cannot be told%s", w.Attacher.Name, orErr(w.Err)), w.of.manifest()+" | csi-fencepost inject --check")
	}
	return nil
}

func orErr(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// findWires sorts the attachers that count by driver.
func (d *doctoring) findWires(ctx context.Context, attaches map[string]bool) error {
	for _, p := range d.pods {
		a := accountOf(p)
		if !d.rbac.attaches(a) {
			continue
		}
		for _, w := range inject.Wires(&p.Spec, attaches) {
			if w.Elsewhere {
				d.Notes = append(d.Notes, fmt.Sprintf("Container %s of pod %s/%s attaches in another cluster (--kubeconfig): not judged here.", w.Attacher.Name, p.Namespace, p.Name))
				continue
			}
			of, err := d.workloadOf(ctx, p)
			if err != nil {
				return err
			}
			name := w.Driver
			if name == "" {
				if name, err = d.driverOf(ctx, p, a, attaches); err != nil {
					return err
				}
			}
			d.wires[name] = append(d.wires[name], wired{w, p, of})
		}
	}
	return nil
}

func accountOf(p *corev1.Pod) account {
	if p.Spec.ServiceAccountName == "" {
		return account{p.Namespace, "default"}
	}
	return account{p.Namespace, p.Spec.ServiceAccountName}
}

// driverOf finds the driver of an attacher whose pod does not say it: by the binding of the
// sidecar's rights, or by the Lease of external-attacher's leader; empty: neither says it.
func (d *doctoring) driverOf(ctx context.Context, p *corev1.Pod, a account, attaches map[string]bool) (string, error) {
	var bound []string
	for _, b := range d.rbac.cluster {
		if driver, ours := strings.CutPrefix(b.Name, explain.ObserveRole+"-"); ours && a.among(b.Subjects) {
			bound = append(bound, driver)
		}
	}
	if len(bound) == 1 {
		return bound[0], nil
	}
	for _, driver := range sorted(attaches) {
		lease, err := d.client.CoordinationV1().Leases(p.Namespace).Get(ctx, explain.AttacherLease(driver), metav1.GetOptions{})
		if err := d.forgive("get leases in namespace "+p.Namespace, err); err != nil {
			return "", err
		}
		if err != nil || lease.Spec.HolderIdentity == nil {
			continue
		}
		if holder := *lease.Spec.HolderIdentity; holder == p.Name || p.GenerateName != "" && strings.HasPrefix(holder, p.GenerateName) {
			return driver, nil
		}
	}
	return "", nil
}

// workloadOf is what keeps the pod, through its ReplicaSet.
func (d *doctoring) workloadOf(ctx context.Context, p *corev1.Pod) (workload, error) {
	ref := metav1.GetControllerOf(p)
	if ref == nil {
		return workload{"Pod", p.Namespace, p.Name}, nil
	}
	if w, known := d.workloads[string(ref.UID)]; known {
		return w, nil
	}
	w := workload{ref.Kind, p.Namespace, ref.Name}
	if ref.Kind == "ReplicaSet" {
		set, err := d.client.AppsV1().ReplicaSets(p.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err := d.forgive("get replicasets in namespace "+p.Namespace, err); err != nil {
			return w, err
		}
		if err == nil && metav1.GetControllerOf(set) != nil {
			w.kind, w.name = metav1.GetControllerOf(set).Kind, metav1.GetControllerOf(set).Name
		}
	}
	d.workloads[string(ref.UID)] = w
	return w, nil
}

// lookAtDriver says how one is guarded.
func (d *doctoring) lookAtDriver(ctx context.Context, name string) error {
	v := Driver{Name: name, Guarded: "unknown", Workloads: []string{}, Volumes: d.holdings.total[name]}
	wires := d.wires[name]
	guarded := func(w wired) bool { return w.Guard != nil }
	at := slices.IndexFunc(wires, guarded)
	if at >= 0 {
		v.Guarded = "yes"
		own, err := d.lookAtProcess(ctx, name, name, wires[at].Guard, podsOf(wires, guarded))
		if err != nil {
			return err
		}
		d.own[name], v.Process = own, &own.Process
		d.lookAtSidecar(name, own, wires[at].of)
	} else if at = slices.IndexFunc(wires, func(w wired) bool { return len(w.Beside) > 0 }); at >= 0 {
		past, err := d.lookAtProcess(ctx, name, name, wires[at].Beside[0], []*corev1.Pod{wires[at].pod})
		if err != nil {
			return err
		}
		v.Process, at = &past.Process, -1
	}
	for i, w := range wires {
		first := slices.IndexFunc(wires, func(o wired) bool { return o.of == w.of && o.Guard == nil }) == i
		if !slices.Contains(v.Workloads, w.of.String()) {
			v.Workloads = append(v.Workloads, w.of.String())
		}
		if w.Guard != nil || !first {
			continue
		}
		where := fmt.Sprintf("external-attacher (container %s of %s)", w.Attacher.Name, w.of)
		switch {
		case w.Err != nil:
			d.add(LookAt, name, "where its "+where+" calls cannot be told: "+w.Err.Error(), w.of.manifest())
		case len(w.Beside) > 0:
			v.Guarded = "past"
			d.add(Broken, name, fmt.Sprintf("%sits %s calls %s, where no csi-fencepost listens (container %s does, elsewhere): no call is judged", notGuarded, where, w.Socket, w.Beside[0].Name), w.of.manifest()+" | csi-fencepost inject --check")
		case at >= 0:
			v.Guarded = "partly"
			d.add(Broken, name, fmt.Sprintf("%sof its attachers, %s in pod %s calls the driver by itself, and both attach its volumes", notGuarded, where, w.pod.Name), w.of.manifest()+" | csi-fencepost inject --check")
		default:
			v.Guarded = "no"
			d.add(LookAt, name, fmt.Sprintf("not guarded: no csi-fencepost is beside its %s", where), w.of.manifest()+" | csi-fencepost inject --check")
		}
	}
	if len(wires) == 0 && v.Volumes > 0 {
		what := "no external-attacher of it was found that may attach volumes in this cluster: it runs elsewhere (a managed control plane), or not at all"
		if !d.sees("pods") {
			what = "whether it is guarded cannot be seen without the right to list pods"
		}
		d.add(LookAt, name, what, "")
	}
	d.Drivers = append(d.Drivers, v)
	return nil
}

// podsOf are the pods of the wires that are meant, each once.
func podsOf(wires []wired, meant func(wired) bool) (pods []*corev1.Pod) {
	for _, w := range wires {
		if meant(w) && !slices.Contains(pods, w.pod) {
			pods = append(pods, w.pod)
		}
	}
	return pods
}

// lookAtSidecar says what is only a sidecar's.
func (d *doctoring) lookAtSidecar(name string, p *process, of workload) {
	if p.config.Mode == config.Observe {
		d.add(LookAt, name, "mode Observe: it reports what it would refuse, and forwards everything", of.manifest()+" | csi-fencepost inject --check --mode Enforce")
	}
	switch apart := p.config.Fencing.Apart; {
	case apart && d.apart == nil && d.sees("pods"):
		d.add(Broken, name, "fencing.apart: true, and no csi-fencepost failover runs: nobody reads or cuts the power of its nodes, nor moves pods", "kubectl get deployment -n "+deploy.ApartNamespace)
	case apart:
		p.Moves = "apart"
	case p.config.Mode == config.Enforce && p.Moves == nobody:
		d.add(LookAt, name, "nobody moves the pods of a dead node (failover is off): once it is proven off, a person taints it", of.manifest()+" | csi-fencepost inject --check --mode Enforce --failover")
	}
}

// nobody moves pods.
const nobody = "nobody"

// lookAtApart looks for csi-fencepost failover.
func (d *doctoring) lookAtApart(ctx context.Context) error {
	var pods []*corev1.Pod
	var c *corev1.Container
	for _, p := range d.pods {
		if !isApart(p) {
			continue
		}
		pods = append(pods, p)
		for i := range p.Spec.Containers {
			if words := append(slices.Clone(p.Spec.Containers[i].Command), p.Spec.Containers[i].Args...); slices.Contains(words, "failover") {
				c = &p.Spec.Containers[i]
			}
		}
	}
	if c == nil {
		return nil
	}
	p, err := d.lookAtProcess(ctx, "", failoverName, c, pods)
	if err != nil {
		return err
	}
	d.apart, d.Failover = p, &p.Process
	if err := p.config.CheckApart(); err != nil && p.Config != "" {
		d.add(Broken, failoverName, "its configuration is not one for it: "+cli.OneLineOf(err), "")
	}
	return nil
}

// failoverName is what failover as a Deployment of its own is called here.
const failoverName = "csi-fencepost failover"

// lookAtProcess says what is the same of every csi-fencepost. pods has one at least.
func (d *doctoring) lookAtProcess(ctx context.Context, driver, about string, c *corev1.Container, pods []*corev1.Pod) (*process, error) {
	p := &process{pod: pods[0], guard: c, driver: driver}
	p.Pods, p.Image, p.Version, p.Agents, p.Moves = len(pods), c.Image, tagOf(c.Image), []string{}, nobody
	logs := func(pod *corev1.Pod) string {
		return fmt.Sprintf("kubectl logs -n %s %s -c %s", printable.Word(pod.Namespace), printable.Word(pod.Name), printable.Word(c.Name))
	}
	var wrong error
	if p.config, p.Config, wrong = explain.ConfigOf(ctx, d.client, pods[0], c); wrong != nil {
		d.add(LookAt, about, "its configuration could not be read, the defaults are taken for it: "+wrong.Error(), "")
	}
	p.Mode, p.Evidence = p.config.Mode, []string{}
	for source, on := range map[string]bool{"outOfServiceTaint": p.config.Evidence.OutOfServiceTaint, "operatorConfirmation": p.config.Evidence.OperatorConfirmation,
		"networkFence": p.config.Evidence.NetworkFence, "cloudShutdownTaint": p.config.Evidence.CloudShutdownTaint, "nodeDeleted": p.config.Evidence.NodeDeleted,
		"fenceAgentsRemediation": p.config.Evidence.FenceAgentsRemediation, "selfNodeRemediation": p.config.Evidence.SelfNodeRemediation} {
		if on {
			p.Evidence = append(p.Evidence, source)
		}
	}
	slices.Sort(p.Evidence)
	if p.config.Failover.Enabled {
		p.Moves = "sidecar"
	}
	versions := map[string]bool{}
	for _, pod := range pods {
		for _, one := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
			if one.Name == c.Name {
				versions[one.Image] = true
			}
		}
	}
	if len(versions) > 1 {
		d.add(LookAt, about, "its pods run csi-fencepost of several versions: "+strings.Join(sorted(versions), ", "), "")
	}
	if own, err := version.ParseGeneric(cli.BuildVersion()); err == nil {
		if theirs, err := version.ParseGeneric(p.Version); err == nil && theirs.LessThan(own) {
			d.add(LookAt, about, fmt.Sprintf("csi-fencepost there is %s, older than this one (%s)", p.Version, cli.BuildVersion()), "")
		}
	}
	if down, why := notReady(pods, c.Name); len(down) > 0 {
		d.add(Broken, about, fmt.Sprintf("csi-fencepost is not ready in %d of %d pods: %s", len(down), len(pods), why), logs(down[0]))
	}
	if err := d.lookAtRights(p, about); err != nil {
		return nil, err
	}
	levels := sidecar.Declared(p.config)
	for _, level := range levels {
		for _, b := range level {
			p.Agents = append(p.Agents, b.Agent.Name())
		}
	}
	p.fencer, wrong = fencer.New(fencer.Options{Levels: levels, Driver: driver, Actor: "csi-fencepost doctor", ReadOnly: true,
		Records: record.NewStore(d.client.CoordinationV1(), p.config.Fencing.Namespace), Nodes: d.client.CoreV1(), Leases: d.client.CoordinationV1()})
	if wrong != nil {
		d.add(Broken, about, "it cannot start with its fence agents: "+wrong.Error(), "")
		p.fencer, wrong = fencer.New(fencer.Options{Driver: driver, Actor: "csi-fencepost doctor", ReadOnly: true,
			Records: record.NewStore(d.client.CoordinationV1(), p.config.Fencing.Namespace), Nodes: d.client.CoreV1(), Leases: d.client.CoordinationV1()})
	}
	return p, wrong
}

// notReady are the pods whose container is not, and why the first is not.
func notReady(pods []*corev1.Pod, container string) (down []*corev1.Pod, why string) {
	for _, p := range pods {
		all := append(slices.Clone(p.Status.ContainerStatuses), p.Status.InitContainerStatuses...)
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
// policies that are installed.
func (d *doctoring) lookAtRights(p *process, about string) error {
	render := sidecar.RightsOf(p.config)
	if p.driver == "" {
		render = deploy.Apart
	}
	needed, err := deploy.Rights(render)
	if err != nil {
		return err
	}
	if value, given := explain.Argument(p.guard, "http-authorization"); given && value != "false" {
		more, err := deploy.Rights(deploy.Authorization)
		if err != nil {
			return err
		}
		needed = append(needed, more...)
	}
	for i := range needed {
		if needed[i].Namespace == config.Default().Fencing.Namespace {
			needed[i].Namespace = p.config.Fencing.Namespace
		}
	}
	if !d.rbac.known {
		return nil
	}
	lacks := d.rbac.lacks(accountOf(p.pod), append(needed, d.byPolicies(p)...))
	if p.Lacks = sidecar.RightsInWords(lacks); len(lacks) == 0 {
		p.Lacks = []string{}
		return nil
	}
	next := "kubectl apply -f deploy/failover/rbac.yaml"
	if p.driver != "" {
		next = "kubectl get clusterrolebindings | grep " + printable.Word(p.driver)
	}
	d.add(Broken, about, fmt.Sprintf("its account %s may not %s, which mode %s needs (deploy/rbac, deploy/admission/writers.yaml)", accountOf(p.pod), strings.Join(p.Lacks, ", nor "), p.Mode), next)
	return nil
}

// byPolicies are the rights that the installed policies ask for (deploy/admission/writers.yaml).
func (d *doctoring) byPolicies(p *process) (needed []authorizationv1.ResourceAttributes) {
	need := func(policy, resource string, writes bool) {
		if writes && p.config.Mode == config.Enforce && slices.Contains(d.Policies, Policy{policyPrefix + policy, true}) {
			needed = append(needed, authorizationv1.ResourceAttributes{Verb: "write", Group: "csi-fencepost.io", Resource: resource, Name: p.driver})
		}
	}
	fences := slices.ContainsFunc(sidecarKinds(p), func(k fence.Kind) bool { return k == fence.PowerReading || p.driver != "" })
	need("ledger", "ledgers", p.driver != "")
	need("records", "records", true)
	need("records", "fences", fences)
	need("taint", "taints", p.config.Failover.Enabled)
	return needed
}

// sidecarKinds are what the agents of a process prove.
func sidecarKinds(p *process) (kinds []fence.Kind) {
	for _, level := range sidecar.Declared(p.config) {
		for _, b := range level {
			kinds = append(kinds, b.Agent.Proves())
		}
	}
	return kinds
}

// policyPrefix begins the names of the policies of deploy/admission, and policies end them.
const policyPrefix = "csi-fencepost-"

var policies = []string{"ledger", "ledger-kept", "records", "taint"}

// lookAtPolicies says which are installed.
func (d *doctoring) lookAtPolicies() {
	var absent []string
	for _, name := range policies {
		there := false
		for _, p := range d.facts.policies {
			there = there || p.Name == policyPrefix+name && d.bound[p.Name]
		}
		d.Policies = append(d.Policies, Policy{policyPrefix + name, there})
		if !there {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 && d.sees("validatingadmissionpolicies") && d.sees("validatingadmissionpolicybindings") {
		d.add(LookAt, "policies", "not installed: "+strings.Join(absent, ", ")+". Who may write PersistentVolumes, records or taints can say there that a node is off (SECURITY.md)", "kubectl apply -f deploy/admission")
	}
}

// tagOf an image; empty: it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	at := strings.LastIndexByte(image, ':')
	if at < 0 || strings.Contains(image[at:], "/") {
		return ""
	}
	return image[at+1:]
}
