package simulate

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// kubelet is what a machine's kubelet knows, as far as volumes go (K8s
// pkg/kubelet/volumemanager): it mounts a volume only after it has reported it in
// use, and live reads have shown it in volumesAttached, and then its VolumeAttachment
// attached and not being deleted (csi_attacher.go, WaitForAttach); and after a restart it
// knows of what is mounted only what is in volumesAttached then.
type kubelet struct {
	// desired are the volumes that its pods want; remembered, those that it knows mounted.
	desired, remembered map[*volume]bool
	// reported in use by this very process.
	reported map[*volume]bool
	// verified are the volumes that it has seen to be attached; a mount may follow at any moment.
	verified map[*volume]bool
	// bare are the verified ones whose VolumeAttachment a person has taken away since.
	bare map[*volume]bool
	// failed is when a mount last found no disk.
	failed map[*volume]time.Time
	// rebuild tells that it has restarted and not read its Node since; podless, nor its pods.
	rebuild, podless bool
	// fresh tells that it has started and not registered its Node since.
	fresh bool
	// unready tells that its first status says NotReady.
	unready bool
	// number of its process, of all that ever were, and when that started.
	number  int
	started time.Time
}

func (w *World) newKubelet() kubelet {
	w.kubelets++
	return kubelet{number: w.kubelets, started: time.Now(), desired: map[*volume]bool{}, remembered: map[*volume]bool{}, reported: map[*volume]bool{}, verified: map[*volume]bool{}, bare: map[*volume]bool{}, failed: map[*volume]time.Time{}, rebuild: true, podless: true, fresh: true}
}

// connected tells whether the kubelet of the node runs and reaches the API server.
func (s *slot) connected() bool { return s.machine.runs() && !s.cut }

func volumesAttachedHas(n *corev1.Node, v *volume) bool {
	return slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v.unique })
}

// mountable tells whether a kubelet that reads the VolumeAttachment goes on with the mount.
func (w *World) mountable(v *volume, s *slot) bool {
	va := w.vaOf(v, s)
	return va != nil && va.DeletionTimestamp == nil && va.Status.Attached
}

// starts has the containers of the volume's pods on the node start, where it is mounted.
func (w *World) starts(v *volume, s *slot) {
	for _, p := range v.pods() {
		p.ran = p.ran || p.node == s && s.machine.mounts[v] != nil
	}
}

func inUse(n *corev1.Node, v *volume) bool {
	return slices.Contains(n.Status.VolumesInUse, v.unique)
}

// kubeletEvents are what the node's kubelet may do now.
func (w *World) kubeletEvents(s *slot, emit func(Event)) {
	if !s.connected() {
		return
	}
	m, k := s.machine, &s.machine.kubelet
	n := w.peekNode(s.name)
	if n == nil {
		if k.fresh {
			emit(Event{Verb: Register, A: s.name})
		}
		return
	}
	if k.fresh && w.missingCSINode(s) {
		emit(Event{Verb: Register, A: s.name})
	}
	emit(Event{Verb: Renew, A: s.name})
	if k.rebuild || w.syncNeeded(s) {
		emit(Event{Verb: Sync, A: s.name})
	}
	if k.rebuild && w.leavesOut(s, n) {
		emit(Event{Verb: Rebuild, A: s.name})
	}
	if m.jumped || w.statusNeeded(s, n) {
		emit(Event{Verb: Status, A: s.name})
	}
	if k.podless {
		return
	}
	for _, v := range w.volumes {
		switch mounted := m.mounts[v] != nil; {
		case k.verified[v]:
			emit(Event{Verb: Mount, A: v.name, B: s.name})
		case k.desired[v] && k.reported[v] && !k.remembered[v] && !(mounted && m.mounts[v].again) && volumesAttachedHas(n, v) && w.mountable(v, s) && time.Since(k.failed[v]) >= 10*time.Second:
			emit(Event{Verb: Verify, A: v.name, B: s.name})
		case mounted && k.desired[v] && m.mounts[v].unserved() && k.reported[v] && time.Since(k.failed[v]) >= 10*time.Second:
			emit(Event{Verb: Mount, A: v.name, B: s.name})
		case mounted && !k.desired[v] && !m.keeps[v]:
			emit(Event{Verb: Unmnt, A: v.name, B: s.name})
			if !m.mounts[v].unserved() {
				emit(Event{Verb: Unpod, A: v.name, B: s.name})
				if m.mounts[v].orphan {
					emit(Event{Verb: Outlive, A: v.name, B: s.name})
				}
			}
		}
	}
}

// leavesOut tells whether a kubelet that restarts now lists no volume that its pods have mounted
// and that is not in volumesAttached, until it has seen those pods (K8s
// pkg/kubelet/volumemanager/reconciler, updateReconstructedFromNodeStatus; package realnode/facts,
// back-unlisted).
func (w *World) leavesOut(s *slot, n *corev1.Node) bool {
	for v := range s.machine.mounts {
		if v.wants(s) && !volumesAttachedHas(n, v) {
			return true
		}
	}
	return false
}

func (w *World) syncNeeded(s *slot) bool {
	if s.machine.kubelet.podless {
		return true
	}
	for _, v := range w.volumes {
		want := v.wants(s)
		if s.machine.kubelet.desired[v] != want {
			return true
		}
	}
	return false
}

// sync has the kubelet see its pods, and, after a restart, what it has mounted.
func (w *World) sync(s *slot) {
	k := &s.machine.kubelet
	w.rebuild(s)
	k.podless = false
	for _, v := range w.volumes {
		want := v.wants(s)
		if want {
			if mount := s.machine.mounts[v]; mount != nil && mount.forgotten && !k.desired[v] {
				mount.relisted = true
			}
			k.desired[v] = true
			w.starts(v, s)
		} else {
			delete(k.desired, v)
		}
	}
}

// rebuild has it see what it has mounted, after a restart.
func (w *World) rebuild(s *slot) {
	k := &s.machine.kubelet
	n := w.peekNode(s.name)
	if k.rebuild {
		k.rebuild = false
		w.noteRestart(s, true) // what was detached since is forgotten as well
		for v, mount := range s.machine.mounts {
			// It looks for what pods have (K8s pkg/kubelet/volumemanager/reconciler,
			// getVolumesFromPodDir).
			if attached := volumesAttachedHas(n, v); attached && !mount.unserved() {
				k.remembered[v] = true
				mount.orphan = !v.wants(s)
			} else {
				mount.unlisted = mount.unlisted || attached && !mount.forgotten
				mount.forgotten, mount.misled = true, v.misled[s]
				mount.stripped = mount.stripped || v.stripped[s]
			}
		}
	}
}

func (k *kubelet) uses(v *volume) bool { return k.desired[v] || k.remembered[v] || k.verified[v] }

func (w *World) statusNeeded(s *slot, n *corev1.Node) bool {
	k := &s.machine.kubelet
	if len(s.machine.borrowed) > 0 {
		return w.hostileStatusNeeded(s, n)
	}
	if n.Status.NodeInfo.BootID != s.machine.boot() || n.Status.NodeInfo.SystemUUID != s.machine.system || readyStatus(n) != corev1.ConditionTrue {
		return true
	}
	if k.rebuild {
		return false
	}
	for _, v := range w.volumes {
		if k.uses(v) != inUse(n, v) || k.uses(v) != k.reported[v] {
			return true
		}
	}
	return false
}

func readyStatus(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// heartbeat owns the Ready condition's heartbeat, as a kubelet's status does.
var heartbeat = metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)

// status writes the kubelet's view of its Node. One that has not synced yet what it
// has mounted leaves the volumesInUse of before (K8s pkg/kubelet/nodestatus/setters.go,
// VolumesInUse).
func (w *World) status(s *slot) {
	k, m := &s.machine.kubelet, s.machine
	n, ok := w.objects.Nodes.Get(s.name)
	if !ok {
		return
	}
	if n.Status.NodeInfo.BootID != m.boot() {
		m.shown = w.steps
	}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID, n.Status.NodeInfo.MachineID = m.boot(), m.system, m.installation(w.setup)
	ready := corev1.ConditionTrue
	if k.unready {
		ready, k.unready = corev1.ConditionFalse, false
	}
	w.condition(n, ready, m.now())
	w.unreachable(n, false)
	s.heard, m.jumped = time.Now(), false
	for _, mount := range m.mounts {
		mount.restart.before = ""
	}
	if !k.rebuild {
		w.list(s, n)
	}
	for _, v := range w.volumes {
		for _, p := range v.pods() {
			p.shown = p.shown || p.ran && p.node == s
		}
	}
	w.pretend(m, n)
	w.putStatus(n)
}

// list has the kubelet say what it uses.
func (w *World) list(s *slot, n *corev1.Node) {
	k, before := &s.machine.kubelet, n.Status.VolumesInUse
	n.Status.VolumesInUse = w.neighbourVolumes()
	clear(k.reported)
	for _, v := range w.volumes {
		if k.uses(v) {
			if !slices.Contains(before, v.unique) {
				s.listed[v] = w.steps
			}
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, v.unique)
			k.reported[v] = true
		}
	}
}

// putStatus writes a Node as its kubelet: the API server stamps that.
func (w *World) putStatus(n *corev1.Node) {
	w.wrote(n, "kubelet", "status", heartbeat)
	w.putNode(n)
}

// wrote has the API server note who has written those fields of an object, and when:
// nobody else owns them from then on.
func (w *World) wrote(o metav1.Object, manager, subresource string, fields *metav1.FieldsV1) {
	w.wroteAt(o, manager, subresource, fields, w.serverNow())
}

// wroteAt is wrote, at that time of the API server's clock.
func (w *World) wroteAt(o metav1.Object, manager, subresource string, fields *metav1.FieldsV1, at time.Time) {
	now := stamp(at)
	others := slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == subresource && f.FieldsV1.GetRawString() == fields.GetRawString()
	})
	o.SetManagedFields(append(others, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource, Time: &now, FieldsV1: fields}))
}

// Fields of a Node's taints and attached volumes, which have one owner each, and of a
// lease's renewal.
var (
	taintFields    = metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)
	attachedFields = metav1.NewFieldsV1(`{"f:status":{"f:volumesAttached":{}}}`)
	renewFields    = metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)
)

// unreachable has the node controller put its taint on, or take it off.
func (w *World) unreachable(n *corev1.Node, on bool) {
	is := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }
	if slices.ContainsFunc(n.Spec.Taints, is) == on {
		return
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, is)
	if on {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	}
	w.wrote(n, "kube-controller-manager", "", taintFields)
}

// readyCondition is all that a Node's Ready condition tells apart.
func readyCondition(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return string(c.Status) + " since " + c.LastTransitionTime.UTC().Format(time.RFC3339)
		}
	}
	return ""
}

// noteRestart notes a restart that need not be noticed: the Node was read with the kubelet Ready
// and the volume in use since the detach began, or it says False and nobody has asked for the
// unpublish yet.
func (w *World) noteRestart(s *slot, again bool) {
	n := w.peekNode(s.name)
	for v, mount := range s.machine.mounts {
		if mount.forgotten || again && mount.restart.ready != "" {
			continue // by an earlier one; noted already
		}
		mount.restart = restart{}
		va := w.va(v, s)
		if n == nil || va == nil || va.DeletionTimestamp == nil && volumesAttachedHas(n, v) {
			continue
		}
		ready := readyCondition(n)
		mount.restart.before = ready
		if s.shown[va.UID] == ready || readyStatus(n) == corev1.ConditionFalse && !v.judged[va.UID] {
			mount.restart.ready = ready
		}
	}
}

// freeKey of reads is the step in which the Node was last read without the volume.
func freeKey(s *slot, v *volume) string { return "free:" + s.name + "/" + v.name }

// noteRead notes that a call is shown the Node.
func (w *World) noteRead(s *slot, r reads) {
	n := w.peekNode(s.name)
	for _, v := range w.volumes {
		delete(r, freeKey(s, v))
		if n != nil && !inUse(n, v) && !volumesAttachedHas(n, v) {
			r[freeKey(s, v)] = w.steps
		}
	}
	if n == nil || readyStatus(n) != corev1.ConditionTrue || s.turnedLately() {
		return
	}
	for _, v := range w.volumes {
		if va := w.va(v, s); va != nil && va.DeletionTimestamp != nil && inUse(n, v) {
			s.shown[va.UID] = readyCondition(n)
			if mount := s.machine.mounts[v]; mount != nil && mount.restart.before == s.shown[va.UID] {
				mount.restart.ready = mount.restart.before // what it wrote before its restart was read after that
			}
		}
	}
}

// turnedLately tells whether what the Node lists may still be what the kubelet of before said.
func (s *slot) turnedLately() bool {
	return len(s.turns) > 0 && time.Since(s.turns[len(s.turns)-1].at) < observe.SyncTime
}

// condition sets Ready as of now, by the clock of who does.
func (w *World) condition(n *corev1.Node, status corev1.ConditionStatus, by time.Time) {
	now := stamp(by)
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: now, LastTransitionTime: now}
	for _, old := range n.Status.Conditions {
		if old.Type == corev1.NodeReady && old.Status == status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	if s := w.slot(n.Name); s != nil && status != corev1.ConditionUnknown && readyStatus(n) != status {
		s.turns = append(s.turns, turn{time.Now(), w.steps})
	}
	if status == corev1.ConditionUnknown {
		c.LastHeartbeatTime = metav1.Time{} // the controller keeps the kubelet's; nobody reads it then
	}
	n.Status.Conditions = []corev1.NodeCondition{c}
}

// register makes the Node and the CSINode of a kubelet that has started.
func (w *World) register(s *slot) {
	m := s.machine
	m.kubelet.fresh = false
	if w.peekNode(s.name) == nil {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID, n.Status.NodeInfo.MachineID = m.boot(), m.system, m.installation(w.setup)
		w.neighbourAttached(n)
		w.pretend(m, n)
		w.provide(m, n)
		w.condition(n, corev1.ConditionTrue, m.now())
		s.heard = time.Now()
		w.putStatus(n)
	}
	c, ok := w.objects.CSINodes.Get(s.name)
	if !ok {
		c = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	}
	c.Spec.Drivers = append(w.neighbourDriver(s), storagev1.CSINodeDriver{Name: DriverName, NodeID: m.says()})
	w.objects.CSINodes.Put(c)
}

func (w *World) missingCSINode(s *slot) bool {
	c := w.peekCSINode(s.name)
	return c == nil || nodeIDOf(c) != s.machine.says()
}

// renew renews the node's lease; there is none without a Node.
func (w *World) renew(s *slot) {
	n := w.peekNode(s.name)
	if n == nil {
		return
	}
	s.renewed, s.renewedBoot = time.Now(), s.machine.boot()
	w.noteOutlived(s, n)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: s.name}}
	if old := w.peekLease(s.lease); old != nil {
		l.ObjectMeta = old.ObjectMeta
	}
	now := metav1.NewMicroTime(s.machine.now())
	if now.After(s.renewTime) {
		s.renewTime, s.heard = now.Time, time.Now()
	}
	l.Spec.RenewTime = &now
	w.wrote(l, "kubelet", "", renewFields)
	w.objects.Leases.Put(l)
	w.leaseSeen(s.name)
}

// doKubelet does what a kubelet does.
func (w *World) doKubelet(e Event) bool {
	switch e.Verb {
	case Register, Renew, Sync, Rebuild, Status, RestartKubelet:
		s := w.slot(e.A)
		if s == nil {
			return false
		}
		switch e.Verb {
		case Register:
			w.register(s)
		case Renew:
			w.renew(s)
		case Sync:
			w.sync(s)
		case Rebuild:
			w.rebuild(s)
		case Status:
			w.status(s)
		case RestartKubelet:
			w.noteRestart(s, false)
			old := s.machine.kubelet
			s.machine.kubelet = w.newKubelet()
			s.machine.kubelet.fresh = old.fresh || w.peekNode(s.name) == nil
			s.machine.kubelet.unready = strings.EqualFold(e.B, "slow")
		}
		return true
	case Verify, Mount, Unmnt, Unpod, Outlive:
		s, v := w.slot(e.B), w.volume(e.A)
		if s == nil || v == nil {
			return false
		}
		w.doMount(e.Verb, s, v)
		return true
	}
	return false
}

func (w *World) doMount(verb string, s *slot, v *volume) {
	m, k := s.machine, &s.machine.kubelet
	switch verb {
	case Verify:
		k.verified[v] = true
		delete(k.bare, v)
	case Mount:
		delete(k.verified, v)
		switch {
		case !k.desired[v] && m.mounts[v] == nil:
		case v.access(m):
			if m.mounts[v] == nil {
				m.mounts[v] = &session{}
				w.Stats.Mounts++
			}
			mount := m.mounts[v]
			w.starts(v, s)
			if mount.forgotten {
				// A kubelet that starts while a volume is mounted, and not in volumesAttached, takes it
				// for one that is not attached at all, for as long as it runs, and also once it has
				// mounted it again. It lists such a volume in use for its pods alone (K8s pkg/kubelet/volumemanager/cache/actual_state_of_world.go,
				// addVolume and GetVolumesInUse).
				mount.again, mount.staged, mount.outlives, mount.orphan = true, false, false, false
				return
			}
			k.remembered[v] = true
			*mount = session{holdsOn: mount.holdsOn, excused: mount.excused, stripped: k.bare[v]}
			if v.attachedFor[m.id] != m {
				if n := w.peekNode(s.name); n != nil {
					mount.inherited = n.UID
				}
			}
		default:
			k.failed[v] = time.Now()
		}
	case Unpod:
		if mount := m.mounts[v]; mount != nil {
			mount.staged = true
		}
	case Outlive:
		if mount := m.mounts[v]; mount != nil {
			mount.outlives = true
			delete(k.remembered, v)
		}
	case Unmnt:
		delete(m.mounts, v)
		delete(k.remembered, v)
	}
}
