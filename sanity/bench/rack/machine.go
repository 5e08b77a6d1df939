package rack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

const (
	// LeaseEvery and StatusEvery are a kubelet's periods: a quarter of the lease's
	// 40 s, and nodeStatusUpdateFrequency.
	LeaseEvery  = 10 * time.Second
	StatusEvery = 10 * time.Second
)

// Options of a Machine. All are required but those with a default.
type Options struct {
	// Name of the Node, ID of the machine for the driver.
	Name, ID string
	// Client has the rights of the machine's kubelet.
	Client kubernetes.Interface
	Array  *array.Array
	// Folder is the machine's disk. The path of a socket in it has to be short.
	Folder string
	Labels map[string]string
	// LeaseEvery and StatusEvery; a kubelet's if zero.
	LeaseEvery, StatusEvery time.Duration
}

// Machine is a simulated node. Start one with Boot; it ends with PowerOff or Stop.
type Machine struct {
	Options
	// SystemUUID is what its BMC knows as its GUID, BootID that of its one boot.
	SystemUUID, BootID string

	booted metav1.Time
	uid    types.UID // of the Node
	driver *array.Node
	conn   *grpc.ClientConn
	node   spec.NodeClient
	cancel context.CancelFunc
	work   sync.WaitGroup

	switching sync.Mutex
	off       bool
}

// Boot starts a machine: its driver serves, its Node is registered and Ready. It
// ends with ctx at the latest.
func Boot(ctx context.Context, o Options) (*Machine, error) {
	if o.LeaseEvery == 0 {
		o.LeaseEvery = LeaseEvery
	}
	if o.StatusEvery == 0 {
		o.StatusEvery = StatusEvery
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &Machine{Options: o, SystemUUID: string(uuid.NewUUID()), BootID: string(uuid.NewUUID()), booted: metav1.Now(), cancel: cancel}
	if err := m.boot(ctx); err != nil {
		m.Stop()
		return nil, fmt.Errorf("machine %s: %w", o.Name, err)
	}
	return m, nil
}

func (m *Machine) boot(ctx context.Context) error {
	if err := os.MkdirAll(m.Folder, 0o755); err != nil {
		return err
	}
	var err error
	if m.driver, err = m.Array.ServeNode(ctx, array.NodeOptions{NodeID: m.ID, PluginDir: filepath.Join(m.Folder, "plugins")}); err != nil {
		return err
	}
	if m.conn, err = grpc.NewClient("unix://"+m.driver.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	m.node = spec.NewNodeClient(m.conn)
	if err := m.register(ctx); err != nil {
		return err
	}
	k := newKubelet(m)
	k.watch(ctx)
	m.work.Go(func() { m.renew(ctx) })
	m.work.Go(func() { k.run(ctx) })
	return nil
}

// renew renews the lease, at a phase of its own.
func (m *Machine) renew(ctx context.Context) {
	for wait := rand.N(m.LeaseEvery); ; wait = m.LeaseEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		m.renewLease(ctx) // a renewal that fails is made up for by the next
	}
}

// PowerOff takes the machine's power: it writes nothing more, to no volume and to
// no object, once this has returned.
func (m *Machine) PowerOff() error {
	m.switching.Lock()
	defer m.switching.Unlock()
	m.off = true
	err := m.Array.PowerOff(m.ID)
	m.Stop()
	return err
}

// On and Set make the machine a bmc.PowerSwitch. One that is off stays off.
func (m *Machine) On() bool {
	m.switching.Lock()
	defer m.switching.Unlock()
	return !m.off
}

// Set switches the power off; it cannot switch it on again.
func (m *Machine) Set(on bool) error {
	switch {
	case !on:
		return m.PowerOff()
	case m.On():
		return nil
	}
	return errors.New("a machine of package rack boots once")
}

// Stop ends everything that the machine runs; its power stays as it is.
func (m *Machine) Stop() {
	m.cancel()
	m.work.Wait()
	if m.conn != nil {
		m.conn.Close()
	}
	if m.driver != nil {
		m.driver.Kill()
	}
}

// UniqueName is what Kubernetes calls the volume in a Node's status.
func UniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
}
