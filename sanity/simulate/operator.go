package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// powerOff takes the power from a machine, and with it everything that it has
// mounted and knows.
func (w *World) powerOff(m *machine) {
	if m.power {
		w.Stats.PowerOffs++
	}
	m.power, m.paused = false, false
	clear(m.mounts)
	clear(m.keeps)
	m.kubelet = w.newKubelet()
}

// powerOn boots it.
func (w *World) powerOn(m *machine) {
	if m.power {
		return
	}
	m.power = true
	m.boots++
	m.kubelet = w.newKubelet()
}

// newMachine is the next one with the slot's name.
func (w *World) newMachine(s *slot) *machine {
	s.nodes++
	m := &machine{slot: s, id: s.name, system: s.name + "-system" + strconv.Itoa(s.nodes), install: "installation-" + strconv.Itoa(len(w.machines)), boots: s.nodes * 100, power: true,
		mounts: map[*volume]*session{}, kubelet: w.newKubelet(), skew: w.skews[s.name]}
	if !w.setup.NamedIDs {
		m.id = s.name + "-id" + strconv.Itoa(s.nodes)
	}
	w.twin(m)
	s.machine = m
	w.machines = append(w.machines, m)
	return m
}

// replace puts a new machine in the place of the node's. The old one, unless it
// is off, goes on without ever reaching the API server again.
func (w *World) replace(s *slot) {
	s.machine.severed = true
	w.newMachine(s)
}

// machineEvents are what may happen to the node's machine, and what people may
// do to it and say of it.
func (w *World) machineEvents(s *slot, emit func(Event)) {
	m, n := s.machine, w.peekNode(s.name)
	at := func(verb string) { emit(Event{Verb: verb, A: s.name}) }
	if m.power {
		at(PowerOff)
		if m.paused {
			at(Resume)
		} else {
			at(Pause)
			emit(Event{Verb: RestartKubelet, A: s.name, B: "quick"})
			emit(Event{Verb: RestartKubelet, A: s.name, B: "slow"})
		}
	} else {
		at(PowerOn)
	}
	if s.nodes < 3 && (!m.power || !w.setup.NamedIDs && !s.connected()) {
		at(Replace)
	}
	if s.cut {
		at(JoinNode)
	} else {
		at(CutNode)
	}
	w.absenceEvents(s, n, emit)
	w.wideMachineEvents(s, n, emit)
	if n != nil {
		if !s.connected() || w.setup.Lies || w.setup.Wide {
			at(DeleteNode)
		}
		if tainted(n) {
			at(Untaint)
		} else if !m.power || w.setup.Lies {
			at(TaintNode)
		}
	}
	if !m.power || w.setup.Lies {
		at(ConfirmOff)
	}
}

// absenceEvents are what Kubernetes makes of a node that is silent or gone.
func (w *World) absenceEvents(s *slot, n *corev1.Node, emit func(Event)) {
	switch {
	case w.away:
	case n == nil && (w.leaseVersion(s.name) != "" || w.setup.Wide && w.peekCSINode(s.name) != nil):
		emit(Event{Verb: CollectGC, A: s.name})
	case n != nil && readyStatus(n) != corev1.ConditionUnknown && (!s.connected() && time.Since(s.renewed) >= notReadyAfter || s.unheard()):
		emit(Event{Verb: NotReady, A: s.name})
	}
}

func (w *World) doMachine(e Event) bool {
	s := w.slot(e.A)
	if s == nil {
		return false
	}
	m := s.machine
	switch e.Verb {
	case PowerOff:
		w.powerOff(m)
	case PowerOn:
		w.powerOn(m)
	case Pause:
		m.paused, m.stopped = true, time.Now()
	case Resume:
		m.resume()
	case Replace:
		w.replace(s)
	case CutNode:
		s.cut = true
	case JoinNode:
		s.cut = false
	case NotReady:
		if n, ok := w.objects.Nodes.Get(s.name); ok {
			w.condition(n, corev1.ConditionUnknown, time.Now().Add(w.controllerSkew))
			w.unreachable(n, true)
			w.putNode(n)
		}
	case DeleteNode:
		w.objects.Nodes.Delete(s.name)
		s.renewTime = time.Time{}
		if !w.setup.Wide {
			w.objects.CSINodes.Delete(s.name)
		}
	case CollectGC:
		if w.setup.Wide {
			w.objects.CSINodes.Delete(s.name)
		}
		w.objects.Leases.Delete(leaseKey(s.name))
		w.leaseSeen(s.name)
	case TaintNode, Untaint:
		w.taint(s, e.Verb == TaintNode)
	case ConfirmOff:
		w.confirm(s)
	default:
		return false
	}
	return true
}

func (w *World) taint(s *slot, on bool) {
	w.taintAt(s, on, w.serverNow())
	s.taintedAt = time.Now()
	for _, m := range w.machines { // the Node may be that of one whose name another has by now
		if m.slot == s {
			m.outlived = false
		}
	}
}

// taintAt is taint, at that time of the API server's clock.
func (w *World) taintAt(s *slot, on bool, at time.Time) {
	w.spoken = true
	n, ok := w.objects.Nodes.Get(s.name)
	if !ok {
		return
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == outOfService })
	if on {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: outOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		w.Stats.Taints++
	}
	w.wroteAt(n, "kubectl-taint", "", taintFields, at)
	w.putNode(n)
}

// confirm writes an operator's confirmation of the live Node's machine and of
// those that the ledgers name, bound as `csi-fencepost fence confirm` binds it.
func (w *World) confirm(s *slot) { w.confirmWhom(s, true) }

// confirmOthers confirms the machines that had the node's name before.
func (w *World) confirmOthers(s *slot) { w.confirmWhom(s, false) }

func (w *World) confirmWhom(s *slot, itself bool) {
	c := record.Confirmation{ID: "word-" + strconv.Itoa(w.steps), By: "operator", Reason: "seen off", At: time.Now().UTC().Format(time.RFC3339)}
	n, live := w.objects.Nodes.Get(s.name)
	id := ""
	if node, ok := w.objects.CSINodes.Get(s.name); ok {
		id = nodeIDOf(node)
	}
	older := func(e ledger.Entry) bool {
		boot := n.Status.NodeInfo.BootID
		return e.BootID != "" && boot != "" && e.BootID != boot && e.NodeUID != "" && (e.NodeUID != string(n.UID) || id != "" && id != e.NodeID)
	}
	lease := w.leaseVersion(s.name)
	add := func(m record.Machine) {
		if (m.NodeUID != "" || m.NodeID != "") && !slices.ContainsFunc(c.Machines, m.Equal) {
			c.Machines = append(c.Machines, m)
		}
	}
	if live && itself {
		add(record.Machine{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID, SystemUUID: n.Status.NodeInfo.SystemUUID, LeaseRV: lease})
	}
	for _, v := range w.volumes {
		for _, e := range w.ledger(v) {
			if e.NodeName != s.name || e.State == fence.TakenOver || live && !older(e) {
				continue
			}
			add(record.Machine{NodeID: e.NodeID, NodeUID: e.NodeUID, BootID: e.BootID, SystemUUID: e.SystemUUID})
			if !live && lease != "" {
				add(record.Machine{NodeID: e.NodeID, NodeUID: e.NodeUID, BootID: e.BootID, SystemUUID: e.SystemUUID, LeaseRV: lease})
			}
		}
	}
	if len(c.Machines) == 0 || w.said[s.name] == fmt.Sprint(c.Machines) {
		return // nothing new to say
	}
	w.said[s.name] = fmt.Sprint(c.Machines)
	w.Stats.Confirmations++
	w.spoken = true
	w.changeRecord(s.name, func(r *record.Record) { r.AddConfirmation(c) })
}

// changeRecord writes a node's record, past all gates.
func (w *World) changeRecord(node string, change func(*record.Record)) {
	key := w.recordKey(node)
	l, ok := w.objects.Leases.Get(key)
	if !ok {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: record.LeaseName(node)}}
	}
	r, err := record.FromLease(l, node)
	if err != nil {
		w.violation("record", "what csi-fencepost wrote of "+node+" cannot be read: "+err.Error())
		return
	}
	if r == nil {
		r = record.New(node)
	}
	change(r)
	if err := r.ToLease(l); err != nil {
		panic(err) // strings and maps of them
	}
	w.objects.Leases.Put(l)
}

// record of a node, not to be changed; nil: there is none.
func (w *World) record(s *slot) *record.Record {
	l := w.peekLease(s.record)
	if l == nil {
		return nil
	}
	text := l.Annotations[record.Annotation] + l.Annotations[record.FencedAnnotation] + l.Annotations[record.ClaimedAnnotation]
	if text == s.recordText {
		return s.recordRead
	}
	r, err := record.FromLease(l, s.name)
	if err != nil {
		r = nil
	}
	s.recordText, s.recordRead = text, r
	return r
}

// ledger of a volume, not to be changed; nil: none.
func (w *World) ledger(v *volume) []ledger.Entry {
	text, second := "", ""
	if pv := w.peekVolume(v.name); pv != nil {
		text = pv.Annotations[ledger.Annotation]
	}
	if pv := w.second(v); pv != nil {
		second = pv.Annotations[ledger.Annotation]
	}
	if text == v.ledgerText && second == v.secondText {
		return v.ledgerRead
	}
	v.ledgerText, v.secondText, v.ledgerRead = text, second, nil
	for _, text := range []string{text, second} {
		if l, err := ledger.Parse(text); err == nil {
			v.ledgerRead = append(v.ledgerRead, l.Holders...)
		}
	}
	return v.ledgerRead
}

// recordKey is what a node's record is called in a Table.
func (w *World) recordKey(node string) string { return w.namespace + "/" + record.LeaseName(node) }
