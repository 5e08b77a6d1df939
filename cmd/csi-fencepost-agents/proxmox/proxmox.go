// Package proxmox fences virtual machines of Proxmox VE.
package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/luthermonson/go-proxmox"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// Agent is fence_fencepost_proxmox.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "proxmox",
		Short: "Proxmox VE: a virtual machine's status and lock",
		Long: "Off is stopped without a lock, on is running with QEMU running; stopped with any lock (suspended, migrate, backup), paused, prelaunch and unknown are neither, and so is a virtual machine whose host does not answer. " +
			"off is stop. uuid is the one in smbios1. A token sees only what it may audit: give it VM.Audit and VM.PowerMgmt on /vms.",
		Parameters: []contract.Parameter{
			{Name: "ip", Required: true, Help: "Address or name of a host of the cluster."},
			{Name: "ipport", Default: "8006", Help: "Its port."},
			{Name: "region", Help: "The cluster's region, where provider IDs name one (proxmox://REGION/100): those of other regions are refused."},
			{Name: "token_id", Required: true, Help: "The API token's ID, such as fencing@pve!csi."},
			{Name: "token", Required: true, Secret: true, Help: "The API token's secret."},
		},
		Open: open,
	}
}

type cluster struct {
	client           *proxmox.Client
	endpoint, region string
}

func open(_ context.Context, v contract.Values) (contract.Platform, error) {
	endpoint, err := trust.Host(v)
	if err != nil {
		return nil, err
	}
	client, err := trust.Client(v)
	if err != nil {
		return nil, err
	}
	client.Transport = refusals{client.Transport}
	api := proxmox.NewClient(endpoint+"/api2/json", proxmox.WithHTTPClient(client), proxmox.WithAPIToken(v["token_id"], v["token"]))
	return &cluster{api, endpoint, v["region"]}, nil
}

// refusals makes errors of what go-proxmox would read as an empty answer: a host that does
// not answer another one is {"data":null} with the status 595, as a busy one is with 503.
type refusals struct{ next http.RoundTripper }

func (r refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.next.RoundTrip(req)
	if err != nil || res.StatusCode < 300 || res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
		return res, err
	}
	res.Body.Close()
	return nil, fmt.Errorf("the host answers %s", res.Status)
}

// Find takes a VM's number, its name, or a provider ID, proxmox://REGION/100 or proxmox://100:
// other clusters have a machine 100, too.
func (c *cluster) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	name := plug
	if scheme, rest, ok := strings.Cut(plug, "://"); ok {
		at := strings.LastIndex(rest, "/")
		if region := rest[:max(at, 0)]; scheme != "proxmox" || region != c.region {
			return nil, fmt.Errorf("%s is of the region %q, and the parameter region says %q of the cluster of %s", plug, region, c.region, c.endpoint)
		}
		name = rest[at+1:]
	}
	all, err := c.resources(ctx)
	if err != nil {
		return nil, err
	}
	id, _ := strconv.ParseUint(name, 10, 64)
	all = slices.DeleteFunc(all, func(r *proxmox.ClusterResource) bool {
		return id != 0 && r.VMID != id || id == 0 && r.Name != name
	})
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("the token sees no virtual machine %s in the cluster of %s", name, c.endpoint)
	case len(all) > 1:
		return nil, fmt.Errorf("%d virtual machines are called %s: name the number", len(all), name)
	case all[0].Type != "qemu":
		return nil, fmt.Errorf("%s is no virtual machine but %s", name, all[0].Type)
	}
	return c.read(ctx, all[0])
}

func (c *cluster) resources(ctx context.Context) (proxmox.ClusterResources, error) {
	return (&proxmox.Cluster{}).New(c.client).Resources(ctx, "vm")
}

func (c *cluster) read(ctx context.Context, r *proxmox.ClusterResource) (*contract.Machine, error) {
	vm, err := (&proxmox.Node{}).New(c.client, r.Node).VirtualMachine(ctx, int(r.VMID))
	switch {
	case err != nil:
		return nil, fmt.Errorf("virtual machine %d on host %s: %w", r.VMID, r.Node, err)
	case vm == nil || vm.VirtualMachineConfig == nil || uint64(vm.VMID) != r.VMID:
		return nil, fmt.Errorf("host %s does not answer with virtual machine %d", r.Node, r.VMID)
	}
	m := &contract.Machine{ID: strconv.FormatUint(r.VMID, 10), UUID: smbiosUUID(vm.VirtualMachineConfig.SMBios1), Name: vm.Name, Handle: vm}
	m.State, m.Says = state(vm)
	return m, nil
}

func smbiosUUID(smbios string) string {
	for field := range strings.SplitSeq(smbios, ",") {
		if value, ok := strings.CutPrefix(field, "uuid="); ok {
			return value
		}
	}
	return ""
}

func state(vm *proxmox.VirtualMachine) (contract.State, string) {
	lock := cmp.Or(vm.Lock, vm.VirtualMachineConfig.Lock)
	switch {
	case vm.Status == proxmox.StatusVirtualMachineRunning && vm.QMPStatus == proxmox.StatusVirtualMachineRunning && !strings.HasPrefix(lock, "suspend"):
		return contract.On, vm.Status
	case vm.Status == proxmox.StatusVirtualMachineStopped && lock == "":
		return contract.Off, vm.Status
	case lock != "":
		return contract.Neither, fmt.Sprintf("%s with the lock %s", vm.Status, lock)
	}
	return contract.Neither, fmt.Sprintf("%q (QEMU: %q)", vm.Status, vm.QMPStatus)
}

func (c *cluster) Off(ctx context.Context, m *contract.Machine) error {
	return send(ctx, m, (*proxmox.VirtualMachine).Stop)
}

func (c *cluster) On(ctx context.Context, m *contract.Machine) error {
	return send(ctx, m, (*proxmox.VirtualMachine).Start)
}

func send(ctx context.Context, m *contract.Machine, command func(*proxmox.VirtualMachine, context.Context) (*proxmox.Task, error)) error {
	vm, ok := m.Handle.(*proxmox.VirtualMachine)
	if !ok {
		return errors.New("it is no virtual machine")
	}
	_, err := command(vm, ctx)
	return err
}

func (c *cluster) List(ctx context.Context) (list []*contract.Machine, err error) {
	all, err := c.resources(ctx)
	for _, r := range all {
		if r.Type == "qemu" {
			list = append(list, &contract.Machine{ID: strconv.FormatUint(r.VMID, 10), Name: r.Name})
		}
	}
	return list, err
}
