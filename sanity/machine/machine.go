package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// slots is how many disks a machine has room for at once.
const slots = 8

// Machine is one virtual machine. Its methods may be called concurrently.
type Machine struct {
	Name string

	image  *Image
	folder string

	talk    sync.Mutex // one conversation with QEMU at a time; held before mu
	boots   int
	monitor *monitor          // nil: to be dialled
	plugged map[string]*drive // by serial number

	mu      sync.Mutex
	process *controlplane.Process // nil before the first Start
}

// A drive is a disk in a slot of a machine.
type drive struct {
	slot    int
	leaving bool // the guest was asked to let go of it
}

// New is a machine that is off. Its files are in folder.
func New(name, folder string, image *Image) *Machine {
	return &Machine{Name: name, image: image, folder: folder}
}

// Start powers the machine on, without disks, and returns when the guest runs.
// A machine that runs is left as it is.
func (m *Machine) Start(ctx context.Context) error {
	m.talk.Lock()
	defer m.talk.Unlock()
	if m.Running() {
		return nil
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return fmt.Errorf("%w: %s", err, hint)
	}
	m.hangUp()
	m.boots++
	m.plugged = map[string]*drive{}
	socket, console := m.path("qmp"), m.path("console")
	if err := errors.Join(ignoreMissing(os.Remove(socket)), ignoreMissing(os.Remove(console))); err != nil {
		return err
	}
	args := []string{"-accel", "tcg", "-cpu", "max", "-M", "q35", "-m", "96", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.image.Kernel, "-initrd", m.image.Initramfs,
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 fencepost.writer=%s/%d", m.Name, m.boots),
		"-serial", "file:" + console, "-qmp", "unix:" + socket + ",server=on,wait=off"}
	for i := range slots {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=slot%d,chassis=%d,slot=%d", i, i+1, i+1))
	}
	process, err := controlplane.StartProcess(controlplane.ProcessOptions{Name: "machine-" + m.Name, Path: qemu, Args: args, LogFile: m.path("log")})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.process = process
	m.mu.Unlock()
	if m.monitor, err = dialMonitor(ctx, socket); err == nil {
		err = m.awaitGuest(ctx, console)
	}
	if err != nil {
		process.Stop(0)
		log, _ := os.ReadFile(m.path("log"))
		return fmt.Errorf("machine %s: %w\n%s", m.Name, err, log)
	}
	return nil
}

func (m *Machine) path(kind string) string { return filepath.Join(m.folder, m.Name+"."+kind) }

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (m *Machine) awaitGuest(ctx context.Context, console string) error {
	for {
		text, err := os.ReadFile(console)
		if err == nil && strings.Contains(string(text), "guest: up:") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the guest does not come up: %w; its console:\n%s", ctx.Err(), text)
		case <-time.After(20 * time.Millisecond):
		}
		if !m.Running() {
			return fmt.Errorf("QEMU has ended; the guest's console:\n%s", text)
		}
	}
}

// Kill takes the power. It returns when the machine is gone and its disks are
// free; a machine that is off is left as it is.
func (m *Machine) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		m.process.Stop(0)
	}
}

// Running tells whether the machine has power. A paused one has.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process != nil && !m.process.Exited()
}

// Pause stops the machine in the middle of whatever it does, as a hypervisor
// that is overloaded or suspends it; Resume lets it go on.
func (m *Machine) Pause(ctx context.Context) error  { return m.command(ctx, "stop", nil) }
func (m *Machine) Resume(ctx context.Context) error { return m.command(ctx, "cont", nil) }

func (m *Machine) command(ctx context.Context, command string, arguments map[string]any) error {
	m.talk.Lock()
	defer m.talk.Unlock()
	if err := ctx.Err(); err != nil {
		return m.explain(command, err)
	}
	return m.ask(ctx, command, arguments)
}

// ask has one command run, with talk held. ctx does not end it half-way: nobody
// would know whether QEMU did it. A connection that failed is not used again.
func (m *Machine) ask(ctx context.Context, command string, arguments map[string]any) error {
	if !m.Running() {
		return fmt.Errorf("machine %s is off", m.Name)
	}
	var err error
	if m.monitor == nil {
		if m.monitor, err = dialMonitor(ctx, m.path("qmp")); err != nil {
			return m.explain("connect", err)
		}
	}
	err = m.monitor.run(context.WithoutCancel(ctx), command, arguments)
	if err != nil && !refused(err) {
		m.hangUp()
	}
	return m.explain(command, err)
}

func (m *Machine) hangUp() {
	if m.monitor != nil {
		m.monitor.conn.Close()
		m.monitor = nil
	}
}

func (m *Machine) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("machine %s: %s: %w", m.Name, what, err)
}

// Plug gives the machine a disk, under a serial number. QEMU refuses an image
// that another machine has. Plugging what is plugged does nothing.
func (m *Machine) Plug(ctx context.Context, serial string, disk *Disk) error {
	return m.plug(ctx, serial, disk, "on")
}

// plug locks the image, or not: only a test of Verify wants two writers.
func (m *Machine) plug(ctx context.Context, serial string, disk *Disk, locking string) error {
	m.talk.Lock()
	defer m.talk.Unlock()
	if err := ctx.Err(); err != nil {
		return m.explain("plug", err)
	}
	if !m.Running() {
		return fmt.Errorf("machine %s is off", m.Name)
	}
	if d := m.plugged[serial]; d != nil && d.leaving {
		return fmt.Errorf("machine %s: disk %s is being unplugged", m.Name, serial)
	} else if d != nil {
		return nil
	}
	slot, err := m.freeSlot()
	if err != nil {
		return err
	}
	err = m.ask(ctx, "blockdev-add", map[string]any{
		"node-name": "disk-" + serial, "driver": "raw", "cache": map[string]any{"direct": true},
		"file": map[string]any{"driver": "file", "filename": disk.Path, "locking": locking}})
	if err != nil {
		return err
	}
	err = m.ask(ctx, "device_add", map[string]any{
		"driver": "virtio-blk-pci", "id": "dev-" + serial, "bus": fmt.Sprintf("slot%d", slot), "drive": "disk-" + serial, "serial": serial})
	if err != nil {
		return errors.Join(err, m.ask(ctx, "blockdev-del", map[string]any{"node-name": "disk-" + serial}))
	}
	m.plugged[serial] = &drive{slot: slot}
	return nil
}

func (m *Machine) freeSlot() (int, error) {
	taken := map[int]bool{}
	for _, d := range m.plugged {
		taken[d.slot] = true
	}
	for i := range slots {
		if !taken[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("machine %s has %d disks and no room for another", m.Name, slots)
}

// Unplug takes a disk from the machine, and returns when the image is free. The
// guest has to cooperate: ctx bounds the wait, and a later call goes on with it.
// A machine that is off has none.
func (m *Machine) Unplug(ctx context.Context, serial string) error {
	m.talk.Lock()
	defer m.talk.Unlock()
	d := m.plugged[serial]
	if d == nil || !m.Running() {
		return nil
	}
	err := m.ask(ctx, "device_del", map[string]any{"id": "dev-" + serial})
	if err != nil && !(d.leaving && refused(err)) { // it may have left since an earlier call
		return err
	}
	d.leaving = true
	for m.plugged[serial] == d && m.Running() {
		err := m.ask(ctx, "blockdev-del", map[string]any{"node-name": "disk-" + serial})
		if err == nil {
			delete(m.plugged, serial)
			return nil
		}
		if !refused(err) { // QEMU refuses while the device is there
			return err
		}
		if m.letTalk(ctx); ctx.Err() != nil {
			return m.explain("the guest does not let go of disk "+serial, errors.Join(ctx.Err(), err))
		}
	}
	return nil
}

// letTalk lets others talk to QEMU for a while.
func (m *Machine) letTalk(ctx context.Context) {
	m.talk.Unlock()
	defer m.talk.Lock()
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}
