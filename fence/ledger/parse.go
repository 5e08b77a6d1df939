package ledger

import (
	"errors"
	"fmt"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// GarbledError is an annotation that is not a ledger. Nothing is known of who
// holds the volume, so its calls are refused until a person has mended it.
type GarbledError struct {
	PV  string
	Err error
}

func (e *GarbledError) Error() string { return e.Why() + ". To mend it: " + e.Unblock() }

// Why is what is wrong, without the way out.
func (e *GarbledError) Why() string {
	return fmt.Sprintf("annotation %s of PersistentVolume %s is not a ledger: %.150s", Annotation, e.PV, e.Err.Error())
}

// Aside says that the text, which is not its PersistentVolume's own, does not count.
func (e *GarbledError) Aside() string {
	return fmt.Sprintf("what stands on PersistentVolume %s is no ledger, and was never written there as one: it is set aside, since another PersistentVolume of the volume has the ledger", e.PV)
}

// Unblock is how to mend it.
func (e *GarbledError) Unblock() string {
	if format.IsNewer(e.Err) {
		return "upgrade this csi-fencepost; the ledger is whole, so leave it as it is"
	}
	return fmt.Sprintf("once it is known which node uses the volume, correct the annotation, or remove it to have it rebuilt: kubectl annotate pv %s %s-", e.PV, Annotation)
}

func (e *GarbledError) Unwrap() error { return e.Err }

// Parse reads the annotation's text, as package format says: what is there twice or
// missing is an error that names it, and what only a later version knows is kept.
func Parse(text string) (*Ledger, error) {
	var l Ledger
	if err := format.Parse(text, Version, known, &l); err != nil {
		return nil, err
	}
	if err := l.validate(); err != nil {
		return nil, err
	}
	return &l, nil
}

func (l *Ledger) validate() error {
	for _, field := range []struct{ name, value string }{
		{"driver", l.Driver}, {"handle", l.Handle}, {"cluster", l.Cluster}, {"pvUID", l.PVUID},
	} {
		if field.value == "" {
			return fmt.Errorf("%s is missing or empty", field.name)
		}
	}
	if l.Holders == nil {
		return errors.New("holders is missing; a volume that no node holds has []")
	}
	seen := map[string]bool{}
	for i, e := range l.Holders {
		switch {
		case e.NodeID == "":
			return fmt.Errorf("holders[%d].nodeID is missing or empty", i)
		case seen[e.NodeID]:
			return fmt.Errorf("holders[%d].nodeID: %q is there twice", i, e.NodeID)
		case e.From != "" && e.From != fence.FromDriver:
			return fmt.Errorf("holders[%d].from: %q is unknown; it should be %s, or not be there", i, e.From, fence.FromDriver)
		case !knownState(e.State):
			return fmt.Errorf("holders[%d].state: %q is unknown; it should be publishing, held, leaving, released or takenOver", i, e.State)
		}
		seen[e.NodeID] = true
	}
	return nil
}

func knownState(state fence.State) bool {
	switch state {
	case fence.Publishing, fence.Held, fence.Leaving, fence.Released, fence.TakenOver:
		return true
	}
	return false
}
