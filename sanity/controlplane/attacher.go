package controlplane

import (
	"errors"
)

// AttacherOptions of an external-attacher.
type AttacherOptions struct {
	// Name of the process and its log; "csi-attacher" if empty.
	Name string
	// Address is the path of the unix socket that it calls; required.
	Address string
	// Kubeconfig is a path; the administrator's if empty.
	Kubeconfig string
	// ExtraArgs are added to its command line.
	ExtraArgs []string
	// Restart starts it again when it exits, as it does when it loses its
	// connection to the socket.
	Restart bool
}

// StartAttacher starts an external-attacher that ends with the cluster.
func (c *Cluster) StartAttacher(options AttacherOptions) (*Process, error) {
	if options.Address == "" {
		return nil, errors.New("AttacherOptions.Address is required: the path of the unix socket that the attacher calls")
	}
	if options.Name == "" {
		options.Name = "csi-attacher"
	}
	if options.Kubeconfig == "" {
		options.Kubeconfig = c.kubeconfig
	}
	args := append([]string{"--csi-address=" + options.Address, "--kubeconfig=" + options.Kubeconfig, "--v=4"}, options.ExtraArgs...)
	return c.StartProcess(ProcessOptions{Name: options.Name, Path: c.options.Binaries.Attacher, Args: args, Restart: options.Restart})
}
