package array

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
)

// locked is disks of which each lets one machine have it.
type locked struct {
	mu    sync.Mutex
	owner map[string]string // by volume
	stuck bool              // no machine lets go
	asked []string
	enter func() // called at the begin of each, without mu; may be nil
}

func (l *locked) Attach(_ context.Context, nodeID, volumeID string) error {
	return l.change("attach", nodeID, volumeID, func(owner string) (string, error) {
		if owner != "" && owner != nodeID {
			return owner, errors.New("Failed to get \"write\" lock")
		}
		return nodeID, nil
	})
}

func (l *locked) Detach(_ context.Context, nodeID, volumeID string) error {
	return l.change("detach", nodeID, volumeID, func(owner string) (string, error) {
		if l.stuck {
			return owner, errors.New("the guest does not let go")
		}
		if owner == nodeID {
			owner = ""
		}
		return owner, nil
	})
}

func (l *locked) change(what, nodeID, volumeID string, to func(string) (string, error)) error {
	if l.enter != nil {
		l.enter()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, fmt.Sprint(what, " ", volumeID, " ", nodeID))
	owner, err := to(l.owner[volumeID])
	l.owner[volumeID] = owner
	return err
}

func newLocked() *locked { return &locked{owner: map[string]string{}} }

func TestDisksAreAttachedAndDetachedWithTheirVolume(t *testing.T) {
	disks := newLocked()
	r := newRig(t, Options{Disks: disks})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	must(t, r.publish("v", "n1"))
	must(t, r.unpublish("v", "n1"))
	must(t, r.publish("v", "n2"))
	want := []string{"attach v n1", "attach v n1", "detach v n1", "attach v n2"}
	if !slices.Equal(disks.asked, want) {
		t.Errorf("the disks were asked %q, want %q", disks.asked, want)
	}
}

func TestADiskThatRefusesIsFailedPreconditionInItsOwnWordsAndChangesNothing(t *testing.T) {
	disks := newLocked()
	r := newRig(t, Options{Disks: disks})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	must(t, r.publish("v", "n1"))
	err := r.publish("v", "n2")
	wantCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(err.Error(), `Failed to get "write" lock`) {
		t.Errorf("without the disk's own words: %v", err)
	}
	disks.stuck = true
	err = r.unpublish("v", "n1")
	wantCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(err.Error(), "the guest does not let go") {
		t.Errorf("without the disk's own words: %v", err)
	}
	if at := r.Attached("v"); !slices.Equal(at, []string{"n1"}) {
		t.Errorf("attached to %q, want n1 alone", at)
	}
}

func TestADiskIsNotAskedForWhatTheArrayRefuses(t *testing.T) {
	disks := newLocked()
	r := newRig(t, Options{Disks: disks})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	wantCode(t, r.publish("v", "n2"), codes.FailedPrecondition)
	wantCode(t, r.publish("v", "n9"), codes.NotFound)
	wantCode(t, r.publish("none", "n1"), codes.NotFound)
	must(t, r.unpublish("none", "n1"))
	if len(disks.asked) != 1 {
		t.Errorf("the disks were asked %q", disks.asked)
	}
}

func TestOneCallAtATimeChangesADiskAndTheArrayGoesOnMeanwhile(t *testing.T) {
	disks := newLocked()
	r := newRig(t, Options{Disks: disks})
	r.volume("v")
	r.volume("other")
	inside, proceed := make(chan struct{}), make(chan struct{})
	disks.enter = func() { inside <- struct{}{}; <-proceed }
	first := make(chan error)
	go func() { first <- r.publish("v", "n1") }()
	<-inside
	wantCode(t, r.publish("v", "n1"), codes.Aborted)
	wantCode(t, r.unpublish("v", "n1"), codes.Aborted)
	second := make(chan error)
	go func() { second <- r.publish("other", "n2") }()
	<-inside
	close(proceed)
	must(t, <-first)
	must(t, <-second)
	if at := r.AttachedVolumes("n1"); !slices.Equal(at, []string{"v"}) {
		t.Errorf("n1 has %q", at)
	}
}
