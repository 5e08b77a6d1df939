package kubeapi

import (
	"fmt"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// naming makes one source name a holder.
type naming struct {
	source string
	name   func(r *rig, v *bed.Volume, h *node)
	// nodeStatus: it is the Node's own status that names it.
	nodeStatus bool
	// driver: nobody in Kubernetes knows of it.
	driver bool
}

var namings = []naming{
	{source: "ledger-publishing", name: func(r *rig, v *bed.Volume, h *node) { r.ledgerOf(v, h.entry(fence.Publishing)) }},
	{source: "ledger-held", name: func(r *rig, v *bed.Volume, h *node) { r.ledgerOf(v, h.entry(fence.Held)) }},
	{source: "ledger-leaving", name: func(r *rig, v *bed.Volume, h *node) { r.ledgerOf(v, h.entry(fence.Leaving)) }},
	{source: "va-attached", name: func(r *rig, v *bed.Volume, h *node) { r.attachment(v, h); r.attached(v, h) }},
	{source: "va-unattached", name: func(r *rig, v *bed.Volume, h *node) { r.attachment(v, h) }},
	{source: "va-deleting", name: func(r *rig, v *bed.Volume, h *node) { r.attachment(v, h); r.attached(v, h); r.deleting(v, h) }},
	{source: "in-use", nodeStatus: true, name: func(_ *rig, v *bed.Volume, h *node) { h.lists(v, true, false) }},
	{source: "volumes-attached", nodeStatus: true, name: func(_ *rig, v *bed.Volume, h *node) { h.lists(v, false, true) }},
	{source: "driver", driver: true, name: func(r *rig, v *bed.Volume, h *node) { r.must(r.Array.Attach(v.Handle, h.id)) }},
}

func TestEachSourceByItselfNamesAHolderThatKeepsTheVolume(t *testing.T) {
	r := newRig(t, "union", bed.StageOptions{})
	target := r.node("target")
	for _, source := range namings {
		t.Run(source.source, func(t *testing.T) {
			parts.take(t)
			r := r.in(t)
			v, h := r.volume(source.source), r.strangerNode(source.source)
			reason := fence.HolderUnknown
			who := h.name
			if source.nodeStatus {
				h, reason = r.node(source.source), fence.HolderAlive
			}
			if source.driver {
				who = h.id
			}
			source.name(r, v, h)
			r.attachment(v, target)
			r.settle()
			r.wantRefused(r.publish(v.Handle, target), reason, who)
			r.wantCalls(v.Handle)
		})
	}
}

func TestEachSourceByItselfNamesAHolderThatIsUnpublishedFirst(t *testing.T) {
	r := newRig(t, "union-idle", bed.StageOptions{})
	target := r.node("target")
	for _, source := range namings {
		if source.nodeStatus || source.source == "va-attached" {
			continue // their word is that the volume is wanted there
		}
		t.Run(source.source, func(t *testing.T) {
			parts.take(t)
			r := r.in(t)
			v, h := r.volume(source.source), r.node(source.source)
			source.name(r, v, h)
			r.attachment(v, target)
			r.settle()
			r.must(r.publish(v.Handle, target))
			r.wantCalls(v.Handle, "unpublish "+h.id, "publish "+target.id)
			r.wantAttached(v.Handle, target)
			r.wantState(v, h, fence.TakenOver)
			r.wantState(v, target, fence.Publishing)
		})
	}
}

func TestAnAttachedVolumeAttachmentThatIsNotDeletedKeepsTheVolumeOfAnIdleNode(t *testing.T) {
	r := newRig(t, "wanted", bed.StageOptions{})
	target, h, v := r.node("target"), r.node("holder"), r.volume("v")
	r.attachment(v, h)
	r.attached(v, h)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderWanted, h.name)
	r.wantCalls(v.Handle)
}

func TestTheDriversListIsReadToItsLastPage(t *testing.T) {
	r := newRig(t, "pages", bed.StageOptions{Array: func(s *array.Switches) { s.GetVolume, s.PageSize = false, 2 }})
	target, stranger := r.node("target"), r.strangerNode("stranger")
	var last *bed.Volume
	for i := range 5 {
		last = r.volume(fmt.Sprint("v", i))
	}
	r.must(r.Array.Attach(last.Handle, stranger.id))
	r.attachment(last, target)
	r.settle()
	r.wantRefused(r.publish(last.Handle, target), fence.HolderUnknown, stranger.id)
	r.wantCalls(last.Handle)
	if pages := len(r.Array.CallsOf("ListVolumes", "")); pages < 3 {
		t.Fatalf("%d pages were read, there are 3", pages)
	}
}

func TestANewLedgerAdoptsWhatTheOtherSourcesKnow(t *testing.T) {
	r := newRig(t, "adopt", bed.StageOptions{})
	for _, source := range namings {
		if source.driver || source.source[:2] == "le" {
			continue
		}
		t.Run(source.source, func(t *testing.T) {
			parts.take(t)
			r := r.in(t)
			v, user, other := r.volume(source.source), r.node(source.source+"-user"), r.node(source.source+"-other")
			user.lists(v, true, true)
			source.name(r, v, other)
			r.settle()
			r.wantRefused(r.unpublish(v.Handle, user), fence.HolderAlive, user.name)
			r.wantCalls(v.Handle)
			if e := r.wantState(v, user, fence.Held); e.Contest == nil {
				t.Errorf("the refused holder is not contested: %+v", e)
			}
			if e := r.wantState(v, other, fence.Held); e.BootID != other.boot {
				t.Errorf("adopted as %+v, without its boot ID", e)
			}
		})
	}
}

func TestTheDriversListCountsAlthoughAnUnpublishMadeTheLedger(t *testing.T) {
	r := newRig(t, "orphan", bed.StageOptions{})
	v, old, target, orphan := r.volume("v"), r.node("old"), r.node("target"), r.strangerNode("orphan")
	r.must(r.Array.Attach(v.Handle, orphan.id))
	r.must(r.Array.Attach(v.Handle, old.id))
	r.attachment(v, old)
	r.attached(v, old)
	r.deleting(v, old)
	r.settle()
	r.must(r.unpublish(v.Handle, old))
	r.gone(v, old)
	r.attachment(v, target)
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, orphan.id)
	r.wantAttached(v.Handle, orphan)
}

func TestAnAttachmentThatTheLedgerLacksProvesABypassAndIsRebuilt(t *testing.T) {
	r := newRig(t, "bypass", bed.StageOptions{})
	t.Run("its node is gone", func(t *testing.T) {
		r := r.in(t)
		v, target, h := r.volume("gone"), r.node("gone-target"), r.strangerNode("gone-holder")
		r.ledgerOf(v)
		r.attachment(v, h)
		r.attached(v, h)
		r.attachment(v, target)
		r.settle()
		r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, h.name)
		r.wantCalls(v.Handle)
	})
	t.Run("its node uses it", func(t *testing.T) {
		r := r.in(t)
		v, h := r.volume("used"), r.node("used-holder")
		r.ledgerOf(v)
		r.attachment(v, h)
		r.attached(v, h)
		h.lists(v, true, true)
		r.settle()
		r.wantRefused(r.unpublish(v.Handle, h), fence.HolderAlive, h.name)
		r.wantCalls(v.Handle)
		r.wantState(v, h, fence.Held)
	})
}
