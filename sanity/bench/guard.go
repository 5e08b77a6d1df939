package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const (
	guardVolumes = 100
	// aliveAfter is how long it takes until a node's lease was seen to change:
	// until then a node is not known to live, and more is asked about it.
	aliveAfter   = 25 * time.Second
	createAtOnce = 16
	countedRun   = 20 // pairs of calls whose requests are counted
)

// budget of requests, for the document.
const budget = "The budget of an attach cycle is 11 reads and 3 writes. A publish reads, live, the VolumeAttachment, the PersistentVolume with its ledger, " +
	"the Node, its lease and its record; it writes the ledger before the driver is called, and reads it once more after the driver's yes. " +
	"An unpublish reads the same five, and writes the ledger before the driver is called and after. " +
	"A holder more, as in a failover, costs its Node (twice where that lists the volume), lease and record besides. What retries and the watches' background add is in the attach cycle's row."

// guarded measures ControllerPublishVolume and ControllerUnpublishVolume that
// are judged and let through, on a real API server. The volumes have a
// PersistentVolume and nobody who uses them; the driver answers at once.
func (b *bench) guarded(ctx context.Context) error {
	return b.onPlane(ctx, false, func(p *plane) error {
		g, err := b.guardPaths(p)
		if err != nil {
			return err
		}
		b.progress("  waiting %s for the node to be known to live", aliveAfter)
		if err := sleep(ctx, aliveAfter); err != nil {
			return err
		}
		if err := b.countRequests(g); err != nil {
			return err
		}
		for _, n := range callerCounts {
			b.progress("  publish and unpublish, %s, %d rounds", plural(n, "caller"), b.rounds)
			found, err := alternate(b.rounds, g.paths, func(p *path) (pairSample, error) { return g.measure(p, n, 2*b.each) })
			if err != nil {
				return err
			}
			for i, p := range g.paths {
				b.pairRow(n, p, found[i], found[0])
			}
		}
		return b.storm(g)
	})
}

// guardStage is a driver with one node and many volumes on a plane.
type guardStage struct {
	*plane
	stage *bed.Stage
	node  *bed.Node
	paths []*path // direct first, the csi-fencepost of this checkout second
	// shipped is the second with the limits on requests that it ships with.
	shipped *path
}

func (b *bench) guardPaths(p *plane) (*guardStage, error) {
	g := &guardStage{plane: p, stage: p.bed.Stage(p, "guard", bed.StageOptions{Nodes: 1, Manual: true})}
	g.node = g.stage.Nodes[0]
	if err := p.createPVs(g.stage.Driver, guardVolumes); err != nil {
		return nil, err
	}
	socket := filepath.Join(b.folder, "guard.sock")
	driver, err := b.startSelf(p.ctx, roleDriver, socket, g.stage.Driver)
	if err != nil {
		return nil, err
	}
	p.Cleanup(func() { driver.Stop(0) })
	add := func(way *path, err error) (*path, error) {
		if err == nil {
			p.Cleanup(way.close)
		}
		return way, err
	}
	way, err := add(b.connect(direct, socket, nil))
	if err != nil {
		return nil, err
	}
	g.paths = []*path{way}
	kubeconfig := "--kubeconfig=" + g.stage.ServiceAccountKubeconfig()
	for i, f := range b.fencepost {
		listen := filepath.Join(b.folder, fmt.Sprintf("guard%d.sock", i))
		way, err := add(b.fencepostPath(p.ctx, f, socket, listen, kubeconfig, "--kube-api-qps=100000", "--kube-api-burst=100000"))
		if err != nil {
			return nil, err
		}
		g.paths = append(g.paths, way)
	}
	g.shipped, err = add(b.fencepostPath(p.ctx, b.fencepost[0], socket, filepath.Join(b.folder, "shipped.sock"), kubeconfig))
	return g, err
}

// createPVs makes PersistentVolumes with the handles of handle.
func (p *plane) createPVs(driver string, n int) error {
	return parallel(n, createAtOnce, func(i int) error {
		_, err := p.client.CoreV1().PersistentVolumes().Create(p.ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: handle(i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				StorageClassName:              "bench",
				PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle(i)}},
			}}, metav1.CreateOptions{})
		return err
	})
}

// parallel does n things, some at once, and returns an error of one that failed.
func parallel(n, atOnce int, do func(i int) error) error {
	var (
		work  sync.WaitGroup
		slots = make(chan struct{}, atOnce)
		errs  = make([]error, n)
	)
	for i := range n {
		slots <- struct{}{}
		work.Go(func() {
			errs[i] = do(i)
			<-slots
		})
	}
	work.Wait()
	return cmp.Or(errs...)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (g *guardStage) publish(p *path, i int) error {
	_, err := p.client.ControllerPublishVolume(g.ctx, publishRequest(handle(i), g.node.ID))
	return err
}

func (g *guardStage) unpublish(p *path, i int) error {
	_, err := p.client.ControllerUnpublishVolume(g.ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: handle(i), NodeId: g.node.ID})
	return err
}

// pairSample is one measurement of publishes and unpublishes.
type pairSample struct {
	publish, unpublish sample
	read               time.Duration // of one PersistentVolume, at the same time
}

// measure lets each caller publish and unpublish a volume of its own, again and
// again.
func (g *guardStage) measure(p *path, callers int, d time.Duration) (s pairSample, err error) {
	var publishes, unpublishes, reads collector
	pair := func(_ context.Context, caller int) error {
		return cmp.Or(
			publishes.time(func() error { return g.publish(p, caller) }),
			unpublishes.time(func() error { return g.unpublish(p, caller) }))
	}
	if _, err := callFor(g.ctx, callers, d/10, pair); err != nil {
		return s, fmt.Errorf("%s: %w", p.name, err)
	}
	for range 20 {
		err := reads.time(func() error {
			_, err := g.client.CoreV1().PersistentVolumes().Get(g.ctx, handle(0), metav1.GetOptions{})
			return err
		})
		if err != nil {
			return s, err
		}
	}
	publishes, unpublishes = collector{}, collector{}
	m, err := p.meter(g.ctx)
	if err != nil {
		return s, err
	}
	began := time.Now()
	pairs, err := callFor(g.ctx, callers, d, pair)
	if err != nil {
		return s, fmt.Errorf("%s: %w", p.name, err)
	}
	rate := 2 * float64(len(pairs)) / time.Since(began).Seconds()
	cpu, allocs, err := m.perCall(g.ctx, 2*len(pairs))
	of := func(c *collector) sample {
		all := c.sorted()
		return sample{p50: all.quantile(.5), p99: all.quantile(.99), rate: rate, cpu: cpu, allocs: allocs}
	}
	return pairSample{publish: of(&publishes), unpublish: of(&unpublishes), read: reads.sorted().quantile(.5)}, err
}

// collector keeps the durations of what goroutines do.
type collector struct {
	mu  sync.Mutex
	all latencies
}

func (c *collector) time(do func() error) error {
	began := time.Now()
	err := do()
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, took)
	return err
}

func (c *collector) sorted() latencies {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.all))
}

// pairRow adds the rows of one path: what csi-fencepost adds to the driver's own
// time, and that in proportion to one read of the same API server.
func (b *bench) pairRow(callers int, p *path, own, base []pairSample) {
	for _, c := range []struct {
		name string
		of   func(pairSample) sample
	}{
		{"ControllerPublishVolume", func(s pairSample) sample { return s.publish }},
		{"ControllerUnpublishVolume", func(s pairSample) sample { return s.unpublish }},
	} {
		r := row{path: p.name, what: fmt.Sprintf("judged and allowed: %s, %s", c.name, plural(callers, "caller"))}
		p50 := func(s pairSample) float64 { return c.of(s).p50.Seconds() * 1e3 }
		p99 := func(s pairSample) float64 { return c.of(s).p99.Seconds() * 1e3 }
		r.rate = figures(own, func(s pairSample) float64 { return c.of(s).rate }).text(0) + " /s"
		if p.process == nil {
			r.p50 = figures(own, p50).text(2) + " ms"
			r.p99 = figures(own, p99).text(2) + " ms"
		} else {
			inReads := figures(own, func(s pairSample) float64 { return c.of(s).p50.Seconds() / s.read.Seconds() })
			r.p50 = "+ " + differences(own, base, p50).text(1) + " ms; " + inReads.text(1) + " × one API read"
			r.p99 = "+ " + differences(own, base, p99).text(1) + " ms"
			r.cpu = figures(own, func(s pairSample) float64 { return c.of(s).cpu.Seconds() * 1e6 }).text(0) + " µs"
			r.allocs = figures(own, func(s pairSample) float64 { return c.of(s).allocs }).text(0)
		}
		b.rows = append(b.rows, r)
	}
}

// countRequests counts what one publish and one unpublish ask of the API server.
func (b *bench) countRequests(g *guardStage) error {
	way := g.paths[1]
	for _, c := range []struct {
		name string
		call func(*path, int) error
	}{{"ControllerPublishVolume", g.publish}, {"ControllerUnpublishVolume", g.unpublish}} {
		if _, err := g.audit.next(g.stage.Name); err != nil {
			return err
		}
		for i := range countedRun {
			if err := c.call(way, i); err != nil {
				return err
			}
		}
		asked, err := g.audit.next(g.stage.Name)
		if err != nil {
			return err
		}
		reads, writes, kinds := asked.of(countedRun)
		b.rows = append(b.rows, row{path: way.name, what: fmt.Sprintf("judged and allowed: requests of one %s", c.name),
			api: fmt.Sprintf("%.3g + %.3g (%s)", reads, writes, kinds)})
	}
	b.note("%s", budget)
	return nil
}

// storm publishes every volume at once, with the limits that are shipped.
func (b *bench) storm(g *guardStage) error {
	b.progress("  %d publishes at once, with the limits that are shipped", guardVolumes)
	var took [2]time.Duration
	for i, way := range []*path{g.paths[0], g.shipped} {
		began := time.Now()
		if err := parallel(guardVolumes, guardVolumes, func(volume int) error { return g.publish(way, volume) }); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	b.rows = append(b.rows, row{path: g.shipped.name + " with --kube-api-qps and --kube-api-burst as shipped",
		what: fmt.Sprintf("judged and allowed: %d ControllerPublishVolume at once, until the last is answered; measured once", guardVolumes),
		p50:  fmt.Sprintf("%.1f s (direct: %.2f s)", took[1].Seconds(), took[0].Seconds())})
	return nil
}
