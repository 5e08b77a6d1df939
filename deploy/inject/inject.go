package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
)

// A File is a file of manifests, by the name that messages use.
type File struct {
	Name string
	Text []byte
}

// A Result is what Inject and Uninject return.
type Result struct {
	// Files are those given, in their order, changed or not, without Removed.
	Files []File
	// Documents are those that go with the workloads, as one file, where
	// Options.Separate keeps them apart; nil otherwise.
	Documents []byte
	// Elsewhere are the rights that belong into the clusters of attachers'
	// kubeconfigs, in no file of Files; nil: there is no such attacher.
	Elsewhere []byte
	Plans     []*Plan
	Findings  []Finding
	// Changed are the names of the files that differ from what was given.
	Changed []string
	// Removed are the names of files that held nothing but what was injected.
	Removed []string
}

// A NothingError says why there is nothing to inject into.
type NothingError struct{ Text string }

func (e *NothingError) Error() string { return e.Text }

// Inject puts csi-fencepost into every controller workload of the files. What
// it does not have to change stays as it is, byte for byte. What was injected
// before is taken out first: so it is idempotent, and options can change; those
// that are left open are kept from before. An error names file and line; it is a
// *NothingError where there is nothing to inject into.
func Inject(files []File, o Options) (*Result, error) {
	before, err := previous(files)
	if err != nil {
		return nil, err
	}
	clean, err := Uninject(files)
	if err != nil {
		return nil, err
	}
	streams, found, err := readFiles(clean.Files)
	if err != nil {
		return nil, err
	}
	r := &Result{Removed: clean.Removed}
	c := newChanges(streams)
	last, err := r.planAll(c, found, o, before)
	if err != nil {
		return nil, err
	}
	if err := losesNone(r.Plans, o.Before); err != nil {
		return nil, err
	}
	if r.Elsewhere, err = alone(missing(r.Plans, nil, func(p *Plan) []Document { return p.Elsewhere })); err != nil {
		return nil, err
	}
	texts := missing(r.Plans, found, func(p *Plan) []Document { return p.Documents })
	if o.Separate {
		if r.Documents, err = alone(texts); err != nil {
			return nil, err
		}
		texts = nil
		if o.Beside && r.Documents != nil {
			if err := c.nameDocuments(); err != nil {
				return nil, err
			}
		}
	}
	written, err := c.write(last, texts, false)
	if err != nil {
		return nil, err
	}
	r.compare(files, written)
	return r, nil
}

// planAll makes a plan for each attacher and carries it out in c. It returns the
// file of the last workload.
func (r *Result) planAll(c *changes, found []manifest, o Options, before map[string]earlier) (last int, err error) {
	drivers := csiDrivers(found)
	var workloads []*Workload
	of := map[*Workload]*manifest{}
	for i := range found {
		w, err := r.workload(&found[i])
		if err != nil {
			return 0, err
		}
		if w != nil {
			w.CSIDrivers, of[w] = drivers, &found[i]
			workloads = append(workloads, w)
		}
	}
	aside := r.Findings
	r.Findings = nil
	all, err := candidates(workloads)
	if err != nil {
		return 0, err
	}
	for _, a := range all {
		a.before = before[attacherKey(of[a.w], a.Name)]
		if err := isRendered(of[a.w]); err != nil {
			return 0, err
		}
	}
	if err := nameDrivers(all, o.Drivers); err != nil {
		return 0, err
	}
	if err := r.likeBefore(all, o); err != nil {
		return 0, err
	}
	var nothing *NothingError
	for _, w := range workloads {
		m := of[w]
		plans, none, err := newPlans(w, all, o)
		if err != nil {
			return 0, w.at(err)
		}
		for _, n := range none {
			nothing = &NothingError{w.Where + ": " + n.Text}
			r.say("", "%s", nothing.Text)
		}
		if err := r.carryOut(c, m, plans); err != nil {
			return 0, err
		}
		if len(plans) > 0 {
			last = m.file
		}
	}
	for _, a := range all {
		if !a.chosen && len(o.Drivers) > 0 {
			r.say(a.w.Where, "%s is left alone: no --driver names it", a)
		} else if !a.chosen {
			r.say(a.w.Where, "%s is left alone, as it was before: --driver adds it, if the others are named too", a)
		}
	}
	r.Findings = append(r.Findings, aside...)
	return last, r.orNothing(o, found, workloads, nothing)
}

// workload reads a manifest that csi-fencepost could be put into; nil for any
// other. A manifest that only looks so is named in the findings.
func (r *Result) workload(m *manifest) (*Workload, error) {
	if !isWorkload(m.APIVersion, m.Kind) {
		r.lookalike(m)
		return nil, nil
	}
	o, err := m.decode()
	if err != nil {
		return nil, err
	}
	w, err := FromObject(o)
	if err != nil {
		if line, template := templateIn(m.node); line > 0 {
			return nil, templateError(m.inFile(), line, template)
		}
		if err := isRendered(m); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", m.where, err)
	}
	w.Where = m.where
	if hook := w.ObjectMeta.Annotations["helm.sh/hook"]; hook != "" {
		r.say(m.where, "%s is left alone: it is a Helm hook (%s), which runs beside the release", w.name(), hook)
		return nil, nil
	}
	return w, nil
}

// lookalike says why a container that looks like external-attacher in another
// kind of workload is left alone.
func (r *Result) lookalike(m *manifest) {
	if m.Kind != "DaemonSet" && m.Kind != "Pod" && m.Kind != "ReplicaSet" && m.Kind != "Job" {
		return
	}
	containers := field(podOf(m), "containers")
	if containers == nil {
		return
	}
	for _, c := range containers.Content {
		if image := field(c, "image"); image != nil && strings.Contains(image.Value, "attacher") {
			r.say(m.where, "%s %s is left alone: its image %s looks like external-attacher, but csi-fencepost goes into a Deployment or StatefulSet only", m.Kind, m.Name, image.Value)
		}
	}
}

// carryOut changes the object.
func (r *Result) carryOut(c *changes, m *manifest, plans []*Plan) error {
	if len(plans) == 0 {
		return nil
	}
	o, err := c.object(m)
	if err != nil {
		return err
	}
	for _, p := range plans {
		if err := p.Apply(o); err != nil {
			return fmt.Errorf("%s: %w", m.where, err)
		}
		r.Plans = append(r.Plans, p)
		r.Findings = append(r.Findings, p.Findings...)
	}
	return nil
}

// isRendered is an error where a template is left in what inject reads of a
// workload. No name of Kubernetes has a $ or a < in it.
func isRendered(m *manifest) error {
	metadata := field(m.node, "metadata")
	for _, n := range []*yaml.Node{field(metadata, "name"), field(metadata, "namespace"), podOf(m)} {
		if line, template := templateIn(n); line > 0 {
			return templateError(m.inFile(), line, template)
		}
		if n != nil && strings.ContainsAny(n.Value, "$<") {
			return templateError(m.inFile(), n.Line, n.Value)
		}
	}
	return nil
}

// podOf is the pod's spec in a workload.
func podOf(m *manifest) *yaml.Node {
	if m.Kind == "Pod" {
		return field(m.node, "spec")
	}
	return field(field(field(m.node, "spec"), "template"), "spec")
}

// csiDrivers are the CSIDriver objects, and whether they attach: they do unless
// they say no.
func csiDrivers(found []manifest) map[string]bool {
	drivers := map[string]bool{}
	for _, m := range found {
		if m.Kind == "CSIDriver" && strings.HasPrefix(m.APIVersion, "storage.k8s.io/") {
			attach := field(field(m.node, "spec"), "attachRequired")
			drivers[m.Name] = attach == nil || attach.Value != "false"
		}
	}
	return drivers
}

// orNothing is the error of a run that has made no plan.
func (r *Result) orNothing(o Options, found []manifest, workloads []*Workload, nothing *NothingError) error {
	if len(r.Plans) > 0 {
		return nil
	}
	if nothing != nil {
		return nothing
	}
	drivers := csiDrivers(found)
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		if !drivers[name] {
			return &NothingError{fmt.Sprintf("there is nothing to guard: the CSIDriver %s has attachRequired: false, so that Kubernetes never asks it to publish or unpublish a volume", name)}
		}
	}
	for i := range found {
		if line, template := templateIn(podOf(&found[i])); line > 0 && isWorkload(found[i].APIVersion, found[i].Kind) {
			return templateError(found[i].inFile(), line, template)
		}
	}
	seen, namespace := "there is no Deployment and no StatefulSet in it", "NAMESPACE"
	for i, w := range workloads {
		if seen += ", " + w.name(); i == 0 {
			seen = "looked at: " + w.name()
		}
		if w.ObjectMeta.Namespace != "" {
			namespace = w.ObjectMeta.Namespace
		}
	}
	what := "no external-attacher"
	if len(o.Drivers) > 0 {
		what += " of driver " + strings.Join(o.Drivers, ", ")
	}
	for _, f := range r.Findings {
		seen += "; " + f.String()
	}
	return &NothingError{what + " was found in a Deployment or StatefulSet (" + seen + "). It is the container whose image is named csi-attacher, or csi-sidecars with attacher in its --controllers: is the file with the controller missing? " +
		whoCreatesIt(found) + ", and writes it back when it is changed, then take it from the cluster, as policies: kubectl get deployment,statefulset,csidriver -n " + namespace +
		" -o yaml | csi-fencepost inject --as-policy. If the cluster has no such pod either, the provider runs it out of sight, and nothing can be put into it"}
}

// whoCreatesIt begins the sentence on operators: with the one that is told the
// attacher's image, where one is.
func whoCreatesIt(found []manifest) string {
	for i := range found {
		m := &found[i]
		var n *yaml.Node
		if m.Kind == "ConfigMap" {
			n = field(m.node, "data")
		} else if isWorkload(m.APIVersion, m.Kind) {
			n = podOf(m)
		}
		if line, image := attacherIn(n); line > 0 {
			return fmt.Sprintf("%s:%d: %s %s names the image %s: if an operator creates the controller from it", m.inFile(), line, m.Kind, m.Name, image)
		}
	}
	return "If an operator creates the controller (as those of Rook, Longhorn and Trident do)"
}

// attacherIn is the first value in a node that is an attacher's image.
func attacherIn(n *yaml.Node) (line int, image string) {
	if n == nil {
		return 0, ""
	}
	if n.Kind == yaml.ScalarNode && strings.HasSuffix(profile.ImageName(n.Value), "csi-attacher") && strings.Contains(n.Value, "/") {
		return n.Line, n.Value
	}
	for _, c := range n.Content {
		if line, image = attacherIn(c); line > 0 {
			return line, image
		}
	}
	return 0, ""
}

// missing are the texts of the plans' documents, each once, without those that
// the files have already.
func missing(plans []*Plan, found []manifest, of func(*Plan) []Document) (texts []string) {
	have := map[string]bool{}
	for _, m := range found {
		have[m.key()] = true
	}
	for _, p := range plans {
		for _, d := range of(p) {
			if !have[d.key()] {
				have[d.key()] = true
				texts = append(texts, d.Text)
			}
		}
	}
	return texts
}
