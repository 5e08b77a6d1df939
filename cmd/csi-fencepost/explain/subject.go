package explain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// explaining is one `explain`.
type explaining struct {
	*explainFlags
	c     *cluster.Cluster
	asked *sidecar.AgentSet // nil: no fence agent is asked
	// found are the sidecars' configurations, by driver; looked for once.
	found          map[string]sidecarConfig
	stdout, stderr io.Writer
}

// watchEvery is how often -w looks again.
const watchEvery = 2 * time.Second

// watchIt prints again and again until ctx ends. The leases are followed from
// one look to the next, so that after suspectAfter it is known who lives.
func (x *explaining) watchIt(ctx context.Context) error {
	x.c.Lives = observe.NewTracker(x.c.Config.Fencing.SuspectAfter.Duration, 1)
	go x.c.Lives.Run(ctx)
	for {
		var page bytes.Buffer
		err := x.once(ctx, printable.Writer{To: &page})
		switch {
		case ctx.Err() != nil:
			return nil // it was interrupted
		case err != nil:
			return err
		}
		cli.PrintPage(x.stdout, page.Bytes())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// once explains the subject as it is now.
func (x *explaining) once(ctx context.Context, w io.Writer) error {
	if x.kind == "node" {
		e, err := x.node(ctx)
		if err != nil {
			return err
		}
		return x.set.Print(w, e, func(w io.Writer) { printNode(w, e, cli.StyleOf(x.stdout)) })
	}
	names, notes, err := x.volumes(ctx)
	if err != nil {
		return err
	}
	list := &explanationList{APIVersion: config.APIVersion, Kind: "VolumeExplanationList", Items: []*explanation{}, Notes: notes}
	for _, pv := range names {
		e, err := x.volume(ctx, pv)
		if notCSI := (*notCSIError)(nil); x.kind == "pod" && errors.As(err, &notCSI) {
			list.Notes = append(list.Notes, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		list.Items = append(list.Items, e)
	}
	if x.kind != "pod" {
		return x.set.Print(w, list.Items[0], func(w io.Writer) { printExplanation(w, list.Items[0], cli.StyleOf(x.stdout)) })
	}
	return x.set.Print(w, list, func(w io.Writer) { list.print(w, cli.StyleOf(x.stdout)) })
}

// volume explains one PersistentVolume.
func (x *explaining) volume(ctx context.Context, pv string) (*explanation, error) {
	c, assumed, err := x.configured(ctx, pv)
	if err != nil {
		return nil, err
	}
	l, err := LookAt(ctx, c, pv, x.observe, x.stderr)
	if err != nil {
		return nil, err
	}
	if x.c.Lives != nil {
		l.observed = watchEvery // who watches need not be told to
	}
	l.notes = append(l.notes, assumed...)
	if err := x.consult(ctx, l); err != nil {
		return nil, err
	}
	return Explain(l), nil
}

// configured is the cluster with the configuration that the volume's sidecar
// runs with: the one that was given, else the one that is found, else the
// defaults; and what there is to say of it.
func (x *explaining) configured(ctx context.Context, pv string) (*cluster.Cluster, []string, error) {
	if x.cluster.Config != "" {
		return x.c, nil, nil
	}
	_, driver, err := FindPV(ctx, x.c, pv)
	if err != nil {
		return nil, nil, err
	}
	found, known := x.found[driver]
	if !known {
		found = findConfig(ctx, x.c.Client, driver)
		if x.found == nil {
			x.found = map[string]sidecarConfig{}
		}
		x.found[driver] = found
	}
	c := *x.c
	c.Config = found.config
	if found.assumed != "" {
		return &c, []string{"Judged with the default configuration: " + found.assumed + ". If the sidecar has another one, give it with --config."}, nil
	}
	notes := []string{"Judged with the configuration of the sidecar: " + found.found + "."}
	if len(c.Config.Fencing.Levels) > 0 {
		notes = append(notes, "The sidecar has fence agents, which are reached from its pod. They were not asked: what they last read is in the nodes' records. To ask them from here, give --config and the files that it names.")
	}
	return &c, notes, nil
}

// agentNotes say which agents could not be asked.
func (x *explaining) agentNotes() []string {
	if x.asked == nil {
		return nil
	}
	notes := x.asked.Notes
	for _, err := range x.asked.Faults {
		notes = append(notes, cli.OneLineOf(err))
	}
	return notes
}

// volumes names the PersistentVolumes of the subject; notes say which are left
// out.
func (x *explaining) volumes(ctx context.Context) (names, notes []string, err error) {
	switch x.kind {
	case "pvc":
		pv, err := x.claim(ctx, x.name)
		if err == nil && pv == "" {
			err = fmt.Errorf("PersistentVolumeClaim %s/%s is bound to no volume yet", x.namespace, x.name)
		}
		return []string{pv}, nil, err
	case "pod":
		return x.pod(ctx)
	}
	return []string{x.name}, nil, nil
}

// claim is the PersistentVolume of a claim; empty: it is not bound yet.
func (x *explaining) claim(ctx context.Context, name string) (string, error) {
	pvc, err := x.c.Client.CoreV1().PersistentVolumeClaims(x.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", x.noSuch(ctx, "PersistentVolumeClaim", name, x.claims)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read PersistentVolumeClaim %s/%s: %w", x.namespace, name, err)
	}
	return pvc.Spec.VolumeName, nil
}

func (x *explaining) pod(ctx context.Context) (names, notes []string, err error) {
	pod, err := x.c.Client.CoreV1().Pods(x.namespace).Get(ctx, x.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, x.noSuch(ctx, "Pod", x.name, x.pods)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read Pod %s/%s: %w", x.namespace, x.name, err)
	}
	notes = []string{}
	for i := range pod.Spec.Volumes {
		claim := csi.ClaimName(pod, &pod.Spec.Volumes[i])
		if claim == "" {
			continue
		}
		pv, err := x.claim(ctx, claim)
		switch {
		case err != nil:
			notes = append(notes, err.Error())
		case pv == "":
			notes = append(notes, fmt.Sprintf("PersistentVolumeClaim %s/%s is bound to no volume yet.", x.namespace, claim))
		default:
			names = append(names, pv)
		}
	}
	return names, notes, nil
}

// An explanationList is the output of `explain pod`.
type explanationList struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Items      []*explanation `json:"items"`
	Notes      []string       `json:"notes"`
}

func (list *explanationList) print(w io.Writer, style cli.Style) {
	p := cli.NewPrinter(w, style)
	for i, e := range list.Items {
		if i > 0 {
			p.Blank()
			p.Blank()
		}
		printExplanation(w, e, style)
	}
	if len(list.Items) == 0 {
		p.Heading(cli.Bold, "The pod uses no volume of a CSI driver.")
	}
	for i, note := range list.Notes {
		if i == 0 {
			p.Blank()
		}
		p.Paragraph(0, 2, "* "+note)
	}
}
