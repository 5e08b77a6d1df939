package simulate

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// machine is what a node's name stands for, or stood for once. What it has
// mounted lives and dies with its power.
type machine struct {
	id     string // the driver's node ID
	former string // the one of before an upgrade of the driver; empty: there was none
	slot   *slot
	system string // system UUID
	boots  int
	// install is the machine ID of its installation (installation).
	install string
	// bootID is that of the boot number booted.
	bootID string
	booted int
	// counts tells that boot IDs of its kind are counts (Setup.Twins).
	counts bool
	// shown is the step in which its Node first said so; 0: not yet, or it was
	// there from the start.
	shown int
	power bool
	// skew is how far its clock is ahead; jumped: it was set, and the kubelet has not
	// reported since.
	skew   time.Duration
	jumped bool
	// leapt is when it was last set forward.
	leapt time.Time
	// paused, since stopped.
	paused  bool
	stopped time.Time
	// severed tells that another machine has its name by now, and that it never reaches the API
	// server again.
	severed bool
	mounts  map[*volume]*session
	keeps   map[*volume]bool // of a twin (Keep)
	kubelet kubelet
	// hostile tells that its kubelet is, or was, hostile, and wrote what was borrowed from other
	// machines.
	hostile  bool
	borrowed map[string]*machine
	// releasedAt is when the design last believed a false release of a volume from it.
	releasedAt map[*volume]time.Time
	// outlived tells that it has renewed its lease since the out-of-service taint of its Node was
	// put on, which therefore says nothing of what came after.
	outlived bool
	// believedAt is when the design last believed a false word about it.
	believedAt time.Time
}

// session is a volume that is mounted on a machine.
type session struct {
	// holdsOn tells that the volume was detached, and that the client writes on.
	holdsOn bool
	// excused tells that the volume was taken while it was in use because somebody said what was not
	// true, and the design believes him.
	excused bool
	// inherited is the UID of the Node that mounted a disk for which no publish to
	// this machine was asked: it was attached to another machine of its node ID.
	inherited types.UID
	// staged alone: no pod has it any more.
	staged bool
	// orphan tells that its kubelet, restarted, found the mount, and no pod of it.
	orphan bool
	// outlives tells that its kubelet has unmounted it from the machine, while it is mounted in a
	// container that has not ended.
	outlives bool
	// forgotten tells that its kubelet restarted, and knows nothing of the mount.
	forgotten bool
	// unlisted tells that it was forgotten although it was in volumesAttached, as what is staged
	// alone is.
	unlisted bool
	// relisted tells that it was forgotten, and that its kubelet was then given a pod of the volume
	// again.
	relisted bool
	// again tells that it was forgotten, and then mounted for that pod again.
	again bool
	// stripped tells that a person took its VolumeAttachment away since it was mounted; whether one
	// was made anew is nothing to a kubelet that restarts before the controller lists the volume
	// again.
	stripped bool
	// misled tells that it was forgotten after the controller had detached it under a false taint.
	misled bool
	// restart is the last of its kubelet, if it was one of which a Node need not
	// show anything.
	restart restart
}

// unserved tells whether no pod that its kubelet knows has it.
func (s *session) unserved() bool { return s.staged || s.outlives }

// serves tells whether a pod has the volume mounted there.
func (m *machine) serves(v *volume) bool { return m.mounts[v] != nil && !m.mounts[v].unserved() }

// A restart of a kubelet that Kubernetes need not have noticed.
type restart struct {
	// before is the Node's Ready condition of before, until the kubelet writes again.
	before string
	// ready is the same, where nothing shows of it; empty: it had to be noticed.
	ready string
	// noticed is when the Node first said otherwise; zero: never.
	noticed time.Time
}

// unseen tells whether the Node says nothing of the restart, or did not while the call lasted.
func (r restart) unseen() bool { return r.ready != "" && (r.noticed.IsZero() || lately(r.noticed)) }

// boot is the boot ID; each of a machine's boots has another.
func (m *machine) boot() string {
	if m.booted != m.boots {
		m.booted, m.bootID = m.boots, m.id+"-boot"+strconv.Itoa(m.boots)
		if m.counts {
			m.bootID = strconv.Itoa(m.boots)
		}
	}
	return m.bootID
}

// runs tells whether the machine's processes run.
func (m *machine) runs() bool { return m.power && !m.paused }

// resume has a machine go on that was paused. What its processes have run for leaves the time out.
func (m *machine) resume() {
	if m.paused {
		m.paused = false
		m.kubelet.started = m.kubelet.started.Add(time.Since(m.stopped))
	}
}

// turn is when a kubelet changed its word of its readiness, and in which step.
type turn struct {
	at   time.Time
	step int
}

// slot is a node's name.
type slot struct {
	name    string
	machine *machine
	// renewed is when its kubelet last renewed the lease.
	renewed time.Time
	// renewedBoot is the boot of its machine in which it did.
	renewedBoot string
	// renewTime is the latest in its lease, and heard when the node controller last
	// heard of it.
	renewTime, heard time.Time
	// silent is when it was last seen to have been silent for suspectAfter, or to
	// have no Node.
	silent time.Time
	// shown is what the Ready condition was when a process last read that the
	// kubelet, Ready, uses the volume of a VolumeAttachment that is being deleted.
	shown map[types.UID]string
	// listed is the step in which its Node last began to list the volume as in use.
	listed map[*volume]int
	// turns are when its kubelet changed its word of its readiness.
	turns []turn
	cut   bool // its kubelet does not reach the API server
	// taintedAt is when its out-of-service taint was put on.
	taintedAt time.Time
	nodes     int // machines so far

	// lease and record are the names of its kubelet's and its record's Lease,
	// recordRead what stands in it, if
	// that is recordText.
	lease      string
	record     string
	recordText string
	recordRead *record.Record
}

// volume is a disk of the array, the pod that uses it, and what the
// attach-detach controller makes of it.
type volume struct {
	name     string
	unique   corev1.UniqueVolumeName
	vas      map[*slot]string // names of its VolumeAttachments
	attached map[string]bool  // node IDs
	before   []string         // attached one change ago
	ever     []string
	late     []string        // node IDs that will be attached though the driver said no
	lateMany map[string]bool // which of them for many writers
	leaving  []string        // and that will be detached
	// shared are the node IDs to which the driver last published it for many writers.
	shared map[string]bool
	// published is what is known of the last publish to a node ID (the wide world).
	published map[string]publication

	pod pod
	// more are the pods besides, in the wide world.
	more []*pod
	adc  map[*slot]*attachment
	// asked are the VolumeAttachments that were unpublished once: a duplicate
	// may still be about.
	asked map[*slot]bool
	// judged are the VolumeAttachments whose unpublish has been asked for.
	judged map[types.UID]bool
	// released are the tokens of ledger entries that were seen to be released.
	released map[string]bool
	// deleted is when they truly were.
	deleted map[types.UID]time.Time
	// attachedFor is for which machine of a node ID a publish was last carried out.
	attachedFor map[string]*machine
	// stripped are the nodes whose VolumeAttachment a person took away, finalizer
	// and all.
	stripped map[*slot]bool
	// misled are the nodes from which the controller took it while it was in use,
	// because a taint said what was not true.
	misled map[*slot]bool

	// ledgerRead is what its ledgers name, if those of its PersistentVolume and of the
	// second one are ledgerText and secondText.
	ledgerText, secondText string
	ledgerRead             []ledger.Entry
}

// pod is the one pod that uses the volume, wherever it is.
type pod struct {
	node        *slot // nil: it is nowhere
	terminating bool
	// ran tells that a container of it has started; shown, that its kubelet has said so.
	ran, shown bool
}

// access tells whether the array takes the machine's writes.
func (v *volume) access(m *machine) bool {
	if v.attached[m.id] {
		return true
	}
	s := m.mounts[v]
	return s != nil && s.holdsOn
}

// mayWrite tells whether a container of the machine writes, or its kubelet is about to let one. A
// machine that is paused may go on at any moment.
func (v *volume) mayWrite(m *machine) bool {
	if !m.power || !v.access(m) {
		return false
	}
	s := m.mounts[v]
	return s != nil && !s.excused || s == nil && m.kubelet.verified[v]
}

func (v *volume) changeAttached() {
	v.before = v.nodes()
}

func (v *volume) nodes() []string {
	var ids []string
	for id := range v.attached {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (v *volume) attach(id string) {
	if v.attached[id] {
		return
	}
	v.changeAttached()
	v.attached[id] = true
	if !slices.Contains(v.ever, id) {
		v.ever = append(v.ever, id)
	}
}

// detach ends the node's access; a client that has it mounted may hold on.
func (v *volume) detach(m *machine, id string, holdsOn bool) {
	if !v.attached[id] {
		return
	}
	v.changeAttached()
	delete(v.attached, id)
	if m != nil {
		if s := m.mounts[v]; s != nil {
			s.holdsOn = holdsOn
		}
	}
}
