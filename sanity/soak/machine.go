package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const (
	// suspectAfter is the shortest that the configuration takes.
	suspectAfter = 12 * time.Second
	// renewEvery is what a kubelet does every 10 s: a machine that boots is to be
	// heard soon.
	renewEvery = 4 * time.Second
)

// machine is a node: its kubelet, played here, and its power.
type machine struct {
	*ground
	name, id, uuid string

	mu    sync.Mutex
	power bool
	boots int
}

// newMachine boots a machine and registers it.
func (g *ground) newMachine(ctx context.Context, name string) (*machine, error) {
	m := &machine{ground: g, name: "soak-" + name, id: "id-" + name, power: true, boots: 1,
		uuid: fmt.Sprintf("4c4c4544-004b-4a10-8056-%012x", len(g.all)+1)}
	_, csiErr := g.client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: g.stage.Driver, NodeID: m.id}}}}, metav1.CreateOptions{})
	_, nodeErr := g.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}, metav1.CreateOptions{})
	_, leaseErr := g.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &m.name}}, metav1.CreateOptions{})
	return m, errors.Join(g.stage.Array.AddMachine(m.id), csiErr, nodeErr, leaseErr, m.ready(ctx))
}

// run renews the lease while the machine has power.
func (m *machine) run(ctx context.Context) error {
	for {
		if m.On() {
			if err := m.renew(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("lease of %s: %w", m.name, err)
			}
		}
		if pause(ctx, renewEvery) != nil {
			return nil
		}
	}
}

func (m *machine) renew(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	_, err := m.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, m.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// ready is what a kubelet says of a machine that has just booted: nothing is in use.
func (m *machine) ready(ctx context.Context) error {
	now := metav1.Now()
	return m.status(ctx, map[string]any{
		"nodeInfo": map[string]any{"bootID": fmt.Sprintf("boot-%d-of-%s", m.boots, m.id), "systemUUID": m.uuid},
		"conditions": []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: now, LastTransitionTime: now}},
		"volumesInUse": nil, "volumesAttached": nil,
	})
}

// lists is what controller and kubelet say of the lane's volume; a machine without
// power goes on saying that it is in use.
func (m *machine) lists(ctx context.Context, v *bed.Volume, attached bool) error {
	name := "kubernetes.io/csi/" + m.stage.Driver + "^" + v.Handle
	var inUse []string
	var on []corev1.AttachedVolume
	if attached {
		inUse, on = []string{name}, []corev1.AttachedVolume{{Name: corev1.UniqueVolumeName(name)}}
	}
	status := map[string]any{"volumesAttached": on}
	if m.On() {
		status["volumesInUse"] = inUse
	}
	return m.status(ctx, status)
}

func (m *machine) status(ctx context.Context, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = m.client.CoreV1().Nodes().Patch(ctx, m.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// On and Set are a BMC's power switch.
func (m *machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.power
}

func (m *machine) Set(on bool) error {
	if on {
		return m.boot(context.Background())
	}
	return m.powerOff()
}

func (m *machine) powerOff() error {
	m.mu.Lock()
	m.power = false
	m.mu.Unlock()
	return errors.Join(m.stage.Array.PowerOff(m.id), m.agent.tell(m, false))
}

// boot starts the machine under a new boot ID, and its kubelet says so.
func (m *machine) boot(ctx context.Context) error {
	if err := errors.Join(m.stage.Array.PowerOn(m.id), m.agent.tell(m, true)); err != nil {
		return err
	}
	m.mu.Lock()
	m.power = true
	m.boots++
	m.mu.Unlock()
	return errors.Join(m.ready(ctx), m.renew(ctx))
}

// tainted tells whether the out-of-service taint is on.
func (m *machine) tainted(ctx context.Context) (bool, error) {
	n, err := m.client.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return bed.OutOfService(n), nil
}
