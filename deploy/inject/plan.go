package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// A Workload is a Deployment or StatefulSet as far as a plan needs it.
type Workload struct {
	// Where it stands, "file:line"; only for messages.
	Where string

	APIVersion string                 `json:"apiVersion"`
	Kind       string                 `json:"kind"`
	ObjectMeta metav1.ObjectMeta      `json:"metadata"`
	Replicas   *int32                 `json:"-"`
	Template   corev1.PodTemplateSpec `json:"-"`
	Selector   *metav1.LabelSelector  `json:"-"` // of the pods; nil where none is given
	// CSIDrivers that stand beside it, name by attachRequired. They help to
	// find out the driver's name.
	CSIDrivers map[string]bool `json:"-"`
}

// Options are what a person chooses. Empty: chosen from profile and manifest.
type Options struct {
	// Drivers are the names of those that are chosen, as in their CSIDriver
	// objects: NAME, or ATTACHER=NAME where nothing tells which attacher is that
	// driver's; ATTACHER is [[NAMESPACE/]WORKLOAD/]CONTAINER.
	Drivers []string
	// Namespace of workloads that name none.
	Namespace string
	Image     string
	// OwnImage is that of the release that asks. It is taken where nobody has named
	// one.
	OwnImage string
	Mode     config.Mode
	// Config is a whole configuration file, in place of the profile's.
	Config []byte
	// Failover is who moves the pods of dead nodes: the configuration, the rights, and what runs
	// it. Needs Enforce.
	Failover    Failover
	agentsLeft  []string // AgentsSecrets of before, which failover apart takes out
	apartBefore bool     // csi-fencepost failover was added before, and stays where the configuration asks it
	// Native tells whether the sidecar is a native sidecar of Kubernetes, an init container with
	// restartPolicy Always. Where it is nil, that is as it was before, and a container where there
	// was none.
	Native *bool
	// InDriversFolder has our socket in the folder of the driver's, for where nobody can mount a
	// volume into the attacher. The attacher keeps the driver's socket then.
	InDriversFolder bool
	// SELinuxType of the sidecar; empty: as the attacher's securityContext says.
	SELinuxType string
	// AgentsSecrets are mounted into the sidecar, for the credentials of fence
	// agents: NAME, or NAME=FOLDER. Without FOLDER it is AgentsFolder.
	AgentsSecrets []string
	// AgentDirs is the sidecar's --agent-dirs.
	AgentDirs string
	// HTTPPort of metrics and probes. 0: a free one, and none on hostNetwork.
	HTTPPort   int32
	portBefore int32 // of the sidecar that is there; a pod on its node's network keeps it
	// TLSSecret, of type kubernetes.io/tls, is the certificate of metrics and probes. The
	// metrics are then only for those whom the Kubernetes API lets get them.
	TLSSecret string
	// MetricsFrom is the one namespace whose pods reach the metrics; needs a free network.
	MetricsFrom string
	// WithoutRights tells whether rights and configuration are not among the documents, since a
	// release of csi-fencepost's own Helm chart has them. Where it is nil, that is as it was before,
	// and they are among the documents where there was nothing.
	WithoutRights *bool
	// Separate keeps the documents apart from the files (Result.Documents).
	Separate bool
	// Beside has the documents written beside the files, as DocumentsFile, and a kustomization among
	// the files is to name it.
	Beside bool
	// Before are documents that an earlier run kept apart. Where none of mode, failover and
	// configuration is chosen, these are as they say. What they configure and this run does not
	// is an error: it would be lost where these documents are replaced.
	Before []File
}

// Failover is who moves the pods of dead nodes, and has the fence agents of the power.
type Failover string

const (
	// NoFailover means that nobody moves pods.
	NoFailover Failover = ""
	// Apart means that csi-fencepost failover does, a Deployment of an account of its own, one for
	// all drivers.
	Apart Failover = "apart"
	// InPod means that the sidecar does. What its account may do then, every container of the
	// driver's pod may.
	InPod Failover = "in-pod"
)

// A Plan is what is changed for one attacher of one workload, as data. It says
// nothing of text.
type Plan struct {
	// Workload that is changed.
	Where, APIVersion, Kind, Namespace, Name string
	ServiceAccount                           string

	Driver  string
	Profile *profile.Profile
	Mode    config.Mode
	// Failover tells that the sidecar moves pods itself, with rights of the pod's account.
	Failover bool
	// Apart tells that csi-fencepost failover moves pods, and is among the documents.
	Apart bool

	// Attacher is the container that is changed, by name, with the whole of
	// what is changed in it. Nothing else of it changes.
	Attacher Attacher
	// NoImage tells that nobody has named an image, and the sidecar has that of
	// deploy/sidecar/patch.yaml, which no registry has.
	NoImage bool
	// Sidecar is appended to the containers or, where Native, to the init containers; Volumes to
	// the volumes.
	Sidecar corev1.Container
	Volumes []corev1.Volume
	// Native tells that the sidecar is an init container with restartPolicy Always.
	Native bool
	// Beside are the names of those that are in its list before it, in their order; nil where
	// the pod has no such list, not even an empty one.
	Beside []string
	// Annotations that are put on the workload (not on its pods).
	Annotations map[string]string

	seLinuxType   string // as the options say
	withoutRights bool   // the same
	// kubeconfig of the attacher, and the namespace of its Lease in that cluster.
	kubeconfig, leaseNamespace string
	credentials                []string // files that the configuration names

	// Documents are applied with the workload: rights and configuration.
	Documents []Document
	// Elsewhere are the rights where the attacher has a --kubeconfig: in that
	// one's cluster, for its user. Documents has none then.
	Elsewhere []Document
	// Findings say what was chosen and why.
	Findings []Finding
}

// Attacher is the changed container: its complete lists, before and after.
// Elements of before keep their place, new ones are at the end.
type Attacher struct {
	Container string
	// Index in spec.template.spec.containers.
	Index                            int
	CommandBefore, Command           []string
	ArgsBefore, Args                 []string
	VolumeMountsBefore, VolumeMounts []corev1.VolumeMount
	// Flags are our socket and all limits as they are to be, also those that stay. Behind all
	// others they hold, whatever stands before: of a flag the last one counts.
	Flags []string
}

// A Document is one manifest of its own.
type Document struct {
	APIVersion, Kind, Namespace, Name string
	Text                              string // YAML with its comments, ends in a newline
}

// A Finding is a sentence for a person.
type Finding struct {
	Where string // "file:line", or empty
	Text  string
}

func (f Finding) String() string {
	if f.Where == "" {
		return f.Text
	}
	return f.Where + ": " + f.Text
}

func (p *Plan) say(format string, args ...any) {
	p.Findings = append(p.Findings, Finding{p.Where, fmt.Sprintf(format, args...)})
}

// NewPlans returns a plan for each external-attacher in the workload that the
// options choose, in the order of the containers, each made as if those before
// it were carried out. No plan and no error: it has no attacher, or none of the
// drivers that Options.Drivers names. An error says what stands in the way and
// what would be right; it is a *NothingError where no driver attaches.
func NewPlans(w *Workload, o Options) ([]*Plan, error) {
	all, err := candidates([]*Workload{w})
	if err != nil {
		return nil, err
	}
	if err := nameDrivers(all, o.Drivers); err != nil {
		return nil, err
	}
	plans, nothing, err := newPlans(w, all, o)
	if err == nil && len(plans) == 0 && len(nothing) > 0 {
		err = nothing[0]
	}
	return plans, err
}

// newPlans of the candidates of one workload that are chosen. Nothing says of
// which there is nothing to guard.
func newPlans(w *Workload, all []*candidate, o Options) (plans []*Plan, nothing []*NothingError, err error) {
	now := *w
	now.Template = *w.Template.DeepCopy()
	for _, c := range all {
		if c.w != w || !c.chosen {
			continue
		}
		var none *NothingError
		p, err := newPlan(&now, c, o.or(c.before.Options))
		if asNothing(err, &none) {
			nothing = append(nothing, none)
			continue
		} else if err != nil {
			return nil, nil, err
		}
		plans = append(plans, p)
		pod := &now.Template.Spec
		if p.Native {
			pod.InitContainers = append(pod.InitContainers, p.Sidecar)
		} else {
			pod.Containers = append(pod.Containers, p.Sidecar)
		}
		pod.Volumes = append(pod.Volumes, p.Volumes...)
	}
	return plans, nothing, nil
}

// newPlan of one attacher.
func newPlan(w *Workload, c *candidate, o Options) (*Plan, error) {
	p := &Plan{Where: w.Where, APIVersion: w.APIVersion, Kind: w.Kind, Name: w.ObjectMeta.Name, ServiceAccount: w.serviceAccount(), withoutRights: o.WithoutRights != nil && *o.WithoutRights}
	p.say("%s: container %s %s (%s)", w.name(), c.Name, c.program(), c.Image)
	if err := p.chooseDriver(w, c); err != nil {
		return nil, err
	}
	if err := p.chooseNamespace(w, o); err != nil {
		return nil, err
	}
	if err := p.addSidecar(w, c.attacher, o); err != nil {
		return nil, err
	}
	found := len(p.Findings)
	if err := p.configure(o); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name(), err)
	}
	// Mode and rights are what a person has to agree to: they are said first.
	p.Findings = slices.Concat(p.Findings[found:], p.Findings[:found])
	if err := p.narrowHTTP(w, o); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name(), err)
	}
	if err := p.addAgents(o); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name(), err)
	}
	if err := p.beNative(w, o); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name(), err)
	}
	beside := w.Template.Spec.Containers
	if p.Native {
		beside = w.Template.Spec.InitContainers
	}
	if beside != nil {
		p.Beside = []string{}
	}
	for _, c := range beside {
		p.Beside = append(p.Beside, c.Name)
	}
	put := p.Sidecar
	if err := p.keep(w, c.before); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name(), err)
	}
	if err := p.startsNative(); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name(), err)
	}
	p.lookForCredentials()
	var err error
	p.Annotations, err = p.record(o, put)
	return p, err
}

// chooseDriver takes what nameDrivers has found, if that driver attaches.
func (p *Plan) chooseDriver(w *Workload, c *candidate) error {
	name := c.driver
	p.say("driver %s, by %s", name, c.why)
	if attaches, known := w.CSIDrivers[name]; known && !attaches {
		return &NothingError{fmt.Sprintf("%s: there is nothing to guard: the CSIDriver %s has attachRequired: false, so that Kubernetes never asks it to publish or unpublish a volume", w.name(), name)}
	}
	p.Driver, p.Profile = name, profile.For(name)
	for _, note := range p.Profile.Notes {
		p.say("%s: %s", p.Profile.Name, note)
	}
	if p.Profile.Publishes.Known == profile.No {
		return &NothingError{fmt.Sprintf("%s: there is nothing to guard: %s does not publish volumes (%s)", w.name(), p.Profile.Name, p.Profile.Publishes.Source)}
	}
	if p.Profile.TaintFirst.Known == profile.Yes {
		p.say("%s fences in unpublish only with the out-of-service taint on the node: taint first, unpublish second (%s)", p.Profile.Name, p.Profile.TaintFirst.Source)
	}
	return nil
}

// chooseNamespace is not left to a default: with the rights in another one than the
// service account's no volume would be attached.
func (p *Plan) chooseNamespace(w *Workload, o Options) error {
	switch {
	case w.ObjectMeta.Namespace != "":
		p.Namespace = w.ObjectMeta.Namespace
	case o.Namespace != "":
		p.Namespace = o.Namespace
	default:
		return fmt.Errorf("%s names no namespace, so that the rights of its service account %s cannot be placed: say with --namespace where it is applied (as for helm and kubectl, which do not pass theirs on)",
			w.name(), p.ServiceAccount)
	}
	return nil
}
