package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// path is one way from the callers to the driver, over one connection, as a
// sidecar has one.
type path struct {
	name    string
	client  spec.ControllerClient
	conn    *grpc.ClientConn
	process *controlplane.Process // in between; nil: none
	metrics string                // URL; empty: none
}

const (
	direct     = "direct"
	spliced    = "byte splice"
	driverName = "bench.csi-fencepost.io"
)

func (b *bench) connect(name, socket string, p *controlplane.Process) (*path, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	return &path{name: name, client: spec.NewControllerClient(conn), conn: conn, process: p}, nil
}

func (p *path) close() {
	p.conn.Close()
	if p.process != nil {
		p.process.Stop(stopGrace)
	}
}

// edgePaths starts a driver and the ways to it: none in between, a byte splice,
// and every csi-fencepost, without a Kubernetes API.
func (b *bench) edgePaths(ctx context.Context) (paths []*path, stop func(), err error) {
	socket := filepath.Join(b.folder, "csi.sock")
	driver, err := b.startSelf(ctx, roleDriver, socket, driverName)
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		for _, p := range paths {
			p.close()
		}
		driver.Stop(0)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	add := func(p *path, err error) error {
		if err == nil {
			paths = append(paths, p)
		}
		return err
	}
	if err = add(b.connect(direct, socket, nil)); err != nil {
		return nil, nil, err
	}
	if err = add(b.splicePath(ctx, socket)); err != nil {
		return nil, nil, err
	}
	for i, f := range b.fencepost {
		listen := filepath.Join(b.folder, fmt.Sprintf("fp%d.sock", i))
		if err = add(b.fencepostPath(ctx, f, socket, listen, "--no-kubernetes")); err != nil {
			return nil, nil, err
		}
	}
	return paths, stop, nil
}

// splicePath starts a byte splice before the driver.
func (b *bench) splicePath(ctx context.Context, driver string) (*path, error) {
	listen := filepath.Join(b.folder, "splice.sock")
	p, err := b.startSelf(ctx, roleSplice, listen, driver)
	if err != nil {
		return nil, err
	}
	return b.connect(spliced, listen, p)
}

// fencepostPath starts a csi-fencepost before the driver.
func (b *bench) fencepostPath(ctx context.Context, f binary, driver, listen string, args ...string) (*path, error) {
	p, err := b.start(ctx, filepath.Base(listen), f.path, listen,
		append([]string{"run", "--csi-address=" + driver, "--listen=" + listen, "--http-endpoint=127.0.0.1:0"}, args...)...)
	if err != nil {
		return nil, err
	}
	way, err := b.connect(f.name, listen, p)
	if err != nil {
		return nil, err
	}
	way.metrics, err = metricsURL(p)
	return way, err
}

// measure makes calls over the path for a time, after a few that do not count.
func (p *path) measure(ctx context.Context, callers int, d time.Duration, do call) (sample, error) {
	if _, err := callFor(ctx, callers, d/10, do); err != nil {
		return sample{}, fmt.Errorf("%s: %w", p.name, err)
	}
	m, err := p.meter(ctx)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	took, err := callFor(ctx, callers, d, do)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", p.name, err)
	}
	s := sample{p50: took.quantile(.5), p99: took.quantile(.99), rate: float64(len(took)) / time.Since(began).Seconds()}
	s.cpu, s.allocs, err = m.perCall(ctx, len(took))
	return s, err
}

// meter reads what the process in between uses from its making on.
type meter struct {
	path            *path
	cpu             time.Duration
	mallocs, scrape float64 // so far; by one reading of it
}

func (p *path) meter(ctx context.Context) (m meter, err error) {
	m.path = p
	if p.metrics != "" {
		first, err := mallocs(ctx, p.metrics)
		if err != nil {
			return m, err
		}
		if m.mallocs, err = mallocs(ctx, p.metrics); err != nil {
			return m, err
		}
		m.scrape = m.mallocs - first
	}
	if p.process != nil {
		m.cpu, err = cpuTime(p.process.Pid())
	}
	return m, err
}

// perCall divides it among n calls. What a path does not have is 0.
func (m meter) perCall(ctx context.Context, n int) (cpu time.Duration, allocs float64, err error) {
	if m.path.process == nil || n == 0 {
		return 0, 0, nil
	}
	if cpu, err = cpuTime(m.path.process.Pid()); err != nil {
		return 0, 0, err
	}
	if m.path.metrics != "" {
		if allocs, err = mallocs(ctx, m.path.metrics); err != nil {
			return 0, 0, err
		}
		allocs = max(0, allocs-m.mallocs-m.scrape)
	}
	return (cpu - m.cpu) / time.Duration(n), allocs / float64(n), nil
}
