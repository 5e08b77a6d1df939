package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const (
	// idleFor is how long csi-fencepost has nothing to do before it is looked at.
	idleFor = 30 * time.Second
	// The larger cluster.
	manyNodes, manyVolumes = 100, 1000
)

// memory measures what an idle csi-fencepost holds: in a cluster with hardly
// anything in it, and in a larger one. etcd and the API server are real, nodes
// and volumes are only their objects.
func (b *bench) memory(ctx context.Context) error {
	return b.onPlane(ctx, true, func(p *plane) error {
		stage := p.bed.Stage(p, "memory", bed.StageOptions{Nodes: -1, Manual: true})
		if err := p.createNodes(stage.Driver, 0, 3); err != nil {
			return err
		}
		if err := b.idle(p, stage, "small", "resident memory, idle: 3 nodes, no volume"); err != nil {
			return err
		}
		b.progress("  making %d nodes and %d attached volumes", manyNodes, manyVolumes)
		if err := p.createNodes(stage.Driver, 3, manyNodes); err != nil {
			return err
		}
		if err := p.createPVs(stage.Driver, manyVolumes); err != nil {
			return err
		}
		if err := p.createAttachments(stage.Driver, manyVolumes); err != nil {
			return err
		}
		return b.idle(p, stage, "large", fmt.Sprintf("resident memory, idle: %d nodes, %d attached volumes", manyNodes, manyVolumes))
	})
}

// shipped are the binaries to measure, the first one built as its image's is:
// without cgo, whose C library would be resident beside it.
func (b *bench) shipped(ctx context.Context) ([]binary, error) {
	first := binary{b.fencepost[0].name, b.fencepost[0].path + "-shipped"}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", first.path,
		"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build of csi-fencepost without cgo: %w\n%s", err, out)
	}
	return append([]binary{first}, b.fencepost[1:]...), nil
}

// idle starts a csi-fencepost, leaves it alone and looks at it.
func (b *bench) idle(p *plane, stage *bed.Stage, name, what string) error {
	socket := filepath.Join(b.folder, name+".sock")
	driver, err := b.startSelf(p.ctx, roleDriver, socket, stage.Driver)
	if err != nil {
		return err
	}
	defer driver.Stop(0)
	all, err := b.shipped(p.ctx)
	if err != nil {
		return err
	}
	for i, f := range all {
		way, err := b.fencepostPath(p.ctx, f, socket, filepath.Join(b.folder, fmt.Sprintf("%s-fp%d.sock", name, i)), "--kubeconfig="+stage.ServiceAccountKubeconfig())
		if err != nil {
			return err
		}
		b.progress("  %s, %s: waiting %s", what, f.name, idleFor)
		err = sleep(p.ctx, idleFor)
		if err == nil {
			err = b.memoryRow(what, f.name, way.process)
		}
		way.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// memoryRow adds the row of a csi-fencepost's memory.
func (b *bench) memoryRow(what, path string, p *controlplane.Process) error {
	r, err := resident(p.Pid())
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{what: what, path: path, memory: r.String()})
	return nil
}

func (r residency) String() string {
	return fmt.Sprintf("%.0f / %.0f / %.0f MiB", mebibytes(r.now), mebibytes(r.own), mebibytes(r.most))
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }
func nodeID(i int) string   { return fmt.Sprintf("i-%017d", i) }

// createNodes makes the nodes from..to-1 with what a kubelet writes of them.
func (p *plane) createNodes(driver string, from, to int) error {
	return parallel(to-from, createAtOnce, func(i int) error {
		i += from
		name := metav1.ObjectMeta{Name: nodeName(i)}
		node, err := p.client.CoreV1().Nodes().Create(p.ctx, &corev1.Node{ObjectMeta: name}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		node.Status = corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: fmt.Sprintf("boot-%d", i)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
		for image := range 50 { // as many as a kubelet lists
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: 100 << 20,
				Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:%064d", image, image), fmt.Sprintf("registry.example.com/team/image-%d:v1.2.3", image)}})
		}
		if _, err := p.client.CoreV1().Nodes().UpdateStatus(p.ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if _, err := p.client.StorageV1().CSINodes().Create(p.ctx, &storagev1.CSINode{ObjectMeta: name,
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: nodeID(i)}}}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		return p.createLease(i)
	})
}

// createLease makes the lease of a node, as its kubelet does.
func (p *plane) createLease(i int) error {
	holder, seconds, now := nodeName(i), int32(40), metav1.NewMicroTime(time.Now())
	_, err := p.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(p.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: holder},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("lease of node %s: %w", holder, err)
	}
	return nil
}

// createAttachments attaches the volumes of createPVs to the nodes in turn.
func (p *plane) createAttachments(driver string, n int) error {
	return parallel(n, createAtOnce, func(i int) error {
		node, pv := nodeName(i%manyNodes), handle(i)
		va, err := p.client.StorageV1().VolumeAttachments().Create(p.ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle(i), driver, node)},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		va.Status.Attached = true
		_, err = p.client.StorageV1().VolumeAttachments().UpdateStatus(p.ctx, va, metav1.UpdateOptions{})
		return err
	})
}
