package record

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Override is an operator's word that an agent which reads on is wrong: its
// device is broken. It is about one machine as it was then. It proves nothing
// by itself.
type Override struct {
	ID     string `json:"id"`
	Agent  string `json:"agent"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	// At, RFC 3339 on the writer's clock, is for people.
	At      string  `json:"at"`
	Machine Machine `json:"machine"`

	Later format.Later `json:",embed"`
}

const maxOverrides = 16

func (o *Override) validate() error {
	switch {
	case o.ID == "":
		return errors.New("it has no id")
	case o.Agent == "":
		return errors.New("it names no agent")
	case o.By == "" || o.Reason == "":
		return errors.New("it does not say by whom and why")
	case o.Machine.NodeUID == "":
		return errors.New("its machine has no nodeUID")
	}
	return nil
}

// OverrideOf returns the operator's word, about that machine as it is now, that
// the agent is wrong; nil: there is none that anybody vouches for. Any change of UID, boot
// ID or lease ends it.
func (r *Record) OverrideOf(agent string, m FencedMachine) *Override {
	if r == nil {
		return nil
	}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		if now := o.Machine; o.Agent == agent && r.Vouched(o) && now.Void == "" && now.NodeUID == m.NodeUID && now.BootID == m.BootID && now.LeaseRV == m.LeaseRV {
			return o
		}
	}
	return nil
}

// Overridden tells whether there is an OverrideOf the agent.
func (r *Record) Overridden(agent string, m FencedMachine) bool { return r.OverrideOf(agent, m) != nil }

// OverrideAgent adds an operator's override, in place of an earlier one for the
// same agent. An empty ID is made up, At is written here. The ID is returned.
func (s *Store) OverrideAgent(ctx context.Context, node string, o Override) (id string, err error) {
	if o.ID == "" {
		o.ID = string(uuid.NewUUID())
	}
	o.At, o.By, o.Reason, o.Machine.Void = now(), clip(o.By), clip(o.Reason), ""
	if err := o.validate(); err != nil {
		return "", fmt.Errorf("override for node %s: %w", node, err)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		if slices.ContainsFunc(r.Overrides, func(old Override) bool { return old.ID == o.ID }) {
			return false, nil // our own write, whose answer was lost
		}
		r.Overrides = slices.DeleteFunc(r.Overrides, func(old Override) bool { return old.Agent == o.Agent })
		r.AddOverride(o)
		return true, nil
	})
	return o.ID, err
}

// AddOverride adds o, for which the caller vouches (Vouched). For the change of an Update.
func (r *Record) AddOverride(o Override) {
	r.Overrides = append(r.Overrides, o)
	r.vouch(&o)
	r.audit(o.By, "OverrideAgent", fmt.Sprintf("%s: agent %s, node UID %s, boot ID %q, lease %q: %s",
		o.ID, o.Agent, o.Machine.NodeUID, o.Machine.BootID, o.Machine.LeaseRV, o.Reason))
}

// WithdrawOverrides takes overrides of the node back, all that there are. It
// returns how many.
func (s *Store) WithdrawOverrides(ctx context.Context, node, by, reason string) (withdrawn int, err error) {
	if by == "" || reason == "" {
		return 0, fmt.Errorf("withdrawal for node %s: it does not say by whom and why", node)
	}
	_, err = s.Update(ctx, node, func(r *Record) (bool, error) {
		withdrawn = len(r.Overrides)
		for _, o := range r.Overrides {
			r.audit(by, "WithdrawOverride", o.ID+": agent "+o.Agent+": "+reason)
		}
		r.Overrides = nil
		return withdrawn > 0, nil
	})
	if err != nil {
		return 0, err
	}
	return withdrawn, nil
}
