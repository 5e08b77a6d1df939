package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// confirmWatch is how long a node's lease is watched before an operator's word
// is written: a kubelet renews it every 10 seconds.
const confirmWatch = 12 * time.Second

// confirmFlags are the flags and arguments of `csi-fencepost fence confirm`.
type confirmFlags struct {
	*claimFlags
	nodeID string
	yes    bool
	node   string
	// overrideAgent is why an agent that reads on is wrong; empty: none is.
	overrideAgent string
	agents        agentFlags
}

func parseConfirmFlags(args []string) (*confirmFlags, error) {
	f := &confirmFlags{claimFlags: newClaimFlags("fence confirm")}
	f.set.StringVar(&f.nodeID, "node-id", "", "Only the machine with this node ID of a driver, for example an old one of which a new machine has the name.")
	f.set.BoolVar(&f.yes, "yes", false, "Do not ask.")
	f.set.StringVar(&f.overrideAgent, "override-agent", "", "Why a fence agent that reads on is wrong: its device is broken. It is kept in the audit trail. Needs --config.")
	f.agents.register(f.set)
	if err := f.parse(args, "NODE"); err != nil {
		return f, err
	}
	switch given := f.set.Changed("override-agent"); {
	case given && strings.TrimSpace(f.overrideAgent) == "":
		return nil, usagef("fence confirm: --override-agent is empty: how is it known that the device is wrong?")
	case given && f.cluster.config == "":
		return nil, usagef("fence confirm: --override-agent needs --config, to find the agents that read on")
	}
	f.node = f.set.Arg(0)
	if !f.yes && !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, usagef("fence confirm: standard input is no terminal, so that nobody can be asked: give --yes if you are sure that node %s is off", f.node)
	}
	return f, nil
}

// runFenceConfirm is `csi-fencepost fence confirm`.
func runFenceConfirm(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseConfirmFlags(args)
	if errors.Is(err, errHelp) {
		f.help(stdout, "csi-fencepost fence confirm NODE --reason TEXT says that the node is off: its volumes may move.\nIt is refused while the node renews its lease.")
		return nil
	}
	if err != nil {
		return err
	}
	c, err := f.open()
	if err != nil {
		return err
	}
	return f.confirm(ctx, c, stdout, stderr)
}

// confirm reads, watches, asks, reads again, and writes.
func (f *confirmFlags) confirm(ctx context.Context, c *cluster, stdout, stderr io.Writer) error {
	now, err := readNode(ctx, c.client, f.node)
	if err != nil {
		return err
	}
	held, err := readHoldings(ctx, c.client, now)
	if err != nil {
		return err
	}
	b, err := bind(now, held, f.nodeID)
	if err != nil {
		return err
	}
	if b.watch {
		if err := watchSilence(ctx, c.client, now, stderr); err != nil {
			return f.butOlder(err, now, held)
		}
	}
	wrong, err := f.readingOn(ctx, c, now)
	if err != nil {
		return err
	}
	printBinding(stdout, now, b)
	printOverrides(stdout, wrong)
	if !f.yes && !ask(ctx, os.Stdin, stdout, f.node, fmt.Sprintf("If node %s still writes, this destroys data. Type its name to confirm that it is off: ", f.node)) {
		return errors.New("nothing was written")
	}
	if b.watch {
		// A person may have thought about it for a while.
		if err := stillSilent(ctx, c.client, now); err != nil {
			return err
		}
	}
	by := operator(ctx, c.client)
	if err := f.override(ctx, c, by, wrong, b); err != nil {
		return err
	}
	id, err := c.records().Confirm(ctx, f.node, record.Confirmation{By: by, Reason: f.reason, Machines: b.machines})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Confirmed: node %s is off. The sidecars see it by themselves.\nTo take it back: csi-fencepost fence withdraw %s --id %s --reason TEXT\n", f.node, shellQuote(f.node), id)
	return nil
}

// butOlder adds, to the error that the node lives, how to speak of the older machines
// of its name alone.
func (f *confirmFlags) butOlder(err error, now *nodeNow, held *holdings) error {
	var alive *aliveError
	if f.nodeID != "" || !errors.As(err, &alive) {
		return err
	}
	var ids []string
	for _, h := range held.all {
		if now.isOlder(h) && !slices.Contains(ids, h.nodeID) {
			ids = append(ids, h.nodeID)
		}
	}
	for _, id := range ids {
		err = fmt.Errorf("%w; of the older machine of its name with node ID %s, if that one is off, say it alone: csi-fencepost fence confirm %s --node-id %s --reason TEXT",
			err, id, shellQuote(f.node), shellQuote(id))
	}
	return err
}

// ask has the node's name typed.
func ask(ctx context.Context, in io.Reader, out io.Writer, node, question string) bool {
	fmt.Fprint(out, question)
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case line := <-typed:
		return line == node
	case <-ctx.Done():
		return false
	}
}

// nodeNow is what there is of a node now. Node and Lease may be nil.
type nodeNow struct {
	name    string
	node    *corev1.Node
	lease   *coordinationv1.Lease
	csiNode *storagev1.CSINode
}

func readNode(ctx context.Context, client kubernetes.Interface, name string) (now *nodeNow, err error) {
	now = &nodeNow{name: name}
	if now.node, err = absent(client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read Node %s: %w", name, err)
	}
	if now.csiNode, err = absent(client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read CSINode %s: %w", name, err)
	}
	if now.lease, err = absent(client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, fmt.Errorf("cannot read the lease of node %s: %w", name, err)
	}
	return now, nil
}

// absent is nil for what is not there.
func absent[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

func (n *nodeNow) uid() string {
	if n.node == nil {
		return ""
	}
	return string(n.node.UID)
}

func (n *nodeNow) bootID() string {
	if n.node == nil {
		return ""
	}
	return n.node.Status.NodeInfo.BootID
}

func (n *nodeNow) systemUUID() string {
	if n.node == nil {
		return ""
	}
	return n.node.Status.NodeInfo.SystemUUID
}

func (n *nodeNow) leaseRV() string {
	if n.lease == nil {
		return ""
	}
	return n.lease.ResourceVersion
}

// nodeID is a driver's node ID on the node; empty: none.
func (n *nodeNow) nodeID(driver string) string {
	if n.csiNode != nil {
		for _, d := range n.csiNode.Spec.Drivers {
			if d.Name == driver {
				return d.NodeID
			}
		}
	}
	return ""
}

// A holding is a volume that a machine of the node's name may hold.
type holding struct {
	pv, driver, handle string
	nodeID             string
	nodeUID, bootID    string // empty: not known
	systemUUID         string // empty: not known
	claim              string // namespace/name; empty: not known
	// state of the ledger's entry; waiting: the ledger has none, and it is not
	// attached there yet.
	state   fence.State
	waiting bool
}

// holdings are what the ledgers and VolumeAttachments say of the node.
type holdings struct {
	all     []holding
	nodes   []string // every node name that is known of
	garbled []string // PVs whose ledger cannot be read
}

func readHoldings(ctx context.Context, client kubernetes.Interface, now *nodeNow) (*holdings, error) {
	uid, err := clusterIdentity(ctx, client)
	if err != nil {
		return nil, err
	}
	return listHoldings(ctx, client, now, func(*corev1.PersistentVolume) string { return uid })
}

// listHoldings lists what may name the node. clusterOf is the cluster whose
// ledger counts on a PersistentVolume.
func listHoldings(ctx context.Context, client kubernetes.Interface, now *nodeNow, clusterOf func(*corev1.PersistentVolume) string) (*holdings, error) {
	pvs, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list PersistentVolumes: %w", err)
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list VolumeAttachments: %w", err)
	}
	h := &holdings{}
	for i := range pvs.Items {
		h.fromLedger(&pvs.Items[i], clusterOf(&pvs.Items[i]), now.name)
	}
	for i := range attachments.Items {
		h.fromAttachment(&attachments.Items[i], now)
	}
	return h, nil
}

func (h *holdings) fromLedger(pv *corev1.PersistentVolume, cluster, node string) {
	text, there := pv.Annotations[ledger.Annotation]
	if !there {
		return
	}
	l, err := ledger.Parse(text)
	if err != nil {
		h.garbled = append(h.garbled, pv.Name)
		return
	}
	if l.Cluster != cluster || l.PVUID != string(pv.UID) {
		return // another cluster's, or a backup's: it does not count
	}
	for _, e := range l.Holders {
		h.nodes = append(h.nodes, e.NodeName)
		if e.NodeName == node && e.State != fence.TakenOver {
			h.all = append(h.all, holding{pv: pv.Name, claim: claimOf(pv), driver: l.Driver, handle: l.Handle, nodeID: e.NodeID, nodeUID: e.NodeUID, bootID: e.BootID, systemUUID: e.SystemUUID, state: e.State})
		}
	}
}

func claimOf(pv *corev1.PersistentVolume) string {
	if claim := pv.Spec.ClaimRef; claim != nil {
		return claim.Namespace + "/" + claim.Name
	}
	return ""
}

// fromAttachment adds what no ledger names. Its machine is the live one if that
// carries the node ID, as the sidecar takes it; else it is not known.
func (h *holdings) fromAttachment(va *storagev1.VolumeAttachment, now *nodeNow) {
	node, driver := va.Spec.NodeName, va.Spec.Attacher
	h.nodes = append(h.nodes, node)
	if node != now.name || va.Spec.Source.PersistentVolumeName == nil {
		return
	}
	pv, id := *va.Spec.Source.PersistentVolumeName, csi.AttachmentNodeID(va)
	if id == "" {
		id = now.nodeID(driver)
	}
	if id == "" || slices.ContainsFunc(h.all, func(o holding) bool { return o.pv == pv && o.nodeID == id }) {
		return
	}
	add := holding{pv: pv, driver: driver, nodeID: id, waiting: !va.Status.Attached && va.DeletionTimestamp == nil}
	if now.node != nil && id == now.nodeID(driver) {
		add.nodeUID, add.bootID = now.uid(), now.bootID()
	}
	h.all = append(h.all, add)
}

// A binding is what a confirmation will be bound to.
type binding struct {
	machines []record.Machine
	covered  []holding
	// registeredAgain: their machine runs on under a new Node, or ran until it
	// was turned off; a word about the node is not believed of them.
	registeredAgain []holding
	garbled         []string
	// live: the Node of today is bound. watch: its lease has to be silent.
	live, watch bool
}

// bind chooses the machines that are confirmed: the live Node's, and those of
// every holding, or only the ones with nodeID.
func bind(now *nodeNow, held *holdings, nodeID string) (*binding, error) {
	chosen := held.all
	if nodeID != "" {
		chosen = slices.DeleteFunc(slices.Clone(held.all), func(h holding) bool { return h.nodeID != nodeID })
		if len(chosen) == 0 && !now.carries(nodeID) {
			return nil, fmt.Errorf("node %s has no machine with node ID %s; it has %s", now.name, nodeID, orNone(strings.Join(now.ids(held), ", ")))
		}
	}
	if now.node == nil && len(chosen) == 0 {
		names := slices.Compact(slices.Sorted(slices.Values(held.nodes)))
		return nil, fmt.Errorf("nothing is known of a node %s: there is no Node, and no ledger or VolumeAttachment names it%s", now.name, didYouMean(now.name, names))
	}
	b := &binding{garbled: held.garbled}
	older := func(h holding) bool { return now.isOlder(h) }
	b.live = now.node != nil && (nodeID == "" || len(chosen) == 0 || !allOf(chosen, older))
	b.watch = b.live || now.node == nil && now.lease != nil
	if b.live {
		b.machines = append(b.machines, record.Machine{NodeID: nodeID, NodeUID: now.uid(), BootID: now.bootID(), SystemUUID: now.systemUUID(), LeaseRV: now.leaseRV()})
	}
	for _, h := range chosen {
		b.add(now, h)
	}
	return b, nil
}

func (b *binding) add(now *nodeNow, h holding) {
	if h.nodeUID == now.uid() && now.node != nil && !now.isOlder(h) {
		b.covered = append(b.covered, h)
		return
	}
	if now.hasAnew(h) {
		b.registeredAgain = append(b.registeredAgain, h)
		return
	}
	b.covered = append(b.covered, h)
	m := record.Machine{NodeID: h.nodeID, NodeUID: h.nodeUID, BootID: h.bootID, SystemUUID: h.systemUUID}
	if !slices.Contains(b.machines, m) {
		b.machines = append(b.machines, m)
	}
	// A deleted Node's lease is there for a moment longer. The word has to
	// count before it goes, and after.
	if m.LeaseRV = now.leaseRV(); now.node == nil && m.LeaseRV != "" && !slices.Contains(b.machines, m) {
		b.machines = append(b.machines, m)
	}
}

// isOlder: the holding is of another machine than the live Node's, for certain:
// the same machine may register again under a new UID, but not with another
// boot ID without a reboot. A new machine may register under the old one's
// Node; then the driver's node ID tells them apart, or, where that is made of the
// name, the machines' own UUIDs, as in the sidecar (package survey, replaced).
func (n *nodeNow) isOlder(h holding) bool {
	if n.node == nil || h.bootID == "" || n.bootID() == "" || h.bootID == n.bootID() {
		return false
	}
	id := n.nodeID(h.driver)
	return h.nodeUID != "" && (h.nodeUID != n.uid() || id != "" && id != h.nodeID || fence.OtherSystem(h.systemUUID, n.systemUUID()))
}

// hasAnew: the holding's machine is the live Node's, and was another Node's.
func (n *nodeNow) hasAnew(h holding) bool {
	if n.node == nil {
		return false
	}
	m := fence.Holder{NodeUID: h.nodeUID, BootID: h.bootID, SystemUUID: h.systemUUID,
		Node: &fence.Node{UID: n.uid(), BootID: n.bootID(), SystemUUID: n.systemUUID()}}
	return m.RegisteredAnew()
}

func (n *nodeNow) carries(nodeID string) bool {
	return n.node != nil && n.csiNode != nil && slices.ContainsFunc(n.csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.NodeID == nodeID })
}

// ids are all node IDs that are known of the node.
func (n *nodeNow) ids(held *holdings) []string {
	var ids []string
	for _, h := range held.all {
		ids = append(ids, h.nodeID)
	}
	if n.csiNode != nil {
		for _, d := range n.csiNode.Spec.Drivers {
			ids = append(ids, d.NodeID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func allOf[T any](all []T, f func(T) bool) bool {
	return !slices.ContainsFunc(all, func(t T) bool { return !f(t) })
}

// watchPeriod is long enough for a living kubelet to renew its lease: it does
// so four times in the lease's duration.
func watchPeriod(lease *coordinationv1.Lease) time.Duration {
	if lease == nil || lease.Spec.LeaseDurationSeconds == nil {
		return confirmWatch
	}
	return max(confirmWatch, time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second/4+2*time.Second)
}

// watchSilence returns nil if the node shows no life for watchPeriod.
func watchSilence(ctx context.Context, client kubernetes.Interface, now *nodeNow, progress io.Writer) error {
	period := watchPeriod(now.lease)
	fmt.Fprintf(progress, "Watching the lease of node %s for %s, to see that it does not live.\n", now.name, period)
	for end := time.Now().Add(period); ; {
		if err := stillSilent(ctx, client, now); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			countdown(progress, "", 0)
			return nil
		}
		countdown(progress, "no sign of life yet", left)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(leasePoll, left)):
		}
	}
}

// stillSilent reads the node once more: nil if nothing of it has changed.
func stillSilent(ctx context.Context, client kubernetes.Interface, was *nodeNow) error {
	now, err := readNode(ctx, client, was.name)
	if err != nil {
		return err
	}
	alive := func(why string) error { return &aliveError{was.name, why} }
	switch {
	case now.leaseRV() != was.leaseRV() && now.lease != nil:
		return alive("its kubelet has just renewed its lease")
	case now.lease != nil:
	case ready(now.node):
		return alive("its Node is Ready and it has no lease yet")
	}
	if now.uid() != was.uid() || now.bootID() != was.bootID() || now.leaseRV() != was.leaseRV() {
		return fmt.Errorf("node %s has changed while it was looked at (its Node or lease was deleted or created again). Nothing was written; try again", was.name)
	}
	return nil
}

// An aliveError says what shows that a node lives.
type aliveError struct{ node, why string }

func (e *aliveError) Error() string {
	return fmt.Sprintf("node %s is alive: %s. Nothing was written. A node that runs has to be turned off before its volumes can move", e.node, e.why)
}

func ready(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// printBinding says what the word will be bound to, and what it unblocks.
func printBinding(w io.Writer, now *nodeNow, b *binding) {
	p := &printer{w: w, textStyle: styleOf(w)}
	p.heading(bold, "That node "+now.name+" is off will be written of:")
	for _, m := range b.machines {
		p.paragraph(2, 2, "- "+machineText(m, now))
	}
	if len(b.covered) == 0 {
		p.heading(plain, "No volume is known to be held there.")
	} else {
		p.heading(bold, "Volumes that it unblocks:")
	}
	for _, h := range b.covered {
		p.paragraph(2, 2, "- "+holdingText(h, now))
	}
	for _, h := range b.registeredAgain {
		how := "without having been off"
		if h.bootID != now.bootID() {
			how = "after a boot"
		}
		p.paragraph(0, 2, fmt.Sprintf("! Not %s: its machine has registered again under a new Node %s (boot ID %s). To free that volume alone: csi-fencepost release pv %s --node %s --node-id %s --reason TEXT",
			h.pv, how, now.bootID(), shellQuote(h.pv), shellQuote(now.name), shellQuote(h.nodeID)))
	}
	for _, pv := range b.garbled {
		p.paragraph(0, 2, fmt.Sprintf("! The ledger of PersistentVolume %s cannot be read, so it may be missing here: csi-fencepost explain pv %s", pv, shellQuote(pv)))
	}
}

func machineText(m record.Machine, now *nodeNow) string {
	text := "the live Node"
	switch {
	case m.NodeUID == "":
		text = "a machine without a known Node"
	case now.node == nil:
		text = "the machine whose Node is gone"
	case m.NodeUID != now.uid(), m.BootID != now.bootID():
		text = "an older machine of that name"
	}
	for _, part := range []struct{ name, value string }{{"node ID", m.NodeID}, {"node UID", m.NodeUID}, {"boot ID", m.BootID}, {"lease", m.LeaseRV}} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}

func holdingText(h holding, now *nodeNow) string {
	text := fmt.Sprintf("%s (driver %s, node ID %s)", h.pv, h.driver, h.nodeID)
	if now.node == nil || h.handle == "" || h.nodeUID != now.uid() || now.isOlder(h) {
		return text
	}
	ids := &csi.Identity{Driver: h.driver}
	if _, listed := ids.NodeLists(now.node, h.handle); listed {
		text += ": once Kubernetes has taken it off the node's volumesAttached (delete the pods there that use it)"
	}
	return text
}
