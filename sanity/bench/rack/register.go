package rack

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const leaseSeconds = int32(40)

// register makes the machine's Node, CSINode and Lease.
func (m *Machine) register(ctx context.Context) error {
	labels := map[string]string{corev1.LabelHostname: m.Name, corev1.LabelOSStable: "linux"}
	for key, value := range m.Labels {
		labels[key] = value
	}
	node, err := m.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: labels,
		// Without it the attach-detach controller leaves the node to its kubelet.
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making the Node: %w", err)
	}
	m.uid = node.UID
	// A patch: controllers change the new Node's taints meanwhile, and a kubelet
	// may not take that back.
	status, err := json.Marshal(map[string]any{"status": m.status()})
	if err != nil {
		return err
	}
	if _, err := m.Client.CoreV1().Nodes().Patch(ctx, m.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("status of the Node: %w", err)
	}
	csi := &storagev1.CSINode{ObjectMeta: m.owned(), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: m.Array.DriverName(), NodeID: m.ID}}}}
	if _, err := m.Client.StorageV1().CSINodes().Create(ctx, csi, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the CSINode: %w", err)
	}
	seconds, now := leaseSeconds, metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: m.owned(), Spec: coordinationv1.LeaseSpec{HolderIdentity: &m.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}}
	if _, err := m.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the Lease: %w", err)
	}
	return nil
}

// owned is the metadata of an object that goes with the Node.
func (m *Machine) owned() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.Name, UID: m.uid}}}
}

func (m *Machine) status() (s corev1.NodeStatus) {
	s.NodeInfo.BootID, s.NodeInfo.SystemUUID, s.NodeInfo.MachineID = m.BootID, m.SystemUUID, "machine-"+m.Name
	s.NodeInfo.KubeletVersion, s.NodeInfo.OperatingSystem = "simulated", "linux"
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: m.Name}}
	s.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"), corev1.ResourcePods: resource.MustParse("110")}
	s.Allocatable = s.Capacity
	s.Conditions = m.conditions()
	return s
}

// conditions are the machine's, with a heartbeat of now.
func (m *Machine) conditions() (all []corev1.NodeCondition) {
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: corev1.ConditionTrue,
		corev1.NodeMemoryPressure: corev1.ConditionFalse, corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse} {
		all = append(all, corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: metav1.Now(), LastTransitionTime: m.booted})
	}
	return all
}

func (m *Machine) renewLease(ctx context.Context) {
	patch := `{"spec":{"renewTime":"` + time.Now().UTC().Format(metav1.RFC3339Micro) + `"}}`
	_, _ = m.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, m.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
}
