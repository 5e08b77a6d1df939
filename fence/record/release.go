package record

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Life is what was known of a machine when a person released a volume from it.
type Life string

const (
	// Living means that the holder's Node was heard, and did not list the volume. The person has
	// looked there. The release counts in that boot while nothing there can use the volume again.
	Living Life = "living"
	// Silent means that the holder's lease was watched, unchanged. The release counts as long as
	// that holds.
	Silent Life = "silent"
	// Gone means that the holder had no Node, or not that one any more.
	Gone Life = "gone"
)

// Release is an operator's word that one volume is free of one machine. It is bound
// as a confirmation is, and to one publication besides.
type Release struct {
	ID string `json:"id"`
	// Volume is the CSI volume handle.
	Volume  string `json:"volume"`
	Driver  string `json:"driver"`
	NodeID  string `json:"nodeID"`
	NodeUID string `json:"nodeUID,omitempty"`
	BootID  string `json:"bootID,omitempty"`
	// SystemUUID tells the machine from one that takes over its Node.
	SystemUUID string `json:"systemUUID,omitempty"`
	LeaseRV    string `json:"leaseRV,omitempty"`
	// Life is empty in a release that an older version wrote, which is bound to no
	// boot and no lease: it does not count.
	Life Life `json:"life,omitempty"`
	// Attachment is the UID of the VolumeAttachment that was being deleted when the
	// volume of a Living node was released; empty: there was none. By another one, or by
	// one that is not being deleted, pods may use the volume again.
	Attachment string `json:"attachment,omitempty"`
	// Token of the ledger entry that was released; a later publication has another
	// one. Empty, in a release of an older version: it counts for nobody.
	Token  string `json:"token,omitempty"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// At, RFC 3339 on the writer's clock, is for people.
	At string `json:"at"`
	// Void says why it does not count any more.
	Void string `json:"void,omitempty"`

	Later format.Later `json:",embed"`
}

func (rel *Release) validate() error {
	switch {
	case rel.ID == "":
		return errors.New("it has no id")
	case rel.Volume == "" || rel.Driver == "" || rel.NodeID == "":
		return errors.New("it does not name volume, driver and nodeID")
	case rel.By == "" || rel.Reason == "":
		return errors.New("it does not say by whom and why")
	}
	switch rel.Life {
	case "", Living, Silent, Gone:
		return nil
	}
	return fmt.Errorf("its life is %q, neither %s, %s nor %s", rel.Life, Living, Silent, Gone)
}

// ReleaseOf is a release from that holder, bound to what is known of it: the rest, and
// why, is the caller's.
func ReleaseOf(h *fence.Holder) Release {
	rel := Release{NodeID: h.NodeID, NodeUID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID, Token: h.Token, Life: Gone}
	n := h.Here()
	switch {
	case n == nil:
		return rel
	case h.Liveness == fence.Stale, h.Liveness == fence.Unknown:
		rel.Life, rel.LeaseRV = Silent, h.LeaseRV
	default:
		rel.Life = Living
		if h.Detaching() {
			rel.Attachment = h.Attachment.UID
		}
	}
	rel.BootID = n.BootID
	return rel
}

// Ended is why the record says that the release does not count; empty: it may.
func (rel *Release) Ended() string {
	if rel.Life == "" {
		return fence.VoidOlderVersion
	}
	return rel.Void
}

// Evidence is the release as evidence, void where the record says so.
func (rel *Release) Evidence() fence.Evidence {
	return fence.Evidence{Kind: fence.VolumeRelease, Source: rel.By, Detail: rel.Reason,
		NodeID: rel.NodeID, NodeUID: rel.NodeUID, BootID: rel.BootID, SystemUUID: rel.SystemUUID, LeaseRV: rel.LeaseRV,
		Living: rel.Life == Living, Attachment: rel.Attachment, Void: rel.Ended()}
}

// ReleaseVolume adds an operator's release of one volume from the node, in
// place of an earlier one for the same volume and node ID. An empty ID is made
// up, At is written here. The ID is returned.
func (s *Store) ReleaseVolume(ctx context.Context, node string, rel Release) (id string, err error) {
	if rel.ID == "" {
		rel.ID = string(uuid.NewUUID())
	}
	rel.At, rel.By, rel.Reason, rel.Void = now(), clip(rel.By), clip(rel.Reason), ""
	err = rel.validate()
	if err == nil && (rel.Token == "" || rel.Life == "") {
		err = errors.New("it is not bound to a publication (token) and to what is known of the machine's life")
	}
	if err != nil {
		return "", fmt.Errorf("release from node %s: %w", node, err)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		if slices.ContainsFunc(r.Releases, func(old Release) bool { return old.ID == rel.ID }) {
			return false, nil // our own write, whose answer was lost
		}
		r.Releases = slices.DeleteFunc(r.Releases, func(old Release) bool {
			return old.Driver == rel.Driver && old.Volume == rel.Volume && old.NodeID == rel.NodeID
		})
		r.AddRelease(rel)
		return true, nil
	})
	return rel.ID, err
}

// AddRelease adds rel, for which the caller vouches (Vouched). For the change of an
// Update.
func (r *Record) AddRelease(rel Release) {
	r.Releases = append(r.Releases, rel)
	r.vouch(&rel)
	r.audit(rel.By, "ReleaseVolume", fmt.Sprintf("volume %s of driver %s from node ID %s: %s", rel.Volume, rel.Driver, rel.NodeID, rel.Reason))
}

// VoidRelease writes down why a release does not count any more.
func (s *Store) VoidRelease(ctx context.Context, node, id, why, actor string) (*Record, error) {
	return s.Update(ctx, node, func(r *Record) (bool, error) {
		for i := range r.Releases {
			if rel := &r.Releases[i]; rel.ID == id && rel.Void == "" {
				rel.Void = clip(why)
				r.audit(actor, "VoidRelease", id+", volume "+rel.Volume+": "+why)
				return true, nil
			}
		}
		return false, nil
	})
}

// WithdrawReleases takes back the releases of the node that chosen names, and returns
// them as they were.
func (s *Store) WithdrawReleases(ctx context.Context, node, by, reason string, chosen func(*Release) bool) (withdrawn []Release, err error) {
	if by == "" || reason == "" {
		return nil, fmt.Errorf("withdrawal for node %s: it does not say by whom and why", node)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		withdrawn = nil
		r.Releases = slices.DeleteFunc(r.Releases, func(rel Release) bool {
			if !chosen(&rel) {
				return false
			}
			withdrawn = append(withdrawn, rel)
			r.audit(by, "WithdrawRelease", rel.ID+", volume "+rel.Volume+": "+reason)
			return true
		})
		return len(withdrawn) > 0, nil
	})
	if err != nil {
		return nil, err
	}
	return withdrawn, nil
}
