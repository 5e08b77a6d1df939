package failover

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// Brake is why a node is not fenced although it is due. It is the value of the
// label reason of the metric csi_fencepost_fencing_blocked.
type Brake string

// The brakes, in the order in which they are tried.
const (
	// NoBrake means that nothing speaks against fencing the node.
	NoBrake Brake = ""
	// BrakeNodeGone means that there is no Node, so that nobody can tell which machine it is.
	BrakeNodeGone Brake = "NodeGone"
	// BrakeNoProof means that whatever was read of the node afterwards could not count.
	BrakeNoProof Brake = "NoProof"
	// BrakeOptOut means that the Node opts out of failover.
	BrakeOptOut Brake = "OptOut"
	// BrakeMaintenance means that the Node is under maintenance by annotation.
	BrakeMaintenance Brake = "Maintenance"
	// BrakeCordoned means that somebody has cordoned the Node, and so works on it.
	BrakeCordoned Brake = "Cordoned"
	// BrakeScaleDown means that the Node is being deleted or scaled down.
	BrakeScaleDown Brake = "ScaleDown"
	// BrakeNothingWaits means that no pod of the node may be moved and none waits elsewhere for what
	// it holds.
	BrakeNothingWaits Brake = "NothingWaits"
	// BrakeStorm means that so many nodes are silent that the fault is more likely ours.
	BrakeStorm Brake = "Storm"
	// BrakeLead means that this process does not renew its own lead in time.
	BrakeLead Brake = "OwnLeaseLate"
	// BrakeStorage means that the sidecars of the node's drivers have just cut it off from their
	// storage, so that its volumes are about to move without its power.
	BrakeStorage Brake = "StorageFenced"
	// BrakeConcurrent means that as many nodes as allowed are being fenced.
	BrakeConcurrent Brake = "MaxConcurrent"
	// BrakeHourly means that as many nodes as allowed were fenced within an hour; or that this one
	// was, as another machine.
	BrakeHourly Brake = "MaxPerHour"
	// BrakeZone means that another zone has a node that is being fenced.
	BrakeZone Brake = "OtherZone"
)

const (
	// MaintenanceAnnotation on a Node, with any value but "false", says that
	// somebody works on it.
	MaintenanceAnnotation = "csi-fencepost.io/maintenance"
	// OptOutAnnotation with the value "false" on a Node, PersistentVolumeClaim
	// or Pod takes it out of failover.
	OptOutAnnotation = "csi-fencepost.io/failover"

	// scaleDownTaint is the cluster autoscaler's, just before it deletes the
	// machine (kubernetes/autoscaler, ToBeDeletedTaint).
	scaleDownTaint = "ToBeDeletedByClusterAutoscaler"

	// inFlight is how long a node that was fenced counts as being fenced while
	// it still holds volumes: one that stays broken must not stop the others for
	// ever.
	inFlight = 5 * time.Minute
)

// weather is everything that the brakes ask, gathered whole before they are
// tried.
type weather struct {
	Now  time.Time
	Node *corev1.Node
	// NodeIDs of the Node, by driver.
	NodeIDs map[string]string
	// Shared tells whether another Node reports its system UUID.
	Shared bool
	// StorageOnly tells whether it is only cut off from storage, which needs no boot to count.
	StorageOnly bool
	// Seeks tells whether its agents go by what its Node says of its machine.
	Seeks bool
	// Withheld says why no agent may be told which machine to cut off; empty: one may.
	Withheld string
	// Pods that would move or that wait for what the node holds.
	Waiting int
	// Storm and Lead say what is wrong; empty: nothing.
	Storm, Lead string
	// Holders are the drivers of which the node holds a volume.
	Holders []string
	// Zones by node name, of all Nodes.
	Zones map[string]string
	// Fences of all nodes, this one too, that count (fencer.Counting).
	Fences []fencer.Fence
	// Ahead are other nodes that this process is about to fence, or fences, and
	// whose brakes were tried before. Their records may not say it yet.
	Ahead []string
	// Holding are the nodes that still hold volumes.
	Holding map[string]bool

	MaxConcurrent int
	// MaxUnhealthy is a share, 0 to 1.
	MaxUnhealthy float64
}

// brake tells whether something speaks against fencing the node, and in words
// what, and what would release it.
func (w *weather) brake() (Brake, string) {
	if b, words := w.ofNow(); b != NoBrake {
		return b, words
	}
	return w.ofOthers()
}

// ofNow are those that take no reading of other objects.
func (w *weather) ofNow() (Brake, string) {
	if b, words := w.ofNode(); b != NoBrake {
		return b, words
	}
	switch {
	case w.Waiting == 0:
		return BrakeNothingWaits, "no pod may be moved off it and none waits for what it holds"
	case w.Storm != "":
		return BrakeStorm, w.Storm + "; the fault may be the network's or the API server's, so every node is watched anew afterwards"
	case w.Lead != "":
		return BrakeLead, "csi-fencepost itself does not reach the API server in time: " + w.Lead
	}
	return NoBrake, ""
}

func (w *weather) ofNode() (Brake, string) {
	n := w.Node
	if n == nil {
		return BrakeNodeGone, "its Node object is gone, so nobody can tell which machine is meant; confirm it by hand"
	}
	if why, unblock := unprovable(n, w.Shared); why != "" && !w.StorageOnly {
		return BrakeNoProof, "no proof that it is off could count: " + why + "; " + unblock
	}
	switch {
	case w.Withheld != "":
		return BrakeNoProof, w.Withheld
	case OptedOut(n.Annotations):
		return BrakeOptOut, "its annotation " + OptOutAnnotation + " is \"false\""
	case maintained(n):
		return BrakeMaintenance, "it is under maintenance, its annotation " + MaintenanceAnnotation + " says; remove that to have it fenced"
	case n.DeletionTimestamp != nil:
		return BrakeScaleDown, "its Node is being deleted"
	case hasTaint(n, scaleDownTaint):
		return BrakeScaleDown, "the cluster autoscaler is removing it (taint " + scaleDownTaint + ")"
	case n.Spec.Unschedulable:
		return BrakeCordoned, "somebody has cordoned it; kubectl uncordon " + n.Name + " to have it fenced"
	}
	return NoBrake, ""
}

// OfNode says what of the Node itself would keep it from being fenced if it fell silent now, and
// in words; NoBrake: nothing does. shared: another Node reports its system UUID; storageOnly: it
// would only be cut off from storage; withheld is as agent.Levels say it.
func OfNode(n *corev1.Node, shared, storageOnly bool, withheld string) (Brake, string) {
	w := weather{Node: n, Shared: shared, StorageOnly: storageOnly, Withheld: withheld}
	return w.ofNode()
}

func (w *weather) ofOthers() (Brake, string) {
	// By node: one that is fenced in two ways, or again and again, is one.
	flying, lately := map[string]bool{}, map[string]bool{}
	for _, node := range w.Ahead {
		flying[node], lately[node] = true, true
	}
	for _, f := range w.Fences {
		age := w.Now.Sub(f.At)
		if was := w.unlike(&f); was != "" && age < time.Hour {
			return BrakeHourly, fmt.Sprintf("within the hour its Node was fenced as another machine (%s). Its kubelet writes which machine it is, so that one of them is fenced within an hour; csi-fencepost fence off %s --reason TEXT if it was replaced", was, printable.Word(w.Node.Name))
		}
		if !f.Cut || f.Node == w.Node.Name {
			continue
		}
		if age < time.Hour {
			lately[f.Node] = true
		}
		// A fence that is being lifted is coming back, or could not be cut anew.
		if f.Void == "" && !f.Lifting && age < inFlight && w.Holding[f.Node] {
			flying[f.Node] = true
		}
	}
	if w.storageFenced() {
		return BrakeStorage, fmt.Sprintf("the sidecars of %s have cut it off from their storage, and its volumes move by that; its power is cut if it holds volumes %s after that", strings.Join(w.Holders, ", "), inFlight)
	}
	others, zones, hour := slices.Sorted(maps.Keys(flying)), []string{}, len(lately)
	zone := w.Zones[w.Node.Name]
	for _, node := range others {
		if other, known := w.Zones[node]; known && other != zone {
			zones = append(zones, node+" in zone "+other)
		}
	}
	limit := perHour(len(w.Zones), w.MaxUnhealthy)
	switch {
	case len(zones) > 0:
		return BrakeZone, fmt.Sprintf("nodes of one zone are fenced at a time, and %v is being fenced", zones)
	case len(others) >= w.MaxConcurrent:
		return BrakeConcurrent, fmt.Sprintf("%d nodes are fenced at a time (fencing.maxConcurrent), and %v still hold volumes", w.MaxConcurrent, others)
	case hour >= limit:
		return BrakeHourly, fmt.Sprintf("%d nodes were fenced within an hour, and of %d nodes no more than %d may be (fencing.maxUnhealthy)", hour, len(w.Zones), limit)
	}
	return NoBrake, ""
}

// unlike says which other machine this very Node named when it was cut off; empty: none that is
// known. A kubelet can have its Node name one healthy machine after the other, to have them cut
// off, but it can neither replace its Node nor change its provider ID. A node that fails again is
// the same machine, in whichever boot.
func (w *weather) unlike(f *fencer.Fence) string {
	if !w.Seeks || !f.Cut || f.Node != w.Node.Name || f.NodeUID != string(w.Node.UID) {
		return ""
	}
	for driver, id := range f.NodeIDs {
		// The name stands for a node ID that is not known.
		if now := w.NodeIDs[driver]; now != "" && now != id && id != f.Node {
			return "node ID " + id
		}
	}
	if (fence.Machine{NodeUID: f.NodeUID, SystemUUID: f.SystemUUID}).Compare(fence.MachineOf(w.Node)) == fence.Other {
		return "system UUID " + f.SystemUUID
	}
	return ""
}

// storageFenced tells whether, for each driver of which the node holds a volume, another sidecar
// cuts it off from that driver's storage, or has, in this boot and lately.
func (w *weather) storageFenced() bool {
	cut := func(driver string) bool {
		return slices.ContainsFunc(w.Fences, func(f fencer.Fence) bool {
			return f.Others && f.Driver == driver && f.Vouched && f.Void == "" && !f.Lifting && w.Now.Sub(f.At) < inFlight &&
				f.Node == w.Node.Name && f.NodeUID == string(w.Node.UID) && f.BootID == w.Node.Status.NodeInfo.BootID
		})
	}
	return len(w.Holders) > 0 && !slices.ContainsFunc(w.Holders, func(driver string) bool { return !cut(driver) })
}

// perHour is how many of so many nodes may be fenced within an hour: the share
// maxUnhealthy of them, and always one.
func perHour(nodes int, maxUnhealthy float64) int {
	return max(1, int(math.Floor(float64(nodes)*maxUnhealthy+1e-9)))
}

// unprovable is fence.Holder's, of the Node's own machine. shared: another Node reports its
// system UUID.
func unprovable(n *corev1.Node, shared bool) (why, unblock string) {
	if n == nil {
		return "", ""
	}
	m, live := own(n, shared)
	h := fence.User(m, live, fence.Unwatched, "")
	return h.Unprovable()
}

// own is the live Node's machine, and what that Node says of it now.
func own(n *corev1.Node, shared bool) (fence.Machine, *fence.Node) {
	m := fence.MachineOf(n)
	live := m.Live()
	live.SystemShared = shared
	return m, live
}

// shared tells whether another Node reports its system UUID.
func (w *worker) shared(n *corev1.Node) bool {
	return n != nil && w.Nodes.SystemShared(n.Name, n.Status.NodeInfo.SystemUUID)
}

// storageOnly tells whether the node is only cut off from its storage: no other agent covers it, or
// those that do are left alone.
func (w *worker) storageOnly(n *corev1.Node) bool {
	return w.Fencer.StorageOnly(w.name) || w.unpowered(n)
}

// unpowered tells whether nothing that is read of the node's power could count, while agents that
// cut it off from its storage cover it. The agents of its power are then neither asked nor used.
func (w *worker) unpowered(n *corev1.Node) bool {
	why, _ := unprovable(n, w.shared(n))
	return why != "" && w.Fencer.CoversStorage(w.name)
}

// OptedOut tells whether the annotations of a Node, PersistentVolumeClaim or Pod take it out of failover.
func OptedOut(annotations map[string]string) bool { return annotations[OptOutAnnotation] == "false" }

func maintained(n *corev1.Node) bool {
	value, on := n.Annotations[MaintenanceAnnotation]
	return on && value != "false"
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
