package bed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/disk"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/pages"
)

// diskBytes is the size of a real volume.
const diskBytes = 64 << 20

// toldFolder is where a pod's container notes what its clients were told: the node's
// own disk.
const toldFolder = "/told"

// databaseContainer writes the database of the first volume.
func databaseContainer(c *corev1.Container, spec *corev1.PodSpec, volume string) {
	c.Image, c.ImagePullPolicy = realnode.Image, corev1.PullNever
	c.Env = []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}
	c.Args = []string{"write", "/data/" + volume, "$(POD_UID)", toldFolder + "/" + volume + ".$(POD_UID)"}
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

// realOptions are of a new node with that driver's ID; none where the stage's nodes are
// hollow.
func (s *Stage) realOptions(id string) (*controlplane.Real, func()) {
	s.T.Helper()
	if s.disks == nil {
		return nil, nil
	}
	programs, err := s.Bed.realPrograms(s.ctx())
	s.must("programs of real nodes", err)
	return programs, func() { s.disks.cut(id) }
}

// realDisks are the disks behind the volumes of a stage of real nodes, and what is
// mounted where: the array's Mounts.
type realDisks struct {
	folder string

	mu     sync.Mutex
	nodes  map[string]*controlplane.Node // by node ID
	staged map[string]*staged            // by node ID and volume ID
}

// staged is a volume that a machine has mounted.
type staged struct {
	nodeID, path string
}

func newRealDisks(folder string) *realDisks {
	return &realDisks{folder: folder, nodes: map[string]*controlplane.Node{}, staged: map[string]*staged{}}
}

func (d *realDisks) add(n *Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[n.ID] = n.kube
}

// file is the disk of a volume. A new one gets a file system.
func (d *realDisks) file(ctx context.Context, volumeID string) (string, error) {
	path := filepath.Join(d.folder, volumeID+diskSuffix)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, errors.Join(disk.Make(path, diskBytes), disk.Format(ctx, path))
}

// Stage gives the machine a block device for the disk, and mounts that.
func (d *realDisks) Stage(ctx context.Context, nodeID, volumeID, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := nodeID + " " + volumeID
	if s := d.staged[key]; s != nil {
		if s.path == path {
			return nil
		}
		return fmt.Errorf("volume %s is staged on %s at %s already", volumeID, nodeID, s.path)
	}
	file, err := d.file(ctx, volumeID)
	if err != nil {
		return err
	}
	device, err := disk.Attach(ctx, file)
	if err != nil {
		return err
	}
	mounted := errors.Join(os.MkdirAll(path, 0o750), d.nodes[nodeID].Do(ctx, "mount", "-t", "ext4", device, path))
	// From now on the kernel takes the device away when it is no longer mounted, in
	// whatever way that ends.
	if err := errors.Join(mounted, disk.Detach(ctx, device)); err != nil {
		return err
	}
	d.staged[key] = &staged{nodeID: nodeID, path: path}
	return nil
}

// Unstage unmounts it, and with that the block device goes.
func (d *realDisks) Unstage(ctx context.Context, nodeID, volumeID, path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := nodeID + " " + volumeID
	s := d.staged[key]
	if s == nil || s.path != path {
		return nil
	}
	if err := d.nodes[nodeID].Do(ctx, "umount", path); err != nil {
		return err
	}
	delete(d.staged, key)
	return nil
}

// Publish binds it to a pod's folder.
func (d *realDisks) Publish(ctx context.Context, nodeID, _, staging, target string, readonly bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[nodeID]
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
func (d *realDisks) Unpublish(ctx context.Context, nodeID, _, target string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[nodeID]
	if n.Do(ctx, "mountpoint", "-q", target) != nil {
		return nil
	}
	return n.Do(ctx, "umount", target)
}

// Revoke has the machine's writes fail from now on. It is done when Revoke returns: later,
// something else may be mounted there.
func (d *realDisks) Revoke(nodeID, volumeID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.staged[nodeID+" "+volumeID]; s != nil {
		_ = disk.PowerOff(d.nodes[nodeID].Path(s.path)) // a second time it is no use
	}
}

// cut ends what a machine has mounted, whose power fails in this moment.
func (d *realDisks) cut(nodeID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.staged {
		if s.nodeID == nodeID {
			_ = disk.PowerOff(d.nodes[nodeID].Path(s.path))
		}
	}
}

// forget what a machine had mounted that is off.
func (d *realDisks) forget(nodeID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.staged, func(_ string, s *staged) bool { return s.nodeID == nodeID })
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
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), diskSuffix), "vol-")
		told := pages.Told{}
		for _, n := range s.Nodes {
			s.must("what clients were told", readTold(n.kube.KeptDir(), name+".", told))
		}
		verdicts[name], err = disk.Judge(ctx, file, s.folder, told)
		s.must("judging "+name, err)
	}
	return verdicts
}

const diskSuffix = ".disk"

// readTold reads what pods with a volume noted in a node's folder: a file each, named
// after the volume and the pod.
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
