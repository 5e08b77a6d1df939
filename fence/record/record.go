package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// version of the format that this code reads and writes.
const version = 1

// known are the fields that a record's "must" may name: none yet.
var known []string

// Record is what is claimed of one node.
type Record struct {
	Version int `json:"version"`
	// Must names the fields that a reader has to know (see package format).
	Must []string `json:"must,omitempty"`
	Node string   `json:"node"`
	// Taints are the bindings of the taints that count as evidence, by key.
	Taints        map[string]TaintBinding `json:"taints,omitempty"`
	Confirmations []Confirmation          `json:"confirmations,omitempty"`
	Releases      []Release               `json:"releases,omitempty"`
	// Fences are at most one current power fence, and one current storage fence of each driver; and
	// the last of those that count no more.
	Fences    []Fence    `json:"fences,omitempty"`
	Overrides []Override `json:"overrides,omitempty"`
	// Operation is the last one; without an ID: none that anybody knows of.
	Operation Operation `json:"operation,omitzero"`
	// Identity is what the node's machine is known by; nil: nobody has looked. It binds only
	// as far as somebody vouches for it (Known).
	Identity *Identity `json:"identity,omitempty"`
	// Questions whether the node's machine is off, and the answers; the newest last.
	Questions []Question `json:"questions,omitempty"`
	// Audit, the oldest entry first. It is for people: nothing is decided by it.
	Audit []Audit `json:"audit,omitempty"`

	Later format.Later `json:",embed"`

	// fenced and claimed are the digests of the claims that somebody vouches for, as the
	// Lease has them beside the record; added are those that whoever changes it now vouches
	// for.
	fenced, claimed, added []string
}

// Audit is one change of a claim.
type Audit struct {
	// At, RFC 3339 on the writer's clock, is for people: nothing is decided
	// by it.
	At     string `json:"at"`
	Actor  string `json:"actor"`
	Action string `json:"action"`
	Detail string `json:"detail,omitempty"`

	Later format.Later `json:",embed"`
}

// Bounds of a record. An annotation may have 256 KiB; the oldest goes first.
const (
	maxAudit         = 64
	maxAuditBytes    = 16 << 10
	maxConfirmations = 16
	maxMachines      = 64
	maxReleases      = 128
	maxText          = 512 // bytes of each text that a person wrote
	maxBytes         = 200 << 10
)

// New is an empty record.
func New(node string) *Record { return &Record{Version: version, Node: node} }

// Parse reads a record, as package format says. Claims that lack what they are bound
// to are errors, and what only a later version knows is kept.
func Parse(text string) (*Record, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxBytes)
	}
	var r Record
	if err := format.Parse(text, version, known, &r); err != nil {
		return nil, err
	}
	r.understood()
	return &r, r.validate()
}

func (r *Record) validate() error {
	if r.Node == "" {
		return errors.New("it names no node")
	}
	for key, b := range r.Taints {
		if key == "" || b.NodeUID == "" {
			return fmt.Errorf("the binding of taint %q lacks its key or nodeUID", key)
		}
	}
	for _, c := range r.Confirmations {
		if err := c.validate(); err != nil {
			return fmt.Errorf("confirmation %q: %w", c.ID, err)
		}
	}
	for _, rel := range r.Releases {
		if err := rel.validate(); err != nil {
			return fmt.Errorf("release %q: %w", rel.ID, err)
		}
	}
	for _, o := range r.Overrides {
		if err := o.validate(); err != nil {
			return fmt.Errorf("override %q: %w", o.ID, err)
		}
	}
	for _, q := range r.Questions {
		if err := q.validate(); err != nil {
			return fmt.Errorf("question %q: %w", q.ID, err)
		}
	}
	return r.validateFences()
}

// encode bounds the record and writes it as JSON.
func (r *Record) encode() (string, error) {
	r.bound()
	for {
		text, err := format.Text(r)
		switch {
		case err != nil:
			return "", err
		case len(text) <= maxBytes:
			return text, nil
		case len(r.Questions) > 1:
			r.Questions = r.Questions[1:]
		case len(r.Releases) > 1:
			r.Releases = r.Releases[1:]
		case len(r.Confirmations) > 1:
			r.Confirmations = r.Confirmations[1:]
		default:
			return "", fmt.Errorf("the record would have %d bytes, more than %d", len(text), maxBytes)
		}
	}
}

func (r *Record) bound() {
	r.Confirmations = last(r.Confirmations, maxConfirmations)
	r.Releases = last(r.Releases, maxReleases)
	r.Overrides = last(r.Overrides, maxOverrides)
	r.Questions = last(r.Questions, maxQuestions)
	r.boundFences()
	r.Audit = last(r.Audit, maxAudit)
	size := 0
	for i := len(r.Audit) - 1; i >= 0; i-- {
		a := &r.Audit[i]
		size += len(a.At) + len(a.Actor) + len(a.Action) + len(a.Detail)
		if size > maxAuditBytes {
			r.Audit = slices.Delete(r.Audit, 0, i+1)
			return
		}
	}
}

func last[T any](all []T, n int) []T {
	if len(all) > n {
		return slices.Delete(all, 0, len(all)-n)
	}
	return all
}

// Clone is a deep copy.
func (r *Record) Clone() *Record {
	var c Record
	text, err := format.Text(r)
	if err == nil {
		err = format.Parse(text, version, r.Must, &c)
	}
	if err != nil {
		panic(err) // what was written by format.Text
	}
	c.understood()
	c.fenced, c.claimed, c.added = slices.Clone(r.fenced), slices.Clone(r.claimed), slices.Clone(r.added)
	return &c
}

// clip shortens a text that a person wrote.
func clip(s string) string { return clipTo(s, maxText) }

func clipTo(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
