package record

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Release is an operator's word that one volume is free of one node.
type Release struct {
	ID string `json:"id"`
	// Volume is the CSI volume handle.
	Volume  string `json:"volume"`
	Driver  string `json:"driver"`
	NodeID  string `json:"nodeID"`
	NodeUID string `json:"nodeUID,omitempty"`
	// Token of the ledger entry that was released; a later publication has
	// another one. Empty: the holder was not in the ledger.
	Token  string `json:"token,omitempty"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// At, RFC 3339 on the writer's clock, is for people.
	At string `json:"at"`

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
	return nil
}

// ReleaseVolume adds an operator's release of one volume from the node, in
// place of an earlier one for the same volume and node ID. An empty ID is made
// up, At is written here. The ID is returned.
func (s *Store) ReleaseVolume(ctx context.Context, node string, rel Release) (id string, err error) {
	if rel.ID == "" {
		rel.ID = string(uuid.NewUUID())
	}
	rel.At, rel.By, rel.Reason = now(), clip(rel.By), clip(rel.Reason)
	if err := rel.validate(); err != nil {
		return "", fmt.Errorf("release from node %s: %w", node, err)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		if slices.ContainsFunc(r.Releases, func(old Release) bool { return old.ID == rel.ID }) {
			return false, nil // our own write, whose answer was lost
		}
		r.Releases = slices.DeleteFunc(r.Releases, func(old Release) bool {
			return old.Driver == rel.Driver && old.Volume == rel.Volume && old.NodeID == rel.NodeID
		})
		r.Releases = append(r.Releases, rel)
		r.audit(rel.By, "ReleaseVolume", fmt.Sprintf("volume %s of driver %s from node ID %s: %s", rel.Volume, rel.Driver, rel.NodeID, rel.Reason))
		return true, nil
	})
	return rel.ID, err
}
