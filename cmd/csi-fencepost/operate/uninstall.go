package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard/waiting"
)

const uninstallHelp = `csi-fencepost uninstall takes away what csi-fencepost has written into the cluster: its taints, its annotations on
PersistentVolumes, VolumeAttachments and Nodes, the nodes' records, the seals and the leaders' Leases. It shows first what that is,
and removes it with --yes. Take the sidecars out first: csi-fencepost uninject. Broken off, it goes on where it is run again.`

// Annotations that csi-fencepost writes, by the kind of object.
var (
	volumeAnnotations     = []string{ledger.Annotation, ledger.RepairedAnnotation}
	attachmentAnnotations = []string{waiting.RetryAnnotation}
	nodeAnnotations       = []string{formerWitness}
)

// formerWitness is where the versions before kept what stands in a node's record now
// (record.Witness). Nothing reads it any more.
const formerWitness = "csi-fencepost.io/witness"

// peoplesAnnotations are those that people write, and manifests have. They do
// nothing without csi-fencepost.
var peoplesAnnotations = []string{failover.OptOutAnnotation, failover.MaintenanceAnnotation}

// sidecarWatch is longer than a leader takes to renew its Lease twice.
const sidecarWatch = 12 * time.Second

type uninstallFlags struct {
	cluster    cluster.Flags
	yes, force bool
}

// runUninstall is `csi-fencepost uninstall`.
func runUninstall(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, fs := &uninstallFlags{}, cli.NewFlags("uninstall", uninstallHelp)
	fs.BoolVar(&f.yes, "yes", false, "Remove it. Without it, it is only shown.")
	fs.BoolVar(&f.force, "force", false, "Remove it although a sidecar seems to run, or a node is cut off from its storage.")
	f.cluster.Register(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fs.Wrong("it takes no arguments, got %s", strings.Join(fs.Args(), " "))
	}
	c, err := f.cluster.Open("uninstall")
	if err != nil {
		return err
	}
	return uninstall(ctx, c, f, stdout, stderr)
}

func uninstall(ctx context.Context, c *cluster.Cluster, f *uninstallFlags, stdout, stderr io.Writer) error {
	found, err := findTraces(ctx, c)
	if err != nil {
		return err
	}
	found.print(stdout)
	if len(found.traces) == 0 {
		return nil
	}
	watch := time.Duration(0)
	if f.yes && !f.force {
		watch = sidecarWatch
	}
	reasons, err := found.reasonsAgainst(ctx, c, watch, stderr)
	if err != nil {
		return err
	}
	p := cli.NewPrinter(stdout, cli.StyleOf(stdout))
	for _, reason := range reasons {
		p.Paragraph(0, 2, "! "+reason)
	}
	switch {
	case len(reasons) > 0 && !f.force:
		return fmt.Errorf("nothing was removed, for %s above (marked !); --force removes it all the same", cli.Count(len(reasons), "reason"))
	case !f.yes:
		fmt.Fprintln(stdout, "\nNothing was removed. To remove it: csi-fencepost uninstall --yes"+cli.Either(f.force, " --force", ""))
		return nil
	}
	return found.remove(ctx, stdout, stderr)
}

func (t *traces) print(w io.Writer) {
	p := cli.NewPrinter(w, cli.StyleOf(w))
	if len(t.traces) == 0 {
		p.Heading(cli.Bold, "csi-fencepost has left nothing in this cluster.")
	} else {
		p.Heading(cli.Bold, "What csi-fencepost has left in this cluster:")
		for _, kind := range traceKinds {
			t.printKind(p, kind)
		}
	}
	p.Blank()
	for _, note := range t.notes {
		p.Paragraph(0, 2, "* "+note)
	}
	p.Paragraph(0, 2, fmt.Sprintf("* Not looked for, since people wrote them: annotations %s, the namespace %s, and the RBAC of the manifests. Events go by themselves.", strings.Join(peoplesAnnotations, ", "), t.namespace))
}

// mostNames of one kind that are shown.
const mostNames = 8

func (t *traces) printKind(p *cli.Printer, kind traceKind) {
	var names []string
	for i := range t.traces {
		if t.traces[i].kind == kind {
			names = append(names, t.traces[i].name)
		}
	}
	if len(names) == 0 {
		return
	}
	text := strings.Join(names[:min(len(names), mostNames)], ", ")
	if more := len(names) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	p.Paragraph(2, 2, fmt.Sprintf("%s (%d): %s", kind, len(names), text))
}

// remove takes everything away, the records last: a run that is broken off
// leaves what the next one has to know. An object that cannot be changed does
// not keep the others.
func (t *traces) remove(ctx context.Context, stdout, stderr io.Writer) error {
	var failed []error
	done := 0
	fmt.Fprintln(stdout)
	for _, kind := range traceKinds {
		of := 0
		for i := range t.traces {
			if t.traces[i].kind != kind {
				continue
			}
			if ctx.Err() != nil {
				return fmt.Errorf("broken off after %d of %d; run it again to go on", done, len(t.traces))
			}
			cli.Progress(stderr, fmt.Sprintf("removing: %d of %d", done+1, len(t.traces)))
			if err := t.traces[i].remove(ctx); err != nil {
				failed = append(failed, fmt.Errorf("%s: %s: %w", kind, t.traces[i].name, err))
				continue
			}
			done++
			of++
		}
		cli.Progress(stderr, "")
		if of > 0 {
			fmt.Fprintf(stdout, "Removed: %s (%d)\n", kind, of)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d could not be removed; run it again: %w", len(failed), len(t.traces), errors.Join(failed...))
	}
	fmt.Fprintln(stdout, "Nothing of csi-fencepost is left.")
	return nil
}

// ourTaint tells our taint from a person's.
const ourTaint = corev1.TaintNodeOutOfService + "=" + evidence.OurTaintValue
