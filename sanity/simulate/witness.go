package simulate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	witness "github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// kubelets are asked for their process by a process of csi-fencepost, in tier 1.
type kubelets struct{ p *Process }

// Ask implements witness.Asker.
func (k *kubelets) Ask(ctx context.Context, node *corev1.Node, key string) (*witness.Answer, error) {
	value, err := k.p.park(ctx, toKubelet, "kubelet:process/"+node.Name, false, func() (any, error) {
		s := k.p.w.slot(node.Name)
		if s == nil || !s.connected() || key != "" && key != s.machine.process().Key {
			return nil, errRefused
		}
		is := &s.machine.kubelet
		if _, known := k.p.view.known[is.number]; key == "" && !known && is.age() >= fence.Settled*time.Second {
			k.p.view.known[is.number] = time.Now()
		}
		return &witness.Answer{Process: s.machine.process(), Age: is.age()}, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*witness.Answer), nil
}

// process of the machine's kubelet, which is the only one that has started at its Start.
func (m *machine) process() fence.Process {
	return fence.Process{Start: 1000 * float64(m.kubelet.number), CPU: 1, Key: fmt.Sprintf("key of %s/%s", m.slot.name, m.install)}
}

// age of the kubelet's process, by a clock that stands still while its machine is paused.
func (k *kubelet) age() time.Duration { return time.Since(k.started) }

// young are the replicas that would not believe the node's kubelet, if they asked it now, since it has
// restarted after the volume was taken from it by force, or may not list yet what it has found.
func (w *World) young(v *volume, s *slot) (replicas []string) {
	va := w.vaOf(v, s)
	if va == nil || !s.connected() {
		return nil
	}
	is := &s.machine.kubelet
	for _, name := range w.replicas {
		p := w.procs[name]
		forced := p.view.forced[taken{va.UID, s.machine.boot()}]
		if forced == nil || !p.up() {
			continue
		}
		age := is.age()
		if known, seen := p.view.known[is.number]; seen {
			age = max(age, time.Since(known))
		}
		if forced.Memory(age, observe.SyncTime) != "" {
			replicas = append(replicas, name)
		}
	}
	return replicas
}

// showProcesses leaves of the processes in a ledger what can be told of each now: whether it runs
// still, has ended, or nobody answers.
func (w *World) showProcesses(l *ledger.Ledger) {
	for i := range l.Holders {
		e := &l.Holders[i]
		if e.Kubelet == nil {
			continue
		}
		shown := fence.Process{Key: "does not answer"}
		if s := w.slot(e.NodeName); s != nil && s.connected() {
			now := s.machine.process()
			shown.Key = fmt.Sprintf("runs still: %t", e.Kubelet.Is(&now))
		}
		e.Kubelet = &shown
	}
}
