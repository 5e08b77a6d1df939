package array

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar answers the kubelet's plugin watcher.
type registrar struct {
	registration.UnimplementedRegistrationServer
	node *Node
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.node.array.DriverName(),
		Endpoint:          r.node.Socket(),
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	a := r.node.array
	a.mu.Lock()
	defer a.mu.Unlock()
	if status.GetPluginRegistered() {
		r.node.registrations++
		a.eventLocked("", r.node.options.NodeID, "driver registered with the kubelet")
	} else {
		r.node.refusal = status.GetError()
		a.eventLocked("", r.node.options.NodeID, "the kubelet refused the driver: "+status.GetError())
		time.AfterFunc(registrarRestarts, r.node.offerAgain)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// registrarRestarts is about what a container takes to be restarted:
// node-driver-registrar exits when the kubelet refuses, as that of Kubernetes 1.30
// does, once, where the CSINode has another node ID of the driver.
const registrarRestarts = time.Second

// offerAgain takes the registration socket away and puts it back: the kubelet asks a
// socket that it has seen once only.
func (n *Node) offerAgain() {
	socket := n.registrationSocket()
	hidden := filepath.Join(filepath.Dir(socket), "."+filepath.Base(socket)) // no kubelet looks at it
	if os.Rename(socket, hidden) == nil {
		_ = os.Rename(hidden, socket) // it has ended meanwhile
	}
}

// Registrations is how often a kubelet has registered the driver: once for
// each start of the kubelet.
func (n *Node) Registrations() int {
	n.array.mu.Lock()
	defer n.array.mu.Unlock()
	return n.registrations
}

// WaitRegistered waits until a kubelet has registered the driver. The error
// names the kubelet's objection, if it had one.
func (n *Node) WaitRegistered(ctx context.Context) error {
	err := n.array.WaitFor(ctx, fmt.Sprintf("the kubelet of node %s to register the driver", n.options.NodeID), func() bool {
		return n.Registrations() > 0
	})
	n.array.mu.Lock()
	defer n.array.mu.Unlock()
	if n.refusal != "" {
		return explain(err, "the kubelet refused it: %s", n.refusal)
	}
	return err
}
