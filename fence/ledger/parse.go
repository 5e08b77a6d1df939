package ledger

import (
	"errors"
	"fmt"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/csi-fencepost/csi-fencepost/fence"
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

// Unblock is how to mend it.
func (e *GarbledError) Unblock() string {
	return fmt.Sprintf("once it is known which node uses the volume, correct the annotation, or remove it to have it rebuilt: kubectl annotate pv %s %s-", e.PV, Annotation)
}

func (e *GarbledError) Unwrap() error { return e.Err }

// Parse reads the annotation's text. It takes nothing silently: what it does
// not know, finds twice or misses is an error that names it.
func Parse(text string) (*Ledger, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not UTF-8")
	}
	if err := checkVersion(text); err != nil {
		return nil, err
	}
	var l Ledger
	wrong, err := kjson.UnmarshalStrict([]byte(text), &l)
	if err = errors.Join(append(wrong, err)...); err != nil {
		return nil, err
	}
	if err := l.validate(); err != nil {
		return nil, err
	}
	return &l, nil
}

// checkVersion goes first: a later version may have fields that are unknown
// here, and that is not what is wrong with it.
func checkVersion(text string) error {
	var head struct {
		Version *int `json:"version"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &head); err != nil {
		return fmt.Errorf("it is not JSON as a ledger has it: %w", err)
	}
	switch {
	case head.Version == nil:
		return fmt.Errorf("version is missing; it should be %d", Version)
	case *head.Version > Version:
		return fmt.Errorf("version %d is newer than this csi-fencepost, which knows %d; run the newer csi-fencepost", *head.Version, Version)
	case *head.Version != Version:
		return fmt.Errorf("version %d is unknown; it should be %d", *head.Version, Version)
	}
	return nil
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
		case !known(e.State):
			return fmt.Errorf("holders[%d].state: %q is unknown; it should be publishing, held, leaving, released or takenOver", i, e.State)
		}
		seen[e.NodeID] = true
	}
	return nil
}

func known(state fence.State) bool {
	switch state {
	case fence.Publishing, fence.Held, fence.Leaving, fence.Released, fence.TakenOver:
		return true
	}
	return false
}
