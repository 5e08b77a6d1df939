package simulate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	witness "github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
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
		return s.machine.process(), nil
	})
	if err != nil {
		return nil, err
	}
	// In the model two processes start at two times: each tells itself at once.
	return &witness.Answer{Process: value.(fence.Process), Age: time.Hour}, nil
}

// process of the machine's kubelet, which is the only one that has started at its Start.
func (m *machine) process() fence.Process {
	return fence.Process{Start: 1000 * float64(m.kubelet.number), CPU: 1, Key: fmt.Sprintf("key of %s/%s", m.slot.name, m.install)}
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
