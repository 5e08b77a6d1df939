package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	// Who signs for the clouds, where the image has no list of its own.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/azure"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/ec2"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/gce"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/hcloud"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/openstack"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/proxmox"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/redfish"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/vsphere"
)

// version is set by the Makefile with -ldflags.
var version = ""

// agents are all that there are, in the order of the help.
func agents() []*contract.Agent {
	return []*contract.Agent{redfish.Agent(), ec2.Agent(), azure.Agent(), gce.Agent(), hcloud.Agent(), openstack.Agent(), proxmox.Agent(), vsphere.Agent()}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := &contract.Program{
		Name: "csi-fencepost-agents", Version: cmp.Or(version, "unknown"), Agents: agents(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	code := p.Run(ctx, os.Args)
	stop()
	os.Exit(code)
}
