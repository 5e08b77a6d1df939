package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const (
	// waitVolumes wait for each reason, on each side, in each round.
	waitVolumes = 3
	// refusedFor is how long volumes are refused at least before a reason ends:
	// long enough for the back-offs, which double from 1 s on, to have grown past
	// half a minute.
	refusedFor = 75 * time.Second
	// endsApart is how long after one reason the next one ends, so that the
	// back-offs are met at different moments.
	endsApart = 5 * time.Second
	// waitLimit is how long after its reason's end a volume is waited for.
	waitLimit = 150 * time.Second
)

// waitOptions are those of the section backoff.
type waitOptions struct{ waits int }

func (o *waitOptions) waitFlags(set *flag.FlagSet) {
	set.IntVar(&o.waits, "waits", 1, "how often the section backoff has volumes wait for each reason")
}

// The sides that are compared. They stand on the same machines, and their reasons
// end at the same moment.
const (
	woken  = "csi-fencepost"
	asleep = "csi-fencepost that may not wake"
	alone  = "Kubernetes alone"
)

// backoff measures how long a volume that was refused still waits once the reason
// is gone. Kubernetes' back-offs have grown meanwhile: external-attacher's, 1 s to
// 5 min for each VolumeAttachment, the attach-detach controller's and the
// kubelet's, 0.5 s to 2 min for each volume. Beside csi-fencepost stands the same
// program without the right to touch VolumeAttachments, so that nothing but these
// back-offs ends the wait.
func (b *bench) backoff(ctx context.Context) error {
	if b.waits < 1 {
		return errors.New("-waits has to be more than 0")
	}
	if _, err := exec.LookPath("ipmi_sim"); err != nil {
		return errors.New("it needs the program ipmi_sim (Debian: openipmi), which is not in PATH: run make deps, or name other sections with -only")
	}
	var found []*waitLane
	for round := range b.waits {
		b.progress("  round %d of %d", round+1, b.waits)
		err := b.onShortClocks(ctx, func(p *plane) error {
			lanes, err := b.waitRound(p)
			found = append(found, lanes...)
			return err
		})
		if err != nil {
			return err
		}
	}
	b.waitTable(found)
	return nil
}

// onShortClocks is onPlane with a control plane that notices a silent node and
// detaches by force sooner: these waits come before any refusal, and are measured
// by nobody here.
func (b *bench) onShortClocks(ctx context.Context, measure func(*plane) error) (err error) {
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	p := &plane{Run: bed.NewRun(ctx, nil), ctx: ctx}
	p.bed, err = bed.Start(ctx, bed.Programs{ControlPlane: binaries, Fencepost: b.fencepost[0].path}, bed.ShortClocks, p.Failed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.bed.Stop()) }()
	config := p.bed.Cluster.Admin()
	config.QPS = -1
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	b.version("Control plane of the section backoff: Kubernetes %s, external-attacher %s",
		nestedVersion(ctx, "kubernetes", "k8s.io/kubernetes"), nestedVersion(ctx, "attacher", "github.com/kubernetes-csi/external-attacher/v4"))
	return p.Do(func() error { return measure(p) })
}

// waitRound has volumes wait for every reason at once, ends one reason after the
// other, and then sits through an outage of the API server.
func (b *bench) waitRound(p *plane) ([]*waitLane, error) {
	s := newWaitStages(p)
	cases := s.cases()
	b.progress("    %d volumes, for %d reasons", volumesOf(cases), len(cases))
	see := newWaitSight(p)
	for _, c := range cases {
		for _, l := range c.lanes {
			l.hold(see)
		}
	}
	for _, c := range cases {
		for _, l := range c.lanes {
			l.held()
		}
		if !c.fresh() {
			c.prepare()
		}
	}
	if err := s.goDark(p.ctx); err != nil {
		return nil, err
	}
	for _, c := range cases {
		c.begin()
	}
	b.progress("    the nodes are silent, the volumes are asked for elsewhere")
	if err := see.refused(p.ctx, cases); err != nil {
		return nil, err
	}
	b.progress("    all are refused; waiting %s", refusedFor)
	if err := sleep(p.ctx, refusedFor); err != nil {
		return nil, err
	}
	for _, c := range cases {
		b.progress("    ends: %s", c.ends)
		c.end()
		if err := sleep(p.ctx, endsApart); err != nil {
			return nil, err
		}
	}
	if err := b.awaitLanes(p.ctx, see, cases); err != nil {
		return nil, err
	}
	outage, err := b.outage(p, s, see)
	if err != nil {
		return nil, err
	}
	return lanesOf(append(cases, outage), see), nil
}

// outage is the last reason of a round, because all share the API server: it goes
// away while volumes are being attached.
func (b *bench) outage(p *plane, s *waitStages, see *waitSight) (*waitCase, error) {
	c := s.outage(see)
	b.progress("    the API server is away for %s", refusedFor)
	if err := p.bed.Cluster.PauseAPIServer(); err != nil {
		return nil, err
	}
	see.begins(c)
	if err := sleep(p.ctx, refusedFor); err != nil {
		return nil, err
	}
	c.end()
	b.progress("    ends: %s", c.ends)
	return c, b.awaitLanes(p.ctx, see, []*waitCase{c})
}

// awaitLanes waits until all volumes are published and their pods run, or the
// limit has passed.
func (b *bench) awaitLanes(ctx context.Context, see *waitSight, cases []*waitCase) error {
	for began := time.Now(); time.Since(began) < waitLimit; {
		if see.done(cases) {
			break
		}
		if err := sleep(ctx, pollWaits); err != nil {
			return err
		}
	}
	for _, c := range cases {
		for _, l := range c.lanes {
			b.progress("    %s", see.story(l))
		}
	}
	return nil
}

// waitTable adds the table, a line for each reason.
func (b *bench) waitTable(found []*waitLane) {
	var keys []string
	byKey := map[string]map[string][]*waitLane{}
	for _, l := range found {
		if byKey[l.key] == nil {
			keys, byKey[l.key] = append(keys, l.key), map[string][]*waitLane{}
		}
		byKey[l.key][l.side] = append(byKey[l.key][l.side], l)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Back-off: how long a volume waits on after the reason for its refusal is gone, median / greatest of %d, in seconds to 0.2; first until it is published "+
		"(its VolumeAttachment says attached), then until its pod runs. All reasons wait side by side on one control plane with real kubelets, and so do the sides. "+
		"“That may not wake” is the same program without the right to touch VolumeAttachments: what is left is the back-off of external-attacher (1 s, doubling to 5 min), "+
		"of the attach-detach controller and of the kubelet (0.5 s, doubling to 2 min). The longer the refusal, the longer these waits, and each depends on how far its back-off was when the reason went: "+
		"what is written here is for the time in the second column. The controller's begins anew whenever it changes between detaching the old node and attaching the new one (nestedpendingoperations.go, Run); "+
		"where there is no old node it does not, and nobody outside can end it: there a pod runs up to 2 min after its volume is published. Flags as deployed: `%s` for csi-fencepost, `%s` for external-attacher.\n\n",
		waitVolumes*b.waits, strings.Join(deployed, " "), strings.Join(advised, " "))
	out.WriteString("| refused because | for | it ends when | " + woken + " | " + asleep + " | " + alone + " | what wakes it |\n|" + strings.Repeat(" --- |", 7) + "\n")
	for _, key := range keys {
		sides := byKey[key]
		l := sides[woken][0]
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %s |\n", l.reason, refusedText(sides[woken]), l.ends, waitText(sides[woken]), waitText(sides[asleep]), waitText(sides[alone]), l.wakes)
	}
	b.notes = append(b.notes, strings.TrimSuffix(out.String(), "\n")+"\n")
	for _, side := range []string{woken, asleep} {
		published, running, late := b.allWaits(found, side)
		b.rows = append(b.rows, row{what: fmt.Sprintf("a volume refused for %s or more, the reasons that were measured with the right to wake and without: the reason is gone → published; → its pod runs%s", refusedFor, late),
			path: side, p50: published + "; " + running})
	}
}

// allWaits sums a side up, over the reasons that both sides of csi-fencepost have.
func (b *bench) allWaits(found []*waitLane, side string) (published, running, late string) {
	var p, r []float64
	missing := 0
	for _, l := range found {
		if l.side != side || !l.compared {
			continue
		}
		p, r = append(p, l.published...), append(r, l.running...)
		missing += waitVolumes - len(l.published)
	}
	if missing > 0 {
		late = fmt.Sprintf("; %d not within %s", missing, waitLimit)
	}
	return medianMost(p) + " s", medianMost(r) + " s", late
}

// waitText are the figures of a side for one reason.
func waitText(lanes []*waitLane) string {
	if len(lanes) == 0 {
		return "–"
	}
	var p, r []float64
	for _, l := range lanes {
		p, r = append(p, l.published...), append(r, l.running...)
	}
	text := medianMost(p) + "; " + medianMost(r)
	if missing := len(lanes)*waitVolumes - len(p); missing > 0 {
		text += fmt.Sprintf(" (%d not published within %s)", missing, waitLimit)
	}
	if missing := len(p) - len(r); missing > 0 {
		text += fmt.Sprintf(" (%d pods not running by then)", missing)
	}
	return text
}

func medianMost(figures []float64) string {
	if len(figures) == 0 {
		return "–"
	}
	s := spreadOf(figures)
	return fmt.Sprintf("%.1f / %.1f", s.median, s.most)
}

func refusedText(lanes []*waitLane) string {
	var all []float64
	for _, l := range lanes {
		all = append(all, l.refusedFor...)
	}
	if len(all) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f–%.0f s", slices.Min(all), slices.Max(all))
}
