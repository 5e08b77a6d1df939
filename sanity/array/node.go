package array

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// NodeOptions of a node socket. All fields are required, but for
// RegistrationDir where no kubelet is.
type NodeOptions struct {
	// NodeID is the machine. A machine recreated under an old node name gets
	// a NodeID of its own.
	NodeID string
	// PluginDir is the kubelet's <root>/plugins.
	PluginDir string
	// RegistrationDir is the kubelet's <root>/plugins_registry; empty: the
	// node registers with no kubelet.
	RegistrationDir string
}

// Node is the driver's node side on one machine. The machine goes on without
// it.
type Node struct {
	array     *Array
	options   NodeOptions
	csi       *server
	registrar *server // nil without RegistrationDir
	once      sync.Once

	// Guarded by array.mu.
	registrations int
	refusal       string
}

// ServeNode starts the driver's node side on a machine and registers it with
// the kubelet; no node-driver-registrar is needed. The machine becomes known
// to the array, with power on, if it is not yet. The node side ends with Stop or
// Kill, or as by Kill when ctx ends; then it can be served again.
func (a *Array) ServeNode(ctx context.Context, options NodeOptions) (*Node, error) {
	if options.NodeID == "" || options.PluginDir == "" {
		return nil, errors.New("serve node: NodeID and PluginDir are required")
	}
	if a.running.Err() != nil {
		return nil, errors.New("serve node: the array is closed")
	}
	if err := a.AddMachine(options.NodeID); err != nil {
		return nil, err
	}
	n := &Node{array: a, options: options}
	var err error
	n.csi, err = a.serve(n.Socket(), func(g *grpc.Server) {
		spec.RegisterIdentityServer(g, &identity{array: a})
		spec.RegisterNodeServer(g, &nodeService{array: a, nodeID: options.NodeID})
	}, grpc.UnaryInterceptor(a.intercept(options.NodeID)))
	if err != nil {
		return nil, fmt.Errorf("serve node %s: %w", options.NodeID, err)
	}
	// Last: the kubelet calls the CSI socket as soon as it sees this one.
	if err := n.serveRegistration(); err != nil {
		n.csi.stop()
		return nil, fmt.Errorf("serve node %s: %w", options.NodeID, err)
	}
	a.mu.Lock()
	a.nodes[n] = true
	a.mu.Unlock()
	a.killWith(ctx, n.csi, n.Kill)
	return n, nil
}

func (n *Node) serveRegistration() error {
	if n.options.RegistrationDir == "" {
		return nil
	}
	s, err := n.array.serve(n.registrationSocket(), func(g *grpc.Server) {
		registration.RegisterRegistrationServer(g, &registrar{node: n})
	})
	n.registrar = s
	return err
}

func (n *Node) registrationSocket() string {
	return filepath.Join(n.options.RegistrationDir, n.array.DriverName()+"-reg.sock")
}

// Socket is the path of the CSI socket.
func (n *Node) Socket() string {
	return filepath.Join(n.options.PluginDir, n.array.DriverName(), "csi.sock")
}

// Stop ends the node side as SIGTERM should: running calls are waited for, the
// socket files are removed, which deregisters the driver from the kubelet.
// What is mounted stays mounted.
func (n *Node) Stop() { n.end((*server).stop) }

// Kill ends the node side as SIGKILL does: running calls are cut off, the
// socket files stay. What is mounted stays mounted.
func (n *Node) Kill() { n.end((*server).kill) }

func (n *Node) end(end func(*server)) {
	n.once.Do(func() {
		if n.registrar != nil {
			end(n.registrar)
		}
		end(n.csi)
		n.array.mu.Lock()
		defer n.array.mu.Unlock()
		delete(n.array.nodes, n)
	})
}
