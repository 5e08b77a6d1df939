package fitness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
)

// volume is the one that the questions are about.
type volume struct {
	id      string
	context map[string]string
	name    string // of one that we create
	created bool   // and so ours to delete
	// asked are the nodes for which a publish was sent, whatever its answer, and
	// no unpublish has answered since. touched are all that ever were.
	asked, touched map[string]bool
}

// sending notes that a publish is about to be sent.
func (v *volume) sending(node string) { v.asked[node], v.touched[node] = true, true }

// capability is a single writer's.
func (r *rig) capability() *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if r.config.AccessType == setup.Block {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: r.config.FSType}}
	}
	return c
}

// makeVolume creates the volume, or takes the one that was named.
func (r *rig) makeVolume(ctx context.Context) error {
	if handle := r.config.VolumeHandle; handle != "" {
		r.volume = &volume{id: handle, context: r.config.VolumeAttributes, asked: map[string]bool{}, touched: map[string]bool{}}
		return r.checkFree(ctx)
	}
	// It is remembered before it is created: an answer may get lost.
	r.volume = &volume{name: "csi-fencepost-sanity-" + strings.ToLower(rand.Text()), asked: map[string]bool{}, touched: map[string]bool{}}
	if err := r.create(ctx); err != nil {
		if ours(err) {
			r.volume = nil // it was refused: nothing is left
		}
		return fmt.Errorf("no volume could be created (CreateVolume): %w; --volume-parameters-file, --secrets-file, --topology and --access-type say what it is to be", err)
	}
	return nil
}

func (r *rig) create(ctx context.Context) error {
	req := &spec.CreateVolumeRequest{
		Name: r.volume.name, CapacityRange: &spec.CapacityRange{RequiredBytes: r.config.VolumeSize},
		VolumeCapabilities: []*spec.VolumeCapability{r.capability()},
		Parameters:         r.config.VolumeParameters, Secrets: r.config.Secrets.CreateVolume,
	}
	if len(r.topology) > 0 {
		in := []*spec.Topology{{Segments: r.topology}}
		req.AccessibilityRequirements = &spec.TopologyRequirement{Requisite: in, Preferred: in}
	}
	return r.retry(ctx, func(ctx context.Context) error {
		return r.call(ctx, func(ctx context.Context) error {
			made, err := r.controller.CreateVolume(ctx, req)
			if err == nil {
				r.volume.id, r.volume.context, r.volume.created = made.GetVolume().GetVolumeId(), made.GetVolume().GetVolumeContext(), true
			}
			return err
		})
	})
}

// checkFree refuses a volume that somebody uses.
func (r *rig) checkFree(ctx context.Context) error {
	nodes, _, err := r.nodesOf(ctx)
	if err != nil {
		return err
	}
	if len(nodes) > 0 {
		return fmt.Errorf("--volume-handle %s is published to %s: the suite would take it away; name one that is published nowhere", r.volume.id, names(nodes))
	}
	return nil
}

// publish is one call.
func (r *rig) publish(ctx context.Context, node string) (publishContext map[string]string, err error) {
	r.volume.sending(node)
	err = r.call(ctx, func(ctx context.Context) error {
		answer, err := r.sendPublish(ctx, node)
		publishContext = answer.GetPublishContext()
		return err
	})
	return publishContext, err
}

// sendPublish may be called by many at once; the caller has noted the node.
func (r *rig) sendPublish(ctx context.Context, node string) (*spec.ControllerPublishVolumeResponse, error) {
	return r.controller.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{
		VolumeId: r.volume.id, NodeId: node, VolumeCapability: r.capability(),
		VolumeContext: r.volume.context, Secrets: r.config.Secrets.Publish,
	})
}

// unpublish is one call.
func (r *rig) unpublish(ctx context.Context, node string) error {
	if node == "" {
		return errors.New("unpublish: the node ID is empty, which means all nodes")
	}
	return r.call(ctx, func(ctx context.Context) error {
		_, err := r.controller.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{
			VolumeId: r.volume.id, NodeId: node, Secrets: r.config.Secrets.Unpublish,
		})
		return err
	})
}

// put publishes the volume to a node, for a question to begin with.
func (r *rig) put(ctx context.Context, node string) (publishContext map[string]string, err error) {
	err = r.retry(ctx, func(ctx context.Context) error {
		publishContext, err = r.publish(ctx, node)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the volume could not be published to node %s: %w", node, shown{err})
	}
	return publishContext, nil
}

// always is of a call that external-attacher tries again at any error.
func always(error) bool { return true }

// take unpublishes the volume from a node, for a question to begin with.
func (r *rig) take(ctx context.Context, node string) error {
	again := func(err error) bool { return !idempotent(err) && !ours(err) }
	err := r.retryWhile(ctx, again, func(ctx context.Context) error { return r.unpublish(ctx, node) })
	if !idempotent(err) {
		return fmt.Errorf("the volume could not be unpublished from node %s: %w", node, shown{err})
	}
	delete(r.volume.asked, node)
	return nil
}

// free unpublishes the volume from every node that was asked for, and waits until
// the driver names none.
func (r *rig) free(ctx context.Context) error {
	if r.stuck != nil {
		return r.stuck // it was waited for once
	}
	var errs []error
	for node := range r.volume.asked {
		if err := r.take(ctx, node); err != nil {
			errs = append(errs, err)
		}
	}
	if r.stuck = errors.Join(errs...); r.stuck != nil {
		return r.stuck
	}
	_, nodes, is, err := r.listed(ctx, r.config.Timeout)
	if err != nil {
		return err
	}
	if !is && len(nodes) > 0 {
		return fmt.Errorf("%s after it was unpublished everywhere the driver still names %s", r.config.Timeout, names(nodes))
	}
	return nil
}

// clean leaves nothing behind; the texts say what it had to.
func (r *rig) clean(ctx context.Context) (left []string) {
	v := r.volume
	if v == nil {
		return nil
	}
	if v.id == "" {
		// CreateVolume had no answer. It is idempotent: asked again, it names
		// what it may have made.
		if err := r.create(ctx); err != nil {
			return []string{fmt.Sprintf("volume named %s: it may exist; CreateVolume answered %s", v.name, brief(err))}
		}
	}
	for node := range v.asked {
		if err := r.take(ctx, node); err != nil {
			left = append(left, fmt.Sprintf("volume %s on node %s: %v", v.id, node, err))
		}
	}
	if !v.created {
		return left
	}
	if err := r.delete(ctx); err != nil {
		return append(left, fmt.Sprintf("volume %s: DeleteVolume answered %s", v.id, brief(err)))
	}
	return nil // what is deleted is at no node
}

// delete tries again: a detach may still be on its way, and a publish that nobody
// waits for any more may have come after it.
func (r *rig) delete(ctx context.Context) error {
	first := true
	return r.retryWhile(ctx, always, func(ctx context.Context) error {
		for node := range r.volume.touched {
			if !first {
				r.unpublish(ctx, node) // what is in the way, DeleteVolume says
			}
		}
		first = false
		return r.call(ctx, func(ctx context.Context) error {
			_, err := r.controller.DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: r.volume.id, Secrets: r.config.Secrets.DeleteVolume})
			return err
		})
	})
}
