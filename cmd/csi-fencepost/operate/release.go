package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

const releaseHelp = `csi-fencepost release pv NAME --node NODE --reason TEXT says that the node does not use that one volume any more.
It is refused while the node lives and its own status lists the volume in use.

Said of a node that lives, it counts in that boot, until the node lists the volume or is given it again. Said of a silent
one, it counts until the node shows life, and not where a fence agent reads its power as on.

csi-fencepost release withdraw pv NAME --node NODE --reason TEXT takes it back.`

// releaseFlags are the flags and arguments of `csi-fencepost release`.
type releaseFlags struct {
	*claimFlags
	node, nodeID string
	pv           string
}

func parseReleaseFlags(args []string) (*releaseFlags, error) {
	f := &releaseFlags{claimFlags: newClaimFlags("release", releaseHelp)}
	f.set.StringVar(&f.node, "node", "", "The node that does not use the volume any more. Required.")
	f.set.StringVar(&f.nodeID, "node-id", "", "Which of its machines, by node ID of the driver, where several of that name hold the volume.")
	err := f.parse(args, "pv", "NAME")
	if f.set.Arg(0) == "withdraw" {
		return nil, f.set.Wrong("withdraw is a subcommand, and stands before all flags: csi-fencepost release withdraw pv NAME")
	}
	if err != nil {
		return nil, err
	}
	if kind := f.set.Arg(0); kind != "pv" && kind != "persistentvolume" {
		return nil, f.set.Wrong("%q cannot be released, only pv: csi-fencepost release pv NAME --node NODE --reason TEXT", kind)
	}
	if strings.TrimSpace(f.node) == "" {
		return nil, f.set.Wrong("--node is missing: the node that does not use the volume any more")
	}
	f.pv = f.set.Arg(1)
	return f, nil
}

// runRelease is `csi-fencepost release`.
func runRelease(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "withdraw" {
		return runReleaseWithdraw(ctx, args[1:], stdout)
	}
	f, err := parseReleaseFlags(args)
	if err != nil {
		return err
	}
	c, err := f.open()
	if err != nil {
		return err
	}
	l, h, err := f.look(ctx, c, stderr)
	if err != nil {
		return err
	}
	rel := record.ReleaseOf(h)
	if rel.Token == "" {
		if rel.Token, err = writtenDown(ctx, c, l, h); err != nil {
			return err
		}
	}
	rel.Volume, rel.Driver, rel.By, rel.Reason = l.Survey.Volume, l.Driver, cluster.Operator(ctx, c.Client), f.reason
	if _, err = c.Records().ReleaseVolume(ctx, f.node, rel); err != nil {
		return err
	}
	printReleased(stdout, f.pv, h, rel.Life)
	return nil
}

// writtenDown adds a holder that the ledger lacks to it, and returns its token: a
// release is bound to an entry. Where there is no ledger, or the driver has not been
// asked for its list since, it is written as by a repair, so that the driver still is.
func writtenDown(ctx context.Context, c *cluster.Cluster, l *explain.Look, h *fence.Holder) (token string, err error) {
	pv, book := l.Pv.Name, l.Survey.Book
	if h.NodeUID == "" && h.Node != nil {
		return "", fmt.Errorf("which machine node %s is cannot be told while its driver is not registered there, so a release could not be bound to it. Nothing was written; try again", h.NodeName)
	}
	if first := l.Survey.Holder(h.NodeID); first.NodeName != h.NodeName {
		return "", fmt.Errorf("node %s has the node ID of node %s, whose the entry of that ID in the ledger is, so a release could not be told from one of that node's. Nothing was written. What node %s lists counts until it lists it no more, or until csi-fencepost fence confirm %s says that it is off",
			h.NodeName, first.NodeName, h.NodeName, h.NodeName)
	}
	if book.Unasked() {
		p, err := rebuild(ctx, c, pv, io.Discard)
		if err != nil {
			return "", err
		}
		e := p.want.Get(h.NodeID)
		if e == nil || e.NodeUID != h.NodeUID {
			return "", errChanged(pv)
		}
		return e.Token, p.write(ctx, c)
	}
	// Held against what was looked at: whatever was written since makes it another ledger.
	ledgers := ledger.New(c.Client, book.Ledger.Cluster, &csi.Identity{Driver: l.Driver})
	entry, want := survey.EntryOf(h, fence.Held, ledgers.NewToken()), book.Ledger.Clone()
	want.Put(entry)
	switch _, err := ledgers.Write(ctx, book, want); {
	case errors.Is(err, ledger.ErrConflict):
		return "", errChanged(pv)
	case err != nil:
		return "", fmt.Errorf("the release has to be bound to the ledger, which lacks the holder, and it cannot be written there: %w", err)
	}
	return entry.Token, nil
}

func errChanged(pv string) error {
	return fmt.Errorf("the ledger of PersistentVolume %s has changed while it was looked at. Nothing was released; try again", pv)
}

// look finds the holder. What a silent kubelet listed last says nothing of now,
// but that it is silent has to be seen: its lease is watched for as long as the
// sidecar does.
func (f *releaseFlags) look(ctx context.Context, c *cluster.Cluster, progress io.Writer) (*explain.Look, *fence.Holder, error) {
	l, err := explain.LookAt(ctx, c, f.pv, 0, progress)
	if err != nil {
		return nil, nil, err
	}
	h, err := releasable(l, f.node, f.nodeID)
	if h == nil || h.Here() == nil || !h.Node.ReadyUnknown {
		return l, h, err
	}
	now, err := cluster.ReadNode(ctx, c.Client, h.NodeName)
	if err != nil {
		return nil, nil, err
	}
	period := observe.SuspectAfter(c.Config.Fencing.SuspectAfter.Duration, now.Lease) + 2*time.Second
	if l, err = explain.LookAt(ctx, c, f.pv, period, progress); err != nil {
		return nil, nil, err
	}
	h, err = releasable(l, f.node, f.nodeID)
	if err == nil && h.Here() != nil && h.Liveness == fence.Unwatched {
		err = fmt.Errorf("whether node %s lives could not be seen: the API server did not answer all the time, or the Node changed. Nothing was written; try again", f.node)
	}
	return l, h, err
}

func printReleased(w io.Writer, pv string, h *fence.Holder, life record.Life) {
	fmt.Fprintf(w, "Released: volume %s from %s. The sidecar sees it by itself.\n", pv, h.Describe())
	switch {
	case life == record.Silent:
		fmt.Fprintln(w, "It ends as soon as the node shows life, and does not count where a fence agent reads its power as on.")
		if a := h.Attachment; a != nil && !a.Deleting() && h.Node.ListedAttached {
			fmt.Fprintf(w, "While its VolumeAttachment %s stands it counts only once Kubernetes has taken the volume off its volumesAttached: delete the pods of node %s that use it.\n", a.Name, h.NodeName)
		}
	case life == record.Living && h.Node.ListedAttached:
		fmt.Fprintf(w, "While node %s lives it counts only once Kubernetes has taken the volume off its volumesAttached: delete the pods there that use it.\n", h.NodeName)
	}
	fmt.Fprintf(w, "To take it back: csi-fencepost release withdraw pv %s --node %s --reason TEXT\n", printable.Word(pv), printable.Word(h.NodeName))
}

// releasable finds the holder that a release is about. An error says what is in
// its way; a cli.UsageError, what is to be chosen.
func releasable(l *explain.Look, node, nodeID string) (*fence.Holder, error) {
	pv := l.Pv.Name
	switch {
	case l.Garbled != nil:
		return nil, l.Garbled
	case len(l.Denied) > 0:
		return nil, fmt.Errorf("a right is missing to see who holds PersistentVolume %s: %s", pv, strings.Join(l.Denied, ", "))
	}
	var found []*fence.Holder
	var all, ids []string
	for i := range l.Survey.Holders {
		h := &l.Survey.Holders[i]
		if _, _, held := l.Survey.Snapshot.Alone(*h); !held {
			continue
		}
		all = append(all, h.Describe())
		if h.NodeName != node {
			continue
		}
		ids = append(ids, cli.OrNone(h.NodeID))
		if nodeID == "" || h.NodeID == nodeID {
			found = append(found, h)
		}
	}
	switch {
	case len(ids) == 0:
		return nil, fmt.Errorf("node %s does not hold PersistentVolume %s; who does: %s", node, pv, cli.OrNone(strings.Join(all, ", ")))
	case len(found) == 0:
		return nil, fmt.Errorf("node %s does not hold PersistentVolume %s under node ID %s, but under %s", node, pv, nodeID, strings.Join(ids, ", "))
	case len(found) > 1:
		return nil, cli.Usagef("release: several machines called %s hold PersistentVolume %s: choose one with --node-id: %s", node, pv, strings.Join(slices.Sorted(slices.Values(ids)), ", "))
	}
	return found[0], inTheWay(l, found[0])
}

// listedInUse tells whether the holder's own kubelet says that it uses the volume, or did when it
// was last heard.
func listedInUse(h *fence.Holder) bool {
	n := h.Here()
	return n != nil && n.InUse
}

// inTheWay says why a release of that holder cannot be written.
func inTheWay(l *explain.Look, h *fence.Holder) error {
	pv := l.Pv.Name
	_, st, _ := l.Survey.Snapshot.Alone(*h)
	switch {
	case h.NodeID == "":
		return fmt.Errorf("the node ID of node %s is not known, so that one volume cannot be released from it; if the node is off: csi-fencepost fence confirm %s --reason TEXT", h.NodeName, printable.Word(h.NodeName))
	case listedInUse(h) && h.Liveness != fence.Stale:
		return fmt.Errorf("node %s uses PersistentVolume %s: its kubelet lists it in volumesInUse. End the pods there that use it: %s", h.NodeName, pv, fence.PodsCommand(printable.Word(h.NodeName)))
	case h.Here() != nil && h.Node.BootID == "":
		return fmt.Errorf("node %s reports no boot ID, so a release could not be told from one of before a reboot, and would not count; nor would another word. Turn the node off, delete the Node, then: csi-fencepost fence confirm %s --reason TEXT", h.NodeName, printable.Word(h.NodeName))
	case record.ReleaseOf(h).Life == record.Living && h.Attachment != nil && !h.Detaching():
		return fmt.Errorf("node %s lives, and its VolumeAttachment %s of PersistentVolume %s is not being deleted, so pods there may use the volume at any time. "+
			"End the pods there that use it, and Kubernetes deletes the VolumeAttachment; what lists them: %s", h.NodeName, h.Attachment.Name, pv, fence.PodsCommand(printable.Word(h.NodeName)))
	case st.Reason == fence.HolderReleased && !(h.Detaching() && h.State != fence.Released): // of which the sidecar may know more
		return fmt.Errorf("%s has released PersistentVolume %s already: there is nothing to say", h.Describe(), pv)
	}
	return nil
}
