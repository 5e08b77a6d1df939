package outcome

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// Clocks under which a story was played.
const (
	Real  = "real"  // Kubernetes' own
	Short = "short" // the force detach after 15 s, NotReady after 21 s
)

// Outcome is what came of one story, played once.
type Outcome struct {
	Story string `json:"story"`
	// Alone tells that it was played with Kubernetes alone, without csi-fencepost.
	Alone bool `json:"alone,omitempty"`
	// Kubernetes is the version, such as v1.37.2.
	Kubernetes string `json:"kubernetes"`
	// Clocks are Real or Short.
	Clocks string `json:"clocks"`
	// Commit of the sources that were played, with "+" where some were changed.
	Commit string    `json:"commit"`
	Began  time.Time `json:"began"`
	// Seconds that it took, without the start of a control plane that others share.
	Seconds float64 `json:"seconds"`
	// Text is what the story noted.
	Text string `json:"text,omitempty"`
	// What the storage array saw: writes of two nodes mixed up, volumes that two
	// nodes could write to, volumes taken from a node that used them.
	DoubleWrites     int `json:"doubleWrites,omitempty"`
	CouldDoubleWrite int `json:"couldDoubleWrite,omitempty"`
	TakenInUse       int `json:"takenInUse,omitempty"`
	// Failed tells that it did not come to its end, or not as it should.
	Failed bool `json:"failed,omitempty"`
	// Known tells, with Failed, that it failed in the way that its story is known to.
	Known bool `json:"known,omitempty"`
}

// Violated tells whether data was or could have been lost.
func (o Outcome) Violated() bool { return o.DoubleWrites+o.CouldDoubleWrite+o.TakenInUse > 0 }

// key is equal for any two outcomes of which one is kept.
func (o Outcome) key() string {
	return fmt.Sprintf("%s\x00%v\x00%s\x00%s", o.Story, o.Alone, o.Kubernetes, o.Clocks)
}

func (o Outcome) check() error {
	switch {
	case o.Story == "" || o.Kubernetes == "" || o.Commit == "" || o.Began.IsZero():
		return fmt.Errorf("the outcome of story %q lacks its story, Kubernetes' version, commit or date: %+v", o.Story, o)
	case o.Clocks != Real && o.Clocks != Short:
		return fmt.Errorf("the outcome of story %q was played with the clocks %q, which are neither %q nor %q", o.Story, o.Clocks, Real, Short)
	case o.Known && (!o.Failed || o.Alone || o.Violated()):
		return fmt.Errorf("the outcome of story %q is a failure that is known, and did not fail with csi-fencepost, or with a violation, which no mark covers", o.Story)
	}
	return nil
}

// Book has the outcomes, the latest of each story, way of playing, version and
// clocks. It is not safe for concurrent use.
type Book struct {
	path     string
	outcomes []Outcome
}

// Open reads a book; a file that is not there is an empty one.
func Open(path string) (*Book, error) {
	b := &Book{path: path}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b.outcomes); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	for _, o := range b.outcomes {
		if err := o.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if seen[o.key()] {
			return nil, fmt.Errorf("%s: two outcomes of story %s, alone: %v, on Kubernetes %s with %s clocks", path, o.Story, o.Alone, o.Kubernetes, o.Clocks)
		}
		seen[o.key()] = true
	}
	return b, nil
}

// Put notes an outcome in place of an earlier one, and writes the file.
func (b *Book) Put(o Outcome) error {
	if err := o.check(); err != nil {
		return err
	}
	b.outcomes = slices.DeleteFunc(b.outcomes, func(x Outcome) bool { return x.key() == o.key() })
	b.outcomes = append(b.outcomes, o)
	slices.SortFunc(b.outcomes, func(x, y Outcome) int { return strings.Compare(x.key(), y.key()) })
	text, err := json.MarshalIndent(b.outcomes, "", " ")
	if err != nil {
		return err
	}
	// Whole or not at all: a run of hours may be broken off at any moment.
	return tool.WriteWhole(b.path, append(text, '\n'), 0o644)
}

// All are the outcomes, in a lasting order.
func (b *Book) All() []Outcome { return slices.Clone(b.outcomes) }

// Measured is the version, of those given, that most plays were played on with
// Kubernetes' own clocks; of equal ones the first.
func (b *Book) Measured(versions ...string) string {
	plays := map[string]int{}
	for _, o := range b.outcomes {
		if o.Clocks == Real {
			plays[o.Kubernetes]++
		}
	}
	return slices.MaxFunc(versions, func(x, y string) int { return cmp.Compare(plays[x], plays[y]) })
}

// Find is the outcome of a story on a version of Kubernetes: the one on real
// clocks if there is one, else the one on short clocks.
func (b *Book) Find(story string, alone bool, kubernetes string) (Outcome, bool) {
	for _, clocks := range []string{Real, Short} {
		for _, o := range b.outcomes {
			if o.Story == story && o.Alone == alone && o.Kubernetes == kubernetes && o.Clocks == clocks {
				return o, true
			}
		}
	}
	return Outcome{}, false
}
