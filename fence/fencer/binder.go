package fencer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	// bindEvery is the pause between two looks at what the Nodes say.
	bindEvery = 10 * time.Second
	// bindAgain is the pause after a look of which something could not be bound.
	bindAgain = time.Minute
	// bindAtLeast is how soon the records are read again although no Node says anything new:
	// one may have been removed.
	bindAtLeast = 5 * time.Minute
	// forgottenAfter is how long a Node has been gone before a record that has nothing but an
	// identity is removed: one that is deleted and registered again finds it.
	forgottenAfter = time.Hour
	// bindPause is the pause after each node that is bound: in a first start all are, and
	// nothing is to wait for that.
	bindPause = 50 * time.Millisecond
)

// Said is what a Node says of its machine, and what its drivers call that. csi may be nil; one
// that is left of an earlier Node, as it is until Kubernetes has collected it, says nothing.
func Said(node *corev1.Node, csi *storagev1.CSINode) []record.Identifier {
	all := record.IdentifiersOf(fence.MachineOf(node), "")
	if node == nil || csi == nil || slices.ContainsFunc(csi.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID != node.UID }) {
		return all
	}
	for _, d := range csi.Spec.Drivers {
		all = append(all, record.IdentifiersOf(fence.Machine{NodeID: d.NodeID}, d.Name)...)
	}
	return all
}

// said is Said of that Node, with its CSINode as it is now.
func (f *Fencer) said(ctx context.Context, node *corev1.Node) ([]record.Identifier, error) {
	if node == nil || f.CSINodes == nil {
		return Said(node, nil), nil
	}
	csi, err := f.CSINodes.CSINodes().Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		csi, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read CSINode %s: %w", node.Name, err)
	}
	return Said(node, csi), nil
}

// Bind binds in the nodes' records what their machines are known by, at first sight, until ctx
// ends. What it sees (Options.Machines) may be late, so that two processes may bind one value
// to two nodes: no command goes by such a value. Where this account may not bind, since it may
// not fence, it goes by what others have bound, and asks again now and then.
func (f *Fencer) Bind(ctx context.Context) error {
	var seen []fence.Machine
	var at time.Time
	told := false
	for {
		machines, pause := f.Machines(), bindEvery
		slices.SortFunc(machines, func(a, b fence.Machine) int { return strings.Compare(a.NodeName, b.NodeName) })
		if !slices.Equal(machines, seen) || time.Since(at) >= bindAtLeast {
			seen, at = machines, time.Now()
			switch err := f.bindAll(ctx); {
			case err == nil || ctx.Err() != nil:
			case apierrors.IsForbidden(err):
				pause = bindAtLeast
				if !told {
					klog.FromContext(ctx).Info("What nodes are known by is for others to bind, who may fence", "err", err)
				}
				told = true
			default:
				seen, pause = nil, bindAgain
				klog.FromContext(ctx).Error(err, "Not all nodes' identities could be bound; fence agents that go by them wait for that", "next", pause)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// bindAll binds what is new, first of the nodes that have a record: what that claims may wait
// for it. One node that cannot be bound does not keep others waiting.
func (f *Fencer) bindAll(ctx context.Context) error {
	now, err := f.sight(ctx)
	if err != nil {
		return err
	}
	var first error
	for _, node := range now.names {
		if !f.Levels.Seek(node) {
			continue
		}
		bound, err := f.bindNode(ctx, node, now)
		if apierrors.IsForbidden(err) {
			return err // as it would be of every node
		}
		if err != nil && first == nil {
			first = err
		}
		if bound {
			time.Sleep(bindPause)
		}
	}
	f.forgetGone(ctx, now)
	return first
}

// forgetGone removes the records of Nodes that have been gone for long, as far as they have
// nothing but an identity: all records are read before each fence, and names come and go.
func (f *Fencer) forgetGone(ctx context.Context, now *sight) {
	gone := map[string]time.Time{}
	for node, r := range now.records {
		if _, here := now.machines[node]; here || !r.OnlyIdentity() {
			continue
		}
		since, was := f.gone[node]
		if !was {
			since = time.Now()
		}
		gone[node] = since
	}
	f.gone = gone
	for node, since := range gone {
		if time.Since(since) < forgottenAfter {
			continue
		}
		look, err := f.look(ctx, node) // a watch may lag behind
		if err == nil && look.node == nil {
			_, err = f.Records.RemoveIdentity(ctx, node)
		}
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The record of a node that is gone could not be removed", "node", node, "err", err)
			return
		}
	}
}

// sight is what all Nodes say and what is bound to whom, at one time.
type sight struct {
	names    []string // of the Nodes: those with a record, then as Options.Machines has them
	machines map[string]fence.Machine
	records  map[string]*record.Record
	garbled  map[string]bool
	claims   map[string][]record.IdentityClaim // by record.Identifier.Key
	unseen   bool                              // what Nodes there are
}

func (f *Fencer) sight(ctx context.Context) (*sight, error) {
	records, garbled, err := f.Records.List(ctx)
	if err != nil {
		return nil, err
	}
	now := &sight{machines: map[string]fence.Machine{}, records: map[string]*record.Record{}, garbled: map[string]bool{}, claims: map[string][]record.IdentityClaim{}}
	for _, r := range records {
		now.records[r.Node] = r
	}
	for _, g := range garbled {
		now.garbled[g.Node] = true
	}
	if f.Machines == nil {
		return now, nil
	}
	var others []string
	seen := f.Machines()
	now.unseen = seen == nil
	for _, m := range seen {
		now.machines[m.NodeName] = m
		if now.records[m.NodeName] != nil {
			now.names = append(now.names, m.NodeName)
		} else {
			others = append(others, m.NodeName)
		}
		for _, c := range now.record(m.NodeName).Claims(m.NodeUID, f.identifiers(m)) {
			now.claims[c.Key()] = append(now.claims[c.Key()], c)
		}
	}
	now.names = append(now.names, others...)
	return now, nil
}

// identifiers are what the watched machine is known by, to the drivers too.
func (f *Fencer) identifiers(m fence.Machine) []record.Identifier {
	all := record.IdentifiersOf(m, f.Driver)
	if f.NodeIDs != nil {
		all = append(all, f.NodeIDs(m.NodeName)...)
	}
	return all
}

// record of that node, or an empty one.
func (s *sight) record(node string) *record.Record {
	if r := s.records[node]; r != nil {
		return r
	}
	return record.New(node)
}

// other tells who else than node has a claim to a value: to whom it is bound before who
// merely says it. Of a node that is gone whoever says it comes first, Idle or not.
func (s *sight) other(node string, gone bool) func(record.Identifier) record.IdentityClaim {
	return func(one record.Identifier) (other record.IdentityClaim) {
		for _, c := range s.claims[one.Key()] {
			if c.Node != node && c.Meets(one) && (gone || !c.Idle) && (c.Bound != gone || other.Node == "") {
				other = c
			}
		}
		return other
	}
}

// bindNode binds what the Node says, if that changes its record. Whoever needs a garbled
// record says so. bound: something was.
func (f *Fencer) bindNode(ctx context.Context, node string, now *sight) (bound bool, err error) {
	m, here := now.machines[node]
	if !here || f.ReadOnly || now.garbled[node] {
		return false, nil
	}
	seen := f.identifiers(m)
	if would := *now.record(node); !would.Bind(m.NodeUID, seen, now.other(node, false)) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	live, err := f.Nodes.Nodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read Node %s: %w", node, err)
	}
	said, err := f.said(ctx, live)
	if err != nil {
		return false, err
	}
	// What it says since, another may say since; and other drivers' sidecars bind their node
	// IDs, as only they see all that say one.
	said = slices.DeleteFunc(said, func(c record.Identifier) bool { return !slices.ContainsFunc(seen, c.Is) })
	r, err := f.Records.Update(ctx, node, func(r *record.Record) (bool, error) {
		return r.Bind(string(live.UID), said, now.other(node, false)), nil
	})
	if err != nil {
		return false, err
	}
	for _, b := range r.Known().Bound {
		if b.Other != "" || b.Since != "" {
			klog.FromContext(ctx).Info("What a node says of itself is not its own: no fence agent acts by it", "node", node, "what", b.Kind, "bound", b.Value, "saysSince", b.Since, "other", b.Other)
		}
	}
	return true, nil
}
