package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/machine"
)

// vmBootLimit is patience with a busy host that has no KVM.
const vmBootLimit = 3 * time.Minute

// lockWords are QEMU's when another machine has the disk.
const lockWords = `Failed to get "write" lock`

// machines are the virtual machines behind a stage's nodes, and the disks behind
// its volumes: the array's Disks.
type machines struct {
	folder string

	mu    sync.Mutex
	vms   map[string]*machine.Machine // by node ID
	disks map[string]*machine.Disk    // by volume ID, from the first Attach on
}

func newMachines(folder string) *machines {
	return &machines{folder: folder, vms: map[string]*machine.Machine{}, disks: map[string]*machine.Disk{}}
}

// Attach hot-plugs the disk.
func (m *machines) Attach(ctx context.Context, nodeID, volumeID string) error {
	vm, disk, err := m.pair(nodeID, volumeID)
	if err != nil {
		return err
	}
	return vm.Plug(ctx, volumeID, disk)
}

// Detach has the guest let go of the disk.
func (m *machines) Detach(ctx context.Context, nodeID, volumeID string) error {
	m.mu.Lock()
	vm := m.vms[nodeID]
	m.mu.Unlock()
	if vm == nil {
		return nil
	}
	return vm.Unplug(ctx, volumeID)
}

func (m *machines) pair(nodeID, volumeID string) (*machine.Machine, *machine.Disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	vm := m.vms[nodeID]
	if vm == nil {
		return nil, nil, fmt.Errorf("there is no virtual machine %s", nodeID)
	}
	if m.disks[volumeID] == nil {
		disk, err := machine.NewDisk(filepath.Join(m.folder, volumeID+".raw"))
		if err != nil {
			return nil, nil, err
		}
		m.disks[volumeID] = disk
	}
	return vm, m.disks[volumeID], nil
}

func (m *machines) add(n *Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.vms[n.ID] = n.hardware.vm
}

func (m *machines) disk(volumeID string) *machine.Disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disks[volumeID]
}

// vmImage is built at the first call, and boots all machines of the bed.
func (b *Bed) vmImage(ctx context.Context) (*machine.Image, error) {
	b.image.once.Do(func() {
		folder := filepath.Join(b.Cluster.Folder(), "machine-image")
		if b.image.err = os.MkdirAll(folder, 0o755); b.image.err == nil {
			b.image.built, b.image.err = machine.BuildImage(ctx, folder)
		}
	})
	return b.image.built, b.image.err
}

// image of the machines of a bed.
type image struct {
	once  sync.Once
	built *machine.Image
	err   error
}

// startVM boots the virtual machine of a new node; nil: the stage has none.
// The function waits until it is up.
func (s *Stage) startVM(name string) (*machine.Machine, func()) {
	s.T.Helper()
	if s.machines == nil {
		return nil, func() {}
	}
	image, err := s.Bed.vmImage(s.ctx())
	s.must("image of the virtual machines", err)
	vm := machine.New(name, s.folder, image)
	s.T.Cleanup(vm.Kill)
	up := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx(), vmBootLimit)
		defer cancel()
		up <- vm.Start(ctx)
	}()
	return vm, func() {
		s.T.Helper()
		s.must("virtual machine "+name, <-up)
	}
}

// bootVM starts the virtual machine with the disks that are still attached to it,
// as a machine that was off has them.
func (h *hardware) bootVM(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, vmBootLimit)
	defer cancel()
	if err := h.vm.Start(ctx); err != nil {
		return err
	}
	var errs []error
	for _, n := range h.nodes() {
		if n.stage.machines == nil {
			continue // a driver of another kind, adopted
		}
		for _, handle := range n.stage.Array.AttachedVolumes(n.ID) {
			errs = append(errs, n.stage.machines.Attach(ctx, n.ID, handle))
		}
	}
	return errors.Join(errs...)
}

// Hang stops the machine in the middle of whatever it does: the virtual one, if
// there is one, its kubelet and what its containers write. It has power, and may
// go on at any moment.
func (n *Node) Hang() {
	n.stage.T.Helper()
	if vm := n.hardware.vm; vm != nil {
		n.stage.must("hang of "+n.Name, vm.Pause(n.stage.ctx()))
	}
	for _, on := range n.hardware.nodes() {
		n.stage.must("hang of "+n.Name, on.stage.Array.PauseMachine(on.ID))
	}
	n.CutOff()
}

// GoOn ends Hang. It fails for a machine that was powered off meanwhile.
func (n *Node) GoOn() error {
	var errs []error
	if vm := n.hardware.vm; vm != nil {
		errs = append(errs, vm.Resume(n.stage.ctx()))
	}
	for _, on := range n.hardware.nodes() {
		errs = append(errs, on.stage.Array.ResumeMachine(on.ID))
	}
	return errors.Join(append(errs, n.kube.Resume())...)
}

// IPMIOff powers the machine off as a person does, with Debian's fence_ipmilan
// through the machine's BMC, and reads from it that it is off.
func (n *Node) IPMIOff() {
	n.stage.T.Helper()
	n.stage.must("fence_ipmilan off", n.fenceIPMI("off"))
	var exit *exec.ExitError
	if err := n.fenceIPMI("status"); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		n.stage.T.Fatalf("%s: fence_ipmilan does not read %s off after it switched it off: %v", n.stage.Name, n.Name, err)
	}
}

// IPMIOn powers the machine on; it boots in its own time.
func (n *Node) IPMIOn() {
	n.stage.T.Helper()
	n.stage.must("fence_ipmilan on", n.fenceIPMI("on"))
}

// fenceIPMI speaks the contract of fence agents: options on standard input, and
// exit code 2 for a machine that is off.
func (n *Node) fenceIPMI(action string) error {
	n.stage.T.Helper()
	host, port, _ := strings.Cut(n.BMC().Addr, ":")
	ctx, cancel := context.WithTimeout(n.stage.ctx(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/sbin/fence_ipmilan")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("action=%s\nip=%s\nipport=%s\nusername=%s\npassword=%s\nlanplus=1\ncipher=3\npower_timeout=30\n",
		action, host, port, bmcUser, bmcPassword))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", action, err, out)
	}
	return nil
}

// GuestWrites counts the records of the node's virtual machine that reached the
// volume's disk, over all its boots.
func (v *Volume) GuestWrites(n *Node) int {
	stretches, _ := v.readDisk() // faults are DiskVerdict's
	count := 0
	for _, s := range stretches {
		if writtenBy(s, n) {
			count += s.Writes
		}
	}
	return count
}

// WaitGuestWrites waits until the node's virtual machine has written some more.
func (v *Volume) WaitGuestWrites(n *Node, limit time.Duration) time.Duration {
	v.stage.T.Helper()
	const some = 20
	before := v.GuestWrites(n)
	return v.stage.WaitFor(limit, "the guest on "+n.Name+" writes to "+v.Name, func() bool { return v.GuestWrites(n) >= before+some })
}

// DiskVerdict reads the volume's disk from end to end, and fails unless those
// nodes' virtual machines wrote to it one after the other, in this order, and no
// write of theirs was lost, torn, or came after the next one's first. A node's
// boots are a writer each.
func (v *Volume) DiskVerdict(writers ...*Node) {
	v.stage.T.Helper()
	stretches, err := v.readDisk()
	if err != nil {
		v.stage.T.Errorf("%s: on the disk of %s: %v", v.stage.Name, v.Name, err)
	}
	var who []string
	for i, s := range stretches {
		who = append(who, fmt.Sprintf("%s (%d writes)", s.Writer, s.Writes))
		if i < len(writers) && !writtenBy(s, writers[i]) {
			v.stage.T.Errorf("%s: stretch %d on the disk of %s is by %s, not by %s", v.stage.Name, i+1, v.Name, s.Writer, writers[i].Name)
		}
	}
	if len(stretches) != len(writers) {
		v.stage.T.Errorf("%s: the disk of %s has %d stretches, want %d", v.stage.Name, v.Name, len(stretches), len(writers))
	}
	v.stage.Log("on the disk of %s: %s", v.Name, strings.Join(who, ", then "))
}

func (v *Volume) readDisk() ([]machine.Stretch, error) {
	v.stage.T.Helper()
	if v.stage.machines == nil {
		v.stage.T.Fatalf("%s: %s has no real disk: StageOptions.Machines is not set", v.stage.Name, v.Name)
	}
	disk := v.stage.machines.disk(v.Handle)
	if disk == nil {
		return nil, nil // never attached
	}
	return disk.Verify()
}

func writtenBy(s machine.Stretch, n *Node) bool { return strings.HasPrefix(s.Writer, n.Name+"/") }

// Asked tells whether a call to attach the volume to the node has ever reached
// the driver, and with it the disk.
func (v *Volume) Asked(n *Node) bool { return v.Calls(array.Publish, n, time.Time{}) > 0 }

// Tainted tells whether the Node has a taint of that key.
func (n *Node) Tainted(key string) bool {
	node := n.Get()
	return node != nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// LockRefusals are the driver's answers to a publish for which QEMU's lock on the
// disk was asked, and said no.
func (v *Volume) LockRefusals() []array.Call {
	var refused []array.Call
	for _, c := range v.stage.Array.CallsOf(array.Publish, v.Handle) {
		if c.Code == codes.FailedPrecondition && contains(c.Message, lockWords) {
			refused = append(refused, c)
		}
	}
	return refused
}
