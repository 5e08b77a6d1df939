package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// plane is a real control plane whose audit log is read. It is what stages stand
// on and fail through (bed.T): a failure ends the section, see onPlane.
type plane struct {
	*bed.Run
	ctx    context.Context
	bed    *bed.Bed
	client kubernetes.Interface // without a limit on requests
	audit  *auditLog
}

// onPlane starts a control plane, bare (etcd and API server alone) or whole, and
// lets measure use it.
func (b *bench) onPlane(ctx context.Context, bare bool, measure func(*plane) error) (err error) {
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	b.progress("  starting a control plane")
	p := &plane{Run: bed.NewRun(ctx, nil), ctx: ctx}
	policy, log := filepath.Join(b.folder, "audit-policy.yaml"), filepath.Join(b.folder, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier plane
		return err
	}
	cluster, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries, NoControllers: bare, ControllerManagerArgs: b.manager, SchedulerArgs: b.scheduler,
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"}})
	if err != nil {
		return err
	}
	p.audit = &auditLog{path: log}
	p.bed = &bed.Bed{Cluster: cluster, Clocks: bed.RealClocks, Fencepost: b.fencepost[0].path, Bare: bare}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	return p.Do(func() error {
		if err := p.connect(b); err != nil {
			return err
		}
		return measure(p)
	})
}

func (p *plane) connect(b *bench) error {
	config := p.bed.Cluster.Admin()
	config.QPS = -1
	var err error
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	b.version("Control plane, all on this machine: Kubernetes %s, etcd %s, external-attacher %s",
		nestedVersion(p.ctx, "kubernetes", "k8s.io/kubernetes"), nestedVersion(p.ctx, "etcd", "go.etcd.io/etcd/server/v3"),
		nestedVersion(p.ctx, "attacher", "github.com/kubernetes-csi/external-attacher/v4"))
	return nil
}

// version adds a line about what is measured, once.
func (b *bench) version(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.versions, text) {
		b.versions = append(b.versions, text)
	}
}
