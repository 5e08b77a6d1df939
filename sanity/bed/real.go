package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/disk"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/pages"
)

const (
	// diskBytes is the size of a real volume.
	diskBytes = 64 << 20
	// realWritesEvery is how often the array asks what real containers have written.
	realWritesEvery = 50 * time.Millisecond
)

// toldFolder is where a pod's container notes what its clients were told: the node's
// own disk.
const toldFolder = "/told"

// databaseContainer writes the database of the first volume.
func databaseContainer(c *corev1.Container, spec *corev1.PodSpec, volume *Volume) {
	c.Image, c.ImagePullPolicy = realnode.Image, corev1.PullNever
	c.Env = []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}
	c.Args = []string{"write", "/data/" + volume.Name, "$(POD_UID)", toldFolder + "/" + toldOf(volume.Handle) + "$(POD_UID)"}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "told", MountPath: toldFolder})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "told", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: controlplane.KeptPath}}})
}

// realPrograms are built at the first call, and run on all real nodes of the bed.
func (b *Bed) realPrograms(ctx context.Context) (*controlplane.Real, error) {
	b.real.once.Do(func() {
		folder := filepath.Join(b.Cluster.Folder(), "real-nodes")
		if b.real.err = os.MkdirAll(folder, 0o755); b.real.err == nil {
			b.real.built, b.real.err = controlplane.BuildReal(ctx, os.Stderr, folder)
		}
	})
	return b.real.built, b.real.err
}

// realPrograms of the nodes of a bed.
type realPrograms struct {
	once  sync.Once
	built *controlplane.Real
	err   error
}

// realPrograms are those of a new node; none where the stage's nodes are hollow.
func (s *Stage) realPrograms() *controlplane.Real {
	s.T.Helper()
	if s.disks == nil {
		return nil
	}
	programs, err := s.Bed.realPrograms(s.ctx())
	s.must("programs of real nodes", err)
	return programs
}

// cut ends what the drivers on a machine have mounted there, whose power fails in this
// moment.
func (h *hardware) cut() {
	for _, n := range h.nodes() {
		if n.stage.disks != nil {
			n.stage.disks.cut(n.ID)
		}
	}
}

// realDisks are the disks behind the volumes of a stage of real nodes, and what is
// mounted where: the array's Mounts.
type realDisks struct {
	folder string
	busy   sync.Map // a lock for each volume, and for each machine with one

	// gives is StageOptions.GivesDeviceBack.
	gives bool

	mu     sync.Mutex
	nodes  map[string]*controlplane.Node // by node ID
	staged map[onMachine]staged
}

// staged is what a machine has of a volume: where, and through which block device.
type staged struct{ path, device string }

// onMachine is a volume on a machine.
type onMachine struct{ nodeID, volumeID string }

func newRealDisks(folder string, gives bool) *realDisks {
	return &realDisks{folder: folder, gives: gives, nodes: map[string]*controlplane.Node{}, staged: map[onMachine]staged{}}
}

func (d *realDisks) add(n *Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[n.ID] = n.kube
}

func (d *realDisks) node(id string) *controlplane.Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodes[id]
}

// on is what the machine has mounted; empty: nothing.
func (d *realDisks) on(key onMachine) staged {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.staged[key]
}

// note what the machine has mounted; empty: nothing any more.
func (d *realDisks) note(key onMachine, at staged) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.staged[key] = at; at == (staged{}) {
		delete(d.staged, key)
	}
}

// file is the disk of a volume. A new one gets a file system.
func (d *realDisks) file(ctx context.Context, volumeID string) (string, error) {
	defer d.lock(onMachine{volumeID: volumeID})()
	path := filepath.Join(d.folder, volumeID+diskSuffix)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, errors.Join(disk.Make(path, diskBytes), disk.Format(ctx, path))
}

// Stage gives the machine a block device for the disk, and mounts that.
func (d *realDisks) Stage(ctx context.Context, nodeID, volumeID, path string) error {
	key := onMachine{nodeID, volumeID}
	defer d.lock(key)()
	switch at := d.on(key); at.path {
	case "":
	case path:
		return nil
	default:
		return fmt.Errorf("volume %s is staged on %s at %s already", volumeID, nodeID, at.path)
	}
	file, err := d.file(ctx, volumeID)
	if err != nil {
		return err
	}
	device, err := disk.Attach(ctx, file)
	if err != nil {
		return err
	}
	mounted := errors.Join(os.MkdirAll(path, 0o750), d.node(nodeID).Do(ctx, "mount", "-t", "ext4", device, path))
	// From now on the kernel takes the device away when it is no longer mounted, in
	// whatever way that ends.
	if err := errors.Join(mounted, disk.Detach(ctx, device)); err != nil {
		return err
	}
	d.note(key, staged{path, device})
	return nil
}

// Unstage unmounts it, and with that the block device goes, unless a container that has
// not ended has the file system in a mount namespace of its own.
func (d *realDisks) Unstage(ctx context.Context, nodeID, volumeID, path string) error {
	key := onMachine{nodeID, volumeID}
	defer d.lock(key)()
	at, n := d.on(key), d.node(nodeID)
	if at.path != path {
		return nil
	}
	if n.Do(ctx, "mountpoint", "-q", path) == nil {
		if err := n.Do(ctx, "umount", path); err != nil {
			return err
		}
	}
	if d.gives && disk.Attached(at.device, filepath.Join(d.folder, volumeID+diskSuffix)) {
		return fmt.Errorf("block device %s of volume %s is in use", at.device, volumeID)
	}
	d.note(key, staged{})
	return nil
}

// Publish binds it to a pod's folder.
func (d *realDisks) Publish(ctx context.Context, nodeID, volumeID, staging, target string, readonly bool) error {
	defer d.lock(onMachine{nodeID, volumeID})()
	n := d.node(nodeID)
	if n.Do(ctx, "mountpoint", "-q", target) == nil {
		return nil
	}
	mode := "bind"
	if readonly {
		mode = "bind,ro"
	}
	return errors.Join(os.MkdirAll(target, 0o750), n.Do(ctx, "mount", "-o", mode, staging, target))
}

// Unpublish takes it out of the pod's folder.
func (d *realDisks) Unpublish(ctx context.Context, nodeID, volumeID, target string) error {
	defer d.lock(onMachine{nodeID, volumeID})()
	n := d.node(nodeID)
	if n.Do(ctx, "mountpoint", "-q", target) != nil {
		return nil
	}
	return n.Do(ctx, "umount", target)
}

// Written is how much the machine's containers have told their clients of.
func (d *realDisks) Written(nodeID, volumeID string) (bytes int64) {
	files, _ := filepath.Glob(filepath.Join(d.node(nodeID).KeptDir(), toldOf(volumeID)+"*"))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// Revoke has the machine's writes fail from now on. It is done when Revoke returns: later,
// something else may be mounted there.
func (d *realDisks) Revoke(nodeID, volumeID string) { d.fail(onMachine{nodeID, volumeID}) }

// fail ends what the machine has mounted, as if its power failed in this moment. Who
// waits for a disk that hangs learns it.
func (d *realDisks) fail(key onMachine) {
	if at := d.on(key).path; at != "" {
		folder := d.node(key.nodeID).Path(at)
		_ = disk.PowerOff(folder) // a second time it is no use
		_ = disk.GoOn(folder)     // most do not hang
	}
}

func (d *realDisks) cut(nodeID string) {
	for _, key := range d.mountedOn(nodeID) {
		d.fail(key)
	}
}

// forget what a machine had mounted that is off.
func (d *realDisks) forget(nodeID string) {
	for _, key := range d.mountedOn(nodeID) {
		d.note(key, staged{})
	}
}

func (d *realDisks) mountedOn(nodeID string) (keys []onMachine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.staged {
		if key.nodeID == nodeID {
			keys = append(keys, key)
		}
	}
	return keys
}

// lock locks a volume, or a machine with one, and returns what unlocks it.
func (d *realDisks) lock(key onMachine) (unlock func()) {
	l, _ := d.busy.LoadOrStore(key, &sync.Mutex{})
	l.(*sync.Mutex).Lock()
	return l.(*sync.Mutex).Unlock
}

// Hang has the volume's disk not answer the machine any more: neither can its container
// be ended that writes, nor can the volume be unmounted. For stages with Real.
func (v *Volume) Hang(on *Node) {
	v.stage.T.Helper()
	v.stage.must("hang of "+v.Name, disk.Hang(v.mountedAt(on)))
}

// GoOn ends what Hang began.
func (v *Volume) GoOn(on *Node) {
	v.stage.T.Helper()
	v.stage.must("end of the hang of "+v.Name, disk.GoOn(v.mountedAt(on)))
}

func (v *Volume) mountedAt(on *Node) string {
	v.stage.T.Helper()
	at := v.stage.disks.on(onMachine{on.ID, v.Handle}).path
	if at == "" {
		v.stage.T.Fatalf("%s has not mounted %s", on.Name, v.Name)
	}
	return on.kube.Path(at)
}

// KillRuntime kills a real node's containerd; its containers run on. StartRuntime starts
// it again.
func (n *Node) KillRuntime() { n.kube.KillRuntime() }

// StartRuntime returns when containerd serves.
func (n *Node) StartRuntime() {
	n.stage.T.Helper()
	n.stage.must("containerd of "+n.Name, n.kube.StartRuntime(n.stage.ctx()))
}

// Real tells whether its kubelet and its containers are real ones.
func (n *Node) Real() bool { return n.stage.Options.Real }

// HoldContainers has nobody be able to end a real node's containers, which write on, until
// LetContainersEnd: the processes between containerd and them hang.
func (n *Node) HoldContainers() {
	n.stage.T.Helper()
	n.stage.must("containers of "+n.Name, n.kube.SignalShims(syscall.SIGSTOP))
}

// LetContainersEnd ends what HoldContainers began.
func (n *Node) LetContainersEnd() {
	n.stage.T.Helper()
	n.stage.must("containers of "+n.Name, n.kube.SignalShims(syscall.SIGCONT))
}

// Told tells whether within a second a container on a real node tells its clients of
// something written, though the driver may have unmounted the volume.
func (v *Volume) Told(on *Node) bool {
	before := v.stage.disks.Written(on.ID, v.Handle)
	for began := time.Now(); time.Since(began) < time.Second; time.Sleep(20 * time.Millisecond) {
		if v.stage.disks.Written(on.ID, v.Handle) > before {
			return true
		}
	}
	return false
}

// Judge switches all of the stage's machines off, and says what is left on each volume
// that one of them had mounted: what e2fsck finds, and the database's own check, which
// knows what clients were told.
func (s *Stage) Judge() map[string]disk.Verdict {
	s.T.Helper()
	for _, n := range s.Nodes {
		n.PowerOff()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	verdicts := map[string]disk.Verdict{}
	files, err := filepath.Glob(filepath.Join(s.folder, "*"+diskSuffix))
	s.must("the disks", err)
	for _, file := range files {
		volumeID := strings.TrimSuffix(filepath.Base(file), diskSuffix)
		name := strings.TrimPrefix(volumeID, "vol-")
		told := pages.Told{}
		for _, n := range s.Nodes {
			s.must("what clients were told", readTold(n.kube.KeptDir(), toldOf(volumeID), told))
		}
		verdicts[name], err = disk.Judge(ctx, file, s.folder, told)
		s.must("judging "+name, err)
	}
	return verdicts
}

const diskSuffix = ".disk"

// toldOf begins the name of the files in which pods with a volume note what their clients
// were told; it ends with the pod.
func toldOf(volumeID string) string { return volumeID + "." }

// readTold reads what pods with a volume noted in a node's folder.
func readTold(folder, volume string, told pages.Told) error {
	files, err := filepath.Glob(filepath.Join(folder, volume+"*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		writer := strings.TrimPrefix(filepath.Base(file), volume)
		for line := range strings.Lines(string(text)) {
			if c, ok := pages.ParseCommit(line); ok {
				told[writer] = append(told[writer], c)
			}
		}
	}
	return nil
}
