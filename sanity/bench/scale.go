package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const (
	// settleFor is how long nothing happens before memory is looked at, churnFor
	// how long leases and Nodes are renewed: each at least once.
	settleFor, churnFor = 30 * time.Second, statusEvery + 30*time.Second
	// readyTimeout is long, since the machine is busy with others.
	readyTimeout = 15 * time.Minute
)

// scale measures what a csi-fencepost holds in clusters that no real API server
// carries on this machine. Its objects have the size of real ones.
func (b *bench) scale(ctx context.Context) error {
	for _, c := range []scaleCase{
		{cluster{nodes: 500, volumes: 10_000}, residencyGoal{settled: 64, peak: 64}},
		{cluster{nodes: 5_000, volumes: 100_000}, residencyGoal{settled: 128, peak: 128}},
		{cluster{nodes: 5_000, volumes: 100_000, paged: true}, residencyGoal{settled: 128, peak: 128}},
	} {
		c.driver = driverName
		if err := b.scaled(ctx, &c); err != nil {
			return err
		}
	}
	b.note("Scale: a feigned API server (HTTP/2, protobuf, WatchList or, where that is said, lists in pages) shows objects of the size of real ones: PersistentVolume %d bytes with its ledger, VolumeAttachment %d, Node %d with 20 volumes of the driver, 50 images. "+
		"Settled: %s after ready, with nothing changing. Churn: each lease renewed every %s and each Node's status every %s, as kubelets do, for %s, so each at least once; the greatest of a look each second. What is resident beside its own memory are pages of the program file: most of that is the code of the Kubernetes API's groups, which client-go links and registers whether they are used or not, and a kernel with large folios maps up to 2 MiB more or less of it from run to run. That is what a goal is missed by that is missed by less.",
		sizeOf(&cluster{driver: driverName, nodes: 1, volumes: 20}, "pv"), sizeOf(&cluster{driver: driverName, nodes: 1, volumes: 20}, "va"),
		sizeOf(&cluster{driver: driverName, nodes: 1, volumes: 20}, "node"), settleFor, leaseEvery, statusEvery, churnFor)
	return nil
}

func sizeOf(c *cluster, kind string) int {
	switch kind {
	case "pv":
		return c.volume(0).Size()
	case "va":
		return c.attachment(0).Size()
	}
	return c.node(0, 1).Size()
}

// scaleCase is a cluster, and what is wanted of it.
type scaleCase struct {
	cluster
	goal residencyGoal
}

// residencyGoal is the memory, in MiB, that is to be resident once nothing changes,
// and at most.
type residencyGoal struct{ settled, peak float64 }

func (b *bench) scaled(ctx context.Context, c *scaleCase) error {
	all, err := b.shipped(ctx)
	if err != nil {
		return err
	}
	for i, f := range all {
		server := feign(&c.cluster)
		err := b.scaledOne(ctx, server, f, fmt.Sprintf("scale-%d-%v-%d", c.volumes, c.paged, i), c.goal)
		server.CloseClientConnections()
		server.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// scaledOne starts one csi-fencepost on the server and watches it.
func (b *bench) scaledOne(ctx context.Context, server *feigned, f binary, name string, goal residencyGoal) error {
	socket, listen, kubeconfig := filepath.Join(b.folder, name+".sock"), filepath.Join(b.folder, name+"-fp.sock"), filepath.Join(b.folder, name+".kubeconfig")
	driver, err := b.startSelf(ctx, roleDriver, socket, server.driver)
	if err != nil {
		return err
	}
	defer driver.Stop(0)
	if err := server.kubeconfig(kubeconfig); err != nil {
		return err
	}
	began := time.Now()
	p, err := controlplane.StartProcess(controlplane.ProcessOptions{Name: name, Path: f.path, LogFile: filepath.Join(b.folder, name+".log"),
		Args: []string{"run", "--csi-address=" + socket, "--listen=" + listen, "--http-endpoint=127.0.0.1:0", "--kubeconfig=" + kubeconfig, "--leader-election"}})
	if err != nil {
		return err
	}
	defer p.Stop(stopGrace)
	if err := p.Serving(ctx, listen, readyTimeout); err != nil {
		return err
	}
	ready := time.Since(began)
	used, err := cpuTime(p.Pid())
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d volumes on %d nodes, feigned API server%s", server.volumes, server.nodes, map[bool]string{true: " without WatchList"}[server.paged])
	b.progress("  %s, %s: ready after %s", what, f.name, ready.Round(time.Millisecond))
	if err := sleep(ctx, settleFor); err != nil {
		return err
	}
	settled, err := resident(p.Pid())
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{what: what + ": settled; p50: start to ready", path: f.name, memory: settled.String(),
		p50: fmt.Sprintf("%.1f s, of that CPU %.1f s", ready.Seconds(), used.Seconds())})
	// Once it was listed, it is watched in the same way.
	if !server.paged {
		if err := b.churn(ctx, server, p, what, f.name); err != nil {
			return err
		}
	}
	end, err := resident(p.Pid())
	if err != nil {
		return err
	}
	if f.name == b.fencepost[0].name {
		b.limit(what+": settled", goal.settled, mebibytes(settled.now), "MiB")
		b.limit(what+": at most, start and churn included", goal.peak, mebibytes(end.most), "MiB")
	}
	return nil
}

// churn has a cluster's kubelets renew what they renew, and adds a row.
func (b *bench) churn(ctx context.Context, server *feigned, p *controlplane.Process, what, path string) error {
	before, err := cpuTime(p.Pid())
	if err != nil {
		return err
	}
	server.churns.Store(true)
	var most residency
	for began := time.Now(); time.Since(began) < churnFor; {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		r, err := resident(p.Pid())
		if err != nil {
			return err
		}
		if r.now > most.now {
			most = r
		}
	}
	after, err := cpuTime(p.Pid())
	if err != nil {
		return err
	}
	leases, statuses := server.leases.Load(), server.statuses.Load()
	if nodes := int64(server.nodes); leases < nodes || statuses < nodes {
		return fmt.Errorf("%s: in %s only %d leases and %d statuses of Nodes were renewed", what, churnFor, leases, statuses)
	}
	b.progress("  %s, %s: %d leases and %d statuses of Nodes were renewed", what, path, leases, statuses)
	b.rows = append(b.rows, row{what: what + ": churn", path: path, memory: most.String(),
		cpu: fmt.Sprintf("%.1f %% of a core", 100*(after-before).Seconds()/churnFor.Seconds())})
	return nil
}
