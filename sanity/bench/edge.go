package main

import (
	"context"
	"fmt"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

var capability = &spec.VolumeCapability{
	AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: "ext4"}},
	AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

// A handle is as long as most drivers'.
func handle(i int) string { return fmt.Sprintf("pvc-%08d-1b2d-4e5f-8a9b-0c1d2e3f4a5b", i) }

func validate(p *path) call {
	return func(ctx context.Context, caller int) error {
		_, err := p.client.ValidateVolumeCapabilities(ctx, &spec.ValidateVolumeCapabilitiesRequest{
			VolumeId: handle(caller), VolumeCapabilities: []*spec.VolumeCapability{capability}})
		return err
	}
}

func publishRequest(volume, node string) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: capability,
		VolumeContext: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-" + driverName}}
}

func publish(p *path) call {
	return func(ctx context.Context, caller int) error {
		_, err := p.client.ControllerPublishVolume(ctx, publishRequest(handle(caller), "i-0123456789abcdef0"))
		return err
	}
}

func listVolumes(p *path) call {
	return func(ctx context.Context, _ int) error {
		_, err := p.client.ListVolumes(ctx, &spec.ListVolumesRequest{})
		return err
	}
}

var callerCounts = []int{1, 10, 100}

func (b *bench) passThrough(ctx context.Context) error {
	return b.edge(ctx, "pass-through: ValidateVolumeCapabilities", callerCounts, b.each, validate)
}

func (b *bench) intercepted(ctx context.Context) error {
	return b.edge(ctx, "intercepted, forwarded unjudged: ControllerPublishVolume", callerCounts, b.each, publish)
}

func (b *bench) list(ctx context.Context) error {
	what := fmt.Sprintf("pass-through: ListVolumes of %.1f MB", float64(listedBytes())/1e6)
	return b.edge(ctx, what, []int{1, 10}, 2*b.each, listVolumes)
}

// edge measures one kind of call over every path.
func (b *bench) edge(ctx context.Context, what string, callers []int, each time.Duration, do func(*path) call) error {
	paths, stop, err := b.edgePaths(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, n := range callers {
		b.progress("  %s, %s, %d rounds", what, plural(n, "caller"), b.rounds)
		found, err := alternate(b.rounds, paths, func(p *path) (sample, error) { return p.measure(ctx, n, each, do(p)) })
		if err != nil {
			return err
		}
		for i, p := range paths {
			b.edgeRow(what, n, p, found[i], found[0])
		}
	}
	return nil
}

// edgeRow adds the row of one path; the first path's figures are absolute, the
// others' in proportion to them.
func (b *bench) edgeRow(what string, callers int, p *path, own, base []sample) {
	p50 := func(s sample) float64 { return float64(s.p50.Microseconds()) }
	p99 := func(s sample) float64 { return float64(s.p99.Microseconds()) }
	rate := func(s sample) float64 { return s.rate }
	r := row{what: fmt.Sprintf("%s, %s", what, plural(callers, "caller")), path: p.name}
	if p.process == nil {
		r.p50 = figures(own, p50).text(0) + " µs"
		r.p99 = figures(own, p99).text(0) + " µs"
		r.rate = figures(own, rate).text(0) + " /s"
	} else {
		r.p50 = "× " + ratios(own, base, p50).text(2)
		r.p99 = "× " + ratios(own, base, p99).text(2)
		r.rate = "× " + ratios(own, base, rate).text(2)
		r.cpu = figures(own, func(s sample) float64 { return float64(s.cpu.Nanoseconds()) / 1e3 }).text(0) + " µs"
	}
	if p.metrics != "" {
		r.allocs = figures(own, func(s sample) float64 { return s.allocs }).text(0)
	}
	b.rows = append(b.rows, r)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
