package record

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Identity is what the node's machine was known by when it was first seen. Its kubelet
// writes all of it, and may write another machine's at any time: so a value is bound to the
// first node that says it, and stays bound whatever a Node says later.
//
// Who may fence may bind: the whole is one Claim, beside the fences (FencedAnnotation). One
// for which nobody vouches, as the sidecars of all drivers can write it, binds nothing, and
// who may fence binds anew in its place. That is as safe as a first sight: only what one Node
// alone says now is bound to it, so that whoever has an identity forgotten gives no machine
// to a second node while the first one says what it is. A doubt outlives the vouch (NotOwn):
// who was Late stays so for as long as its Node is there, and a Node with another system UUID
// than it had is bound by a person.
type Identity struct {
	// Bound has at most one value of each kind.
	Bound []Binding `json:"bound,omitempty"`

	Later format.Later `json:",embed"`
}

// Identifier is one value that a machine may be known by.
type Identifier struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

// Binding is the first Identifier of its kind that the node said.
type Binding struct {
	Identifier
	// NodeUID of the Node that said it. A kubelet can neither delete nor replace its Node:
	// what another one of that name says is bound in place of it.
	NodeUID string `json:"nodeUID"`
	// Other is a node that has the value bound, too: no fence agent acts by it. Empty: the
	// value is this node's own.
	Other string `json:"other,omitempty"`
	// Late tells that Other had the value first. It is not this node's when Other is gone either,
	// for the node may have waited for that. Of EarlierMachine nobody knows that it is gone.
	Late bool `json:"late,omitzero"`
	// Since is what the node says since, if that is another value; for people: nothing is
	// decided by it, and nobody vouches for it.
	Since string `json:"since,omitempty"`

	Later format.Later `json:",embed"`
}

// The kinds of Identifier. An instance ID is a part of a provider ID, and a kind of its own:
// two provider IDs may have the same one.
const (
	SystemUUID = "systemUUID"
	ProviderID = "providerID"
	InstanceID = "instanceID"
)

// EarlierMachine is Binding.Other of what an earlier machine under the same Node was known by.
const EarlierMachine = "(an earlier machine)"

// NodeID is the kind of a driver's node IDs.
func NodeID(driver string) string { return "nodeID/" + driver }

// Tells tells whether the value tells one machine from all others of its kind, and can be
// kept: what the maker of a board left out and what is no UUID is no system UUID.
func (c Identifier) Tells() bool {
	if c.Kind == SystemUUID && !(fence.IsUUID(c.Value) && fence.TellsSystem(c.Value)) {
		return false
	}
	return c.Value != "" && len(c.Value) <= maxText
}

// IdentifiersOf a machine, as that driver knows it.
func IdentifiersOf(m fence.Machine, driver string) []Identifier {
	all := []Identifier{{SystemUUID, m.SystemUUID}, {ProviderID, m.ProviderID}, {InstanceID, fence.InstanceID(m.ProviderID)}, {NodeID(driver), m.NodeID}}
	return slices.DeleteFunc(all, func(c Identifier) bool { return !c.Tells() })
}

var slashes = regexp.MustCompile("/+")

// Key is the same for values that may name one machine. Clouds do not tell upper from lower
// case, a UUID has two spellings, and who takes a path apart may pass over its empty parts.
func (c Identifier) Key() string {
	return fence.SystemKey(strings.TrimSuffix(slashes.ReplaceAllString(c.Value, "/"), "/"))
}

// Is tells whether both are the same value of the same kind.
func (c Identifier) Is(o Identifier) bool { return c.Kind == o.Kind && c.Key() == o.Key() }

// Meets tells whether a program that is told the one may act on the machine that the other
// names. One cloud's instance ID may be another driver's node ID; a mere number is no name
// beyond its kind.
func (c Identifier) Meets(o Identifier) bool {
	return c.Tells() && c.Key() == o.Key() && (c.Kind == o.Kind || strings.Trim(c.Value, "0123456789") != "")
}

// IsName tells whether the value is the Node's name, with no more than a scheme before it: an
// instance is called so in some clouds, and a node by many drivers. A program that is told it
// acts on whatever machine has the name, as with $(NODE), which is bound to nothing. A system
// UUID is none.
func (c Identifier) IsName(node string) bool {
	value := c.Value
	if _, after, has := strings.Cut(value, "://"); has && c.Kind == ProviderID {
		value = after
	}
	return c.Kind != SystemUUID && value != "" && strings.EqualFold(value, node)
}

// Of the kind what is bound; the zero Binding: nothing is.
func (i *Identity) Of(kind string) Binding {
	if i != nil {
		for _, b := range i.Bound {
			if b.Kind == kind {
				return b
			}
		}
	}
	return Binding{}
}

// NotOwn says why the value that the node says, beside its system UUID, is not its own; empty:
// it is, or nothing of its kind is bound to the node. It is no proof, so that it goes by what
// nobody vouches for as well. A system UUID that is not the bound one
// may be another machine's, and then all the rest is that one's, too; what was another's when
// it was bound never told which machine this is. The provider ID is no better: nobody can
// change that of a Node, so that a machine which was restored under it has that of the one
// before, and would be taken for dead because that one is off. So is its name: a VM that was
// restored under another one has the Node's name from its disk. That a system UUID is late
// switches this off, so somebody has to vouch for it.
//
// gone is the UID of the Node that is asked about, if that is gone; else empty, as what a Node says
// now is bound to it. What is bound of another Node of the name may be an earlier or a later
// machine's, unless the system UUID was bound of that one, too, and is the same.
func (r *Record) NotOwn(one Identifier, systemUUID, gone string) string {
	if r == nil {
		return ""
	}
	bound, machine := r.Identity.Of(one.Kind), r.Identity.Of(SystemUUID)
	switch {
	case systemUUID != "" && machine.Value != "" && !r.Known().Of(SystemUUID).Late && !machine.Is(Identifier{Kind: SystemUUID, Value: systemUUID}):
		return "the node says " + systemUUID + " since, and was known by " + machine.Value + " first, so that it may be another machine"
	case bound.Value == "":
		return ""
	case !bound.Is(one):
		return "the node says " + one.Value + " since, and was known by " + bound.Value + " first"
	case bound.Other == EarlierMachine:
		return "an earlier machine under its Node was known by " + one.Value + ", which that keeps"
	case bound.Late:
		return "node " + bound.Other + " was known by " + one.Value + " first"
	case bound.Other != "":
		return "node " + bound.Other + " is known by " + one.Value + " as well"
	case gone != "" && gone != bound.NodeUID && !(machine.NodeUID == bound.NodeUID && machine.Other == "" && machine.Meets(Identifier{SystemUUID, systemUUID})):
		return "another Node of its name was known by " + one.Value + ", which may have been another machine's"
	}
	return ""
}

// IdentityClaim is what a node has a claim to.
type IdentityClaim struct {
	Identifier
	Node string
	// Bound tells that it keeps the value from others. Else the node merely says it.
	Bound bool
	// Idle tells that something of the kind is bound to the node, so that what it says, as late or
	// since, keeps no other node from being bound to that.
	Idle bool
}

// Claims are what the node has a claim to, given what the Node of its name says now. What was
// bound under another Node of that name counts while this one says it too.
func (r *Record) Claims(nodeUID string, says []Identifier) (all []IdentityClaim) {
	known := r.Known()
	for _, b := range known.Bound {
		if !b.Late && (b.NodeUID == nodeUID || slices.ContainsFunc(says, b.Is)) {
			all = append(all, IdentityClaim{Identifier: b.Identifier, Node: r.Node, Bound: true})
		}
	}
	for _, c := range says {
		all = append(all, IdentityClaim{Identifier: c, Node: r.Node, Idle: known.Of(c.Kind).NodeUID == nodeUID})
	}
	return all
}

// Known is the identity as far as somebody vouches for it. The caller does not change it.
func (r *Record) Known() *Identity {
	if r == nil || !r.Vouched(r.Identity) {
		return &Identity{}
	}
	return r.Identity
}

func (i *Identity) says() []string {
	if i == nil || len(i.Bound) == 0 {
		return nil
	}
	words := []string{"identity"}
	for _, b := range i.Bound {
		words = append(words, b.Kind, b.Value, b.NodeUID, b.Other, strconv.FormatBool(b.Late))
	}
	return words
}

// Bind binds what the Node of that UID says, its system UUID first, as far as nobody else has a
// claim to it: other tells that, and the zero IdentityClaim that nobody has. For the change of
// an Update.
//
// What nobody vouches for is no proof of anything, and a doubt all the same: what was Late stays
// so, and where it has a system UUID for this Node that was Late, or that this does not say,
// only a person binds what it says (BindAs).
func (r *Record) Bind(nodeUID string, says []Identifier, other func(Identifier) IdentityClaim) (changed bool) {
	known := r.Known()
	next := &Identity{Bound: slices.Clone(known.Bound), Later: known.Later}
	if known != r.Identity && r.Identity != nil {
		for _, b := range r.Identity.Bound {
			switch {
			case b.Kind != SystemUUID && b.Late:
				next.put(b)
			case b.Kind == SystemUUID && b.NodeUID == nodeUID && (b.Late || !slices.ContainsFunc(says, b.Is)):
				return false
			}
		}
	}
says:
	for _, c := range says {
		b, o := next.Of(c.Kind), other(c)
		switch {
		case b.Is(c) && !b.Late:
			b.NodeUID, b.Other, b.Since = nodeUID, "", ""
			if o.Bound { // it got it while this one's Node was gone, or both at once
				b.Other = o.Node
			}
			next.put(b)
		case b.NodeUID == nodeUID:
			if b.Is(c) {
				b.Since = ""
			} else if !c.Is(Identifier{c.Kind, b.Since}) { // which may be spelled otherwise
				b.Since = c.Value
			}
			next.put(b)
			if c.Kind == SystemUUID && b.Since != "" && !b.Late {
				break says // it may be another machine, of which nothing is bound
			}
		case o.Bound:
			next.put(Binding{Identifier: c, NodeUID: nodeUID, Other: o.Node, Late: true})
		case o.Node == "":
			next.put(Binding{Identifier: c, NodeUID: nodeUID})
		}
	}
	if reflect.DeepEqual(next.Bound, known.Bound) {
		return false
	}
	r.Identity = next
	r.vouch(next)
	return true
}

// OnlyIdentity tells whether the record has nothing but what the node's machine is known by,
// as it has of every node once that is bound, and what was asked of it.
func (r *Record) OnlyIdentity() bool {
	return (r.Identity != nil || len(r.Questions) > 0) &&
		reflect.DeepEqual(r, &Record{Version: r.Version, Node: r.Node, Identity: r.Identity, Questions: r.Questions, fenced: r.fenced, claimed: r.claimed, added: r.added})
}

// RemoveIdentity removes the node's record, if that has nothing but questions and an
// identity, of which nothing was another node's and nothing in doubt, and nobody has its lock
// or changes it meanwhile.
func (s *Store) RemoveIdentity(ctx context.Context, node string) (removed bool, err error) {
	lease, r, err := s.read(ctx, node)
	if err != nil || r == nil || !r.OnlyIdentity() || markOf(lease).Holder != "" {
		return false, err
	}
	if r.Identity != nil && slices.ContainsFunc(r.Identity.Bound, func(b Binding) bool { return b.Other != "" || b.Since != "" }) {
		return false, nil
	}
	err = s.client.Leases(s.namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, s.explain("delete", node, err)
	}
	return true, nil
}

// put binds a value in place of the one of its kind.
func (i *Identity) put(b Binding) {
	if at := slices.IndexFunc(i.Bound, func(was Binding) bool { return was.Kind == b.Kind }); at >= 0 {
		i.Bound[at] = b
		return
	}
	i.Bound = append(i.Bound, b)
}

// BindAs binds what a person says that the node's machine is known by, whatever was bound. The
// kinds in first are not its own: what that names had them first. A system UUID that tells
// nothing is bound too, and one in place of which nothing is said stays, so that another one
// since is a doubt. For the change of an Update.
func (r *Record) BindAs(nodeUID string, says []Identifier, first map[string]string, reason, by string) {
	next := &Identity{Later: r.Known().Later}
	var words []string
	if was := r.Known().Of(SystemUUID); was.Value != "" {
		next.put(was)
	}
	for _, c := range says {
		next.put(Binding{Identifier: c, NodeUID: nodeUID, Other: first[c.Kind], Late: first[c.Kind] != ""})
		if first[c.Kind] == "" {
			words = append(words, c.Kind+" "+c.Value)
		}
	}
	r.Identity = next
	r.vouch(next)
	r.audit(by, "Bind", strings.Join(words, ", ")+": "+reason)
}

// Shares are what is bound to the node of what another one says.
func (r *Record) Shares(says []Identifier) (all []*Binding) {
	known := r.Known()
	for n := range known.Bound {
		if b := &known.Bound[n]; !b.Late && slices.ContainsFunc(says, b.Meets) {
			all = append(all, b)
		}
	}
	return all
}

// TakeFrom has the node be late for what a person has bound to another one. For the change of
// an Update.
func (r *Record) TakeFrom(says []Identifier, to, reason, by string) (changed bool) {
	for _, b := range r.Shares(says) {
		b.Other, b.Late, changed = to, true, true
		r.audit(by, "Unbind", b.Kind+" "+b.Value+", which is node "+to+"'s: "+reason)
	}
	if changed {
		r.vouch(r.Identity)
	}
	return changed
}
