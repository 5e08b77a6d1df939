package array

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// noted are file systems that only note what is asked of them.
type noted struct {
	mu     sync.Mutex
	asked  []string
	failed error

	written atomic.Int64
}

func (n *noted) note(words ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, strings.Join(words, " "))
	return n.failed
}

func (n *noted) Stage(_ context.Context, node, volume, _ string) error {
	return n.note("stage", node, volume)
}

func (n *noted) Unstage(_ context.Context, node, volume, _ string) error {
	return n.note("unstage", node, volume)
}

func (n *noted) Publish(_ context.Context, node, volume, _, _ string, _ bool) error {
	return n.note("publish", node, volume)
}

func (n *noted) Unpublish(_ context.Context, node, volume, _ string) error {
	return n.note("unpublish", node, volume)
}

func (n *noted) Written(string, string) int64 { return n.written.Load() }

func (n *noted) Revoke(node, volume string) { _ = n.note("revoke", node, volume) }

func TestRealFileSystemsAreMountedBeforeTheBooksAreChanged(t *testing.T) {
	mounts := &noted{}
	a := New(Options{Mounts: mounts})
	defer a.Close()
	if err := errors.Join(a.CreateVolume("v", VolumeOptions{}), a.AddMachine("n")); err != nil {
		t.Fatal(err)
	}
	node := &nodeService{array: a, nodeID: "n"}
	capability := &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	staging, target := t.TempDir(), t.TempDir()
	stage := func() error {
		_, err := node.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: staging, VolumeCapability: capability})
		return err
	}
	if err := stage(); status.Code(err) != codes.FailedPrecondition || len(mounts.asked) > 0 {
		t.Errorf("a volume that is not attached is staged: %v, %q", err, mounts.asked)
	}
	if err := a.Attach("v", "n"); err != nil {
		t.Fatal(err)
	}
	mounts.failed = errors.New("mount: wrong fs type")
	if err := stage(); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "wrong fs type") || a.machines["n"].mounts["v"] != nil {
		t.Errorf("a mount that fails: %v, and the books say %v", err, a.machines["n"].mounts)
	}
	mounts.failed, mounts.asked = nil, nil
	publish := &spec.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability}
	if err := stage(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.NodePublishVolume(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.detachLocked(a.volumes["v"], "n", "by a call")
	a.mu.Unlock()
	if _, err := node.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}); err != nil {
		t.Error(err)
	}
	if _, err := node.NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: staging}); err != nil {
		t.Error(err)
	}
	want := []string{"stage n v", "publish n v", "revoke n v", "unpublish n v", "unstage n v"}
	if !slices.Equal(mounts.asked, want) {
		t.Errorf("asked for %q, want %q", mounts.asked, want)
	}
}

// The books count what real containers write, and nothing else.
func TestOnlyRealWritesCountWhereThereAreSome(t *testing.T) {
	mounts := &noted{}
	mounts.written.Store(100) // an earlier container's
	a := New(Options{Mounts: mounts})
	defer a.Close()
	if err := errors.Join(a.CreateVolume("v", VolumeOptions{}), a.AddMachine("n"), a.Attach("v", "n")); err != nil {
		t.Fatal(err)
	}
	node := &nodeService{array: a, nodeID: "n"}
	capability := &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	staging := t.TempDir()
	_, err := node.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: staging, VolumeCapability: capability})
	_, failed := node.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: staging, TargetPath: t.TempDir(), VolumeCapability: capability})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * DefaultWriteEvery)
	if writes := a.Writes("v"); len(writes) > 0 {
		t.Errorf("the container has written nothing, and the books say %+v", writes)
	}
	mounts.written.Add(7)
	if err := a.WaitWrites(t.Context(), "v", "n", 1); err != nil {
		t.Error(err)
	}
	time.Sleep(20 * DefaultWriteEvery)
	if writes := a.Writes("v"); len(writes) != 1 || writes[0].Accepted != 1 || time.Since(writes[0].Last) < 10*DefaultWriteEvery {
		t.Errorf("what was written between two looks counts once, and is no write of later; the books say %+v", writes)
	}
}
