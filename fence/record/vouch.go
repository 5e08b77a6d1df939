package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Annotations on the Lease that keeps the record: FencedAnnotation vouches for its fences,
// when they cut, what is missing, its identity and the answers to its questions, ClaimedAnnotation for what people
// said. Each is the SHA-256 of every claim that it vouches for, in hexadecimal, sorted, separated by commas; before that of a storage fence
// stand the name of its driver and an equals sign.
//
// They stand apart so that the API server can tell who may claim so from the sidecars of
// all drivers, which write the rest of every record: with deploy/admission/records.yaml it
// takes the right to write fences.csi-fencepost.io to add to the one, and that to write
// claims.csi-fencepost.io for the other. A right to write the fences that is named as a
// driver is for that driver's storage fences alone. Whoever writes records may take from both: what
// ended is vouched for no more, whoever saw it end, and cannot be taken up again.
const (
	FencedAnnotation  = "csi-fencepost.io/fenced"
	ClaimedAnnotation = "csi-fencepost.io/claimed"
)

// A Claim is what somebody has to vouch for: a *Fence, that and when it cut (Fence.Cutting), that it
// was proven early (Fence.Missing), an
// *Identity, a *Question once it is answered, a *Release, an *Override, or what a confirmation
// says of one machine (Confirmation.Of).
type Claim interface {
	// says is everything in the claim that a judgement rests on; nil: it has ended.
	// Neighbouring versions have to agree on it.
	says() []string
}

func (f *Fence) says() []string {
	if f == nil || !f.Current() {
		return nil
	}
	m := f.Machine
	what := "fence"
	if f.OwnWord { // a neighbouring version, which knows of no such fence, has to wait
		what = "fence by the Node's own word"
	}
	words := []string{what, string(f.Phase), f.ID, string(f.Kind), f.Driver, m.NodeUID, m.BootID, m.SystemUUID, m.LeaseRV, f.Actor, f.What}
	for _, st := range f.Steps {
		if st.cuts() { // what was cut is what is opened again
			words = append(words, st.Agent, st.Detail, st.Err)
		}
	}
	if w := f.Witness; w != nil {
		words = append(words, w.NodeUID, w.BootID, w.ReadySince, w.LeaseRV)
	}
	return words
}

// Cutting is what the brakes on fencing count of a fence: that the node was cut off, as which
// machine and when. Who vouches for a fence vouches for this beside it, and this outlives it: the
// fence ends by whoever sees it end, and who may not vouch for anything could shift its time. It is
// a claim of its own because a neighbouring version knows of none, and has to believe the fence.
func (f *Fence) Cutting() Claim { return &cutting{f} }

type cutting struct{ *Fence }

func (c *cutting) says() []string {
	f := c.Fence
	if f == nil || !f.UnderWay() && !slices.ContainsFunc(f.Steps, func(st FenceStep) bool { return st.cuts() }) {
		return nil // it was found off
	}
	words := []string{"cutting", f.ID, string(f.Kind), f.Driver, f.Actor, f.StartedAt, f.Machine.NodeUID, f.Machine.SystemUUID}
	for _, st := range f.Steps {
		if st.cuts() {
			words = append(words, "off", st.At, strconv.FormatBool(st.Err == ""))
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(f.Machine.NodeIDs)) {
		words = append(words, driver, f.Machine.NodeIDs[driver])
	}
	return words
}

// Missing is that the fence was proven before the node's lease was silent (Missed). It is a claim
// of its own because a neighbouring version knows of none, and has to believe the fence, once the
// lease is silent.
func (f *Fence) Missing() Claim { return &missing{f} }

type missing struct{ *Fence }

func (c *missing) says() []string {
	f := c.Fence
	if f == nil || f.Kind != fence.PowerReading || f.Phase != Fenced || f.Missed == "" {
		return nil
	}
	m := f.Machine
	return []string{"missing", f.ID, m.NodeUID, m.BootID, m.SystemUUID, m.LeaseRV, f.Missed}
}

// Of is what the confirmation says of one of its machines.
func (c *Confirmation) Of(m *Machine) Claim { return &confirmed{c, m} }

type confirmed struct {
	*Confirmation
	m *Machine
}

func (c *confirmed) says() []string {
	if c.Void != "" || c.m.Void != "" {
		return nil
	}
	return append([]string{"confirmation", c.ID}, c.m.words()...)
}

func (m *Machine) words() []string {
	return []string{m.NodeID, m.NodeUID, m.BootID, m.SystemUUID, m.LeaseRV}
}

func (rel *Release) says() []string {
	if rel.Void != "" {
		return nil
	}
	return []string{"release", rel.ID, rel.Driver, rel.Volume, rel.NodeID, rel.NodeUID, rel.BootID, rel.SystemUUID, rel.LeaseRV, string(rel.Life), rel.Attachment, rel.Token}
}

func (o *Override) says() []string {
	if o.Machine.Void != "" {
		return nil
	}
	return append([]string{"override", o.ID, o.Agent}, o.Machine.words()...)
}

// digest of a claim, as it stands in the annotation; empty: it has ended, or is of a driver
// whose name cannot stand there.
func digest(c Claim) string {
	words, of := c.says(), ""
	f, is := c.(*Fence)
	if cut, too := c.(*cutting); too {
		f, is = cut.Fence, true
	}
	if is && f != nil && f.Kind == fence.StorageFence {
		of = f.Driver + "="
	}
	if words == nil || strings.Count(of, "=") > 1 || strings.Contains(of, ",") {
		return ""
	}
	return of + hashOf(words)
}

// hashOf words, which no other words have.
func hashOf(words []string) string {
	text := ""
	for _, word := range words {
		text += fmt.Sprintf("%d:%s,", len(word), word)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Vouched tells whether an account that may claim so wrote c, as it is now.
func (r *Record) Vouched(c Claim) bool {
	d := digest(c)
	if r == nil || d == "" {
		return false
	}
	was := r.claimed
	switch c.(type) {
	case *Fence, *cutting, *missing, *Identity, *Question:
		was = r.fenced
	}
	return slices.Contains(was, d) || slices.Contains(r.added, d)
}

// Doubt says why a fence that stands, or a person's word, proves nothing by the record alone:
// what has ended it, or that nobody vouches for it; empty: it may, unless its machine was heard
// since.
func (r *Record) Doubt(c Claim) string {
	ended, nobody := "", fence.VoidUnclaimed
	switch c := c.(type) {
	case *Fence:
		switch {
		case c.BeingLifted():
			return fence.VoidLifting
		case c.Phase != Fenced:
			return ""
		}
		nobody = fence.VoidUnvouched
	case *confirmed:
		ended = cmp.Or(c.Void, c.m.Void)
	case *Release:
		ended = c.Ended()
	case *Override:
		ended = c.Machine.Void
	}
	if ended != "" || r.Vouched(c) {
		return ended
	}
	return nobody
}

// VouchFor writes f in place of the fence with its ID, for which nobody vouched, and vouches
// for it: not for when it cut, which nobody knows. For the change of an Update.
func (r *Record) VouchFor(f Fence, actor string) {
	if old := r.FenceByID(f.ID); old != nil {
		*old = f
		r.vouch(old)
		r.audit(actor, "VouchForFence", f.ID+": fenced by "+f.Actor)
	}
}

// Still changes a fence of the record, for which the caller vouches if somebody did before.
// For the change of an Update.
func (r *Record) Still(f *Fence, change func() bool) bool {
	vouched := r.Vouched(f)
	changed := change()
	if vouched {
		r.vouch(f)
	}
	return changed
}

// vouch has the next write say that the writer claims c.
func (r *Record) vouch(c Claim) {
	if d := digest(c); d != "" && !r.Vouched(c) {
		r.added = append(r.added, d)
	}
}

// vouches are what the record vouches for once it is written: what somebody vouched for
// before, or does now, and has not ended.
func (r *Record) vouches() (fenced, claimed []string) {
	keep := func(all *[]string, c Claim) {
		if r.Vouched(c) {
			*all = append(*all, digest(c))
		}
	}
	for i := range r.Fences {
		keep(&fenced, &r.Fences[i])
		keep(&fenced, r.Fences[i].Cutting())
		keep(&fenced, r.Fences[i].Missing())
	}
	keep(&fenced, r.Identity)
	for i := range r.Questions {
		keep(&fenced, &r.Questions[i])
	}
	for i := range r.Confirmations {
		c := &r.Confirmations[i]
		for j := range c.Machines {
			keep(&claimed, c.Of(&c.Machines[j]))
		}
	}
	for i := range r.Releases {
		keep(&claimed, &r.Releases[i])
	}
	for i := range r.Overrides {
		keep(&claimed, &r.Overrides[i])
	}
	for _, all := range []*[]string{&fenced, &claimed} {
		slices.Sort(*all)
		*all = slices.Compact(*all)
	}
	return fenced, claimed
}

// vouchesChange tells whether a write would change what is vouched for.
func (r *Record) vouchesChange() bool {
	fenced, claimed := r.vouches()
	return !slices.Equal(fenced, r.fenced) || !slices.Equal(claimed, r.claimed)
}

// writeVouches leaves an annotation as it is where nothing in it changes, for who may not
// write it.
func (r *Record) writeVouches(lease *coordinationv1.Lease) {
	fenced, claimed := r.vouches()
	write := func(name string, was, now []string) {
		switch {
		case slices.Equal(was, now):
		case len(now) == 0:
			delete(lease.Annotations, name)
		default:
			lease.Annotations[name] = strings.Join(now, ",")
		}
	}
	write(FencedAnnotation, r.fenced, fenced)
	write(ClaimedAnnotation, r.claimed, claimed)
	r.fenced, r.claimed, r.added = fenced, claimed, nil
}

func (r *Record) readVouches(lease *coordinationv1.Lease) {
	read := func(name string) []string {
		text := lease.Annotations[name]
		if text == "" {
			return nil
		}
		return strings.Split(text, ",")
	}
	r.fenced, r.claimed = read(FencedAnnotation), read(ClaimedAnnotation)
}
