package record

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Machine is what a confirmation is bound to. One node may be several: under
// another node ID for each driver, or an old machine of that name that still
// holds volumes.
//
// BootID and LeaseRV are those of the live Node with that UID. Where it is
// gone, BootID is the ledger's and LeaseRV stays empty, even if a lease of that
// name is there: an empty LeaseRV says that the claim was made without a Node.
type Machine struct {
	// NodeID of one driver; empty: of any.
	NodeID  string `json:"nodeID,omitempty"`
	NodeUID string `json:"nodeUID,omitempty"`
	BootID  string `json:"bootID,omitempty"`
	// SystemUUID tells the machine from one that takes over its Node.
	SystemUUID string `json:"systemUUID,omitempty"`
	LeaseRV    string `json:"leaseRV,omitempty"`
	// Void says why it does not count any more of this machine.
	Void string `json:"void,omitempty"`

	Later format.Later `json:",embed"`
}

// Is the machine, as package fence compares it.
func (m Machine) Is() fence.Machine {
	return fence.Machine{NodeUID: m.NodeUID, NodeID: m.NodeID, BootID: m.BootID, SystemUUID: m.SystemUUID}
}

// Equal tells whether both say the same of the same machine.
func (m Machine) Equal(o Machine) bool { return reflect.DeepEqual(m, o) }

// Confirmation is an operator's word that the node's machines are off.
type Confirmation struct {
	ID     string `json:"id"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// At, RFC 3339 on the writer's clock, is for people.
	At       string    `json:"at"`
	Machines []Machine `json:"machines"`
	// Void says why it does not count any more, of any machine.
	Void string `json:"void,omitempty"`

	Later format.Later `json:",embed"`
}

func (c *Confirmation) validate() error {
	switch {
	case c.ID == "":
		return errors.New("it has no id")
	case c.By == "" || c.Reason == "":
		return errors.New("it does not say by whom and why")
	case len(c.Machines) == 0:
		return errors.New("it names no machine")
	case len(c.Machines) > maxMachines:
		return fmt.Errorf("it names %d machines, more than %d", len(c.Machines), maxMachines)
	}
	for _, m := range c.Machines {
		if m.NodeID == "" && m.NodeUID == "" {
			return errors.New("a machine has neither nodeID nor nodeUID")
		}
	}
	return nil
}

// Confirm adds an operator's confirmation. c says by whom, why and of which
// machines; an empty ID is made up, At is written here. The ID is returned.
func (s *Store) Confirm(ctx context.Context, node string, c Confirmation) (id string, err error) {
	if c.ID == "" {
		c.ID = string(uuid.NewUUID())
	}
	c.At, c.By, c.Reason, c.Void = now(), clip(c.By), clip(c.Reason), ""
	if err := c.validate(); err != nil {
		return "", fmt.Errorf("confirmation of node %s: %w", node, err)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		if slices.ContainsFunc(r.Confirmations, func(old Confirmation) bool { return old.ID == c.ID }) {
			return false, nil // our own write, whose answer was lost
		}
		r.AddConfirmation(c)
		return true, nil
	})
	return c.ID, err
}

// AddConfirmation adds c, for which the caller vouches (Vouched). For the change of an
// Update.
func (r *Record) AddConfirmation(c Confirmation) {
	r.Confirmations = append(r.Confirmations, c)
	for i := range c.Machines {
		r.vouch(c.Of(&c.Machines[i]))
	}
	r.audit(c.By, "Confirm", c.ID+": "+c.Reason)
}

// Withdraw takes confirmations of the node back: those with these IDs, or all
// if none is named. It returns how many there were. An unknown ID is an error
// and nothing is withdrawn.
func (s *Store) Withdraw(ctx context.Context, node, by, reason string, ids ...string) (withdrawn int, err error) {
	if by == "" || reason == "" {
		return 0, fmt.Errorf("withdrawal for node %s: it does not say by whom and why", node)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		withdrawn = 0
		for _, id := range ids {
			if !slices.ContainsFunc(r.Confirmations, func(c Confirmation) bool { return c.ID == id }) {
				return false, fmt.Errorf("node %s has no confirmation %q", node, id)
			}
		}
		r.Confirmations = slices.DeleteFunc(r.Confirmations, func(c Confirmation) bool {
			if len(ids) > 0 && !slices.Contains(ids, c.ID) {
				return false
			}
			withdrawn++
			r.audit(by, "Withdraw", c.ID+": "+reason)
			return true
		})
		return withdrawn > 0, nil
	})
	if err != nil {
		return 0, err
	}
	return withdrawn, nil
}

// VoidMachine writes down that a confirmation does not count any more of one
// machine, exactly as it was judged.
func (s *Store) VoidMachine(ctx context.Context, node, id string, judged Machine, why, actor string) (*Record, error) {
	return s.Update(ctx, node, func(r *Record) (bool, error) {
		for i := range r.Confirmations {
			c := &r.Confirmations[i]
			if c.ID != id {
				continue
			}
			at := slices.IndexFunc(c.Machines, judged.Equal)
			if at < 0 || judged.Void != "" {
				return false, nil
			}
			c.Machines[at].Void = clip(why)
			r.audit(actor, "VoidConfirmation", fmt.Sprintf("%s, node ID %s, node UID %s: %s", id, judged.NodeID, judged.NodeUID, why))
			return true, nil
		}
		return false, nil
	})
}
