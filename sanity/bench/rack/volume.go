package rack

import (
	"context"
	"fmt"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume is one that a pod uses through a claim.
type volume struct {
	name, handle string // in the pod; of the driver
	unique       corev1.UniqueVolumeName
	mounted      bool
}

// capability is a kubelet's for ReadWriteOnce, where the driver knows
// SINGLE_NODE_MULTI_WRITER.
var capability = &spec.VolumeCapability{
	AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
}

// volumesOf reads the pod's claims and their PersistentVolumes. It is never nil
// without an error.
func (k *kubelet) volumesOf(ctx context.Context, pod *corev1.Pod) ([]*volume, error) {
	found := []*volume{}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := k.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		pv, err := k.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		source := pv.Spec.CSI
		if source == nil || source.Driver != k.Array.DriverName() {
			return nil, fmt.Errorf("pod %s: PersistentVolume %s is not of driver %s", pod.Name, pv.Name, k.Array.DriverName())
		}
		found = append(found, &volume{name: v.Name, handle: source.VolumeHandle, unique: UniqueName(source.Driver, source.VolumeHandle)})
	}
	return found, nil
}

func (k *kubelet) paths(pod *corev1.Pod, v *volume) (staging, target string) {
	return filepath.Join(k.Folder, "staging", v.handle), filepath.Join(k.Folder, "pods", string(pod.UID), v.name)
}

// mount stages the volume and publishes it to the pod's container, which writes
// from then on.
func (k *kubelet) mount(ctx context.Context, pod *corev1.Pod, v *volume) error {
	staging, target := k.paths(pod, v)
	v.mounted = true // as far as anybody knows, also if an answer is lost
	if _, err := k.node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: v.handle, StagingTargetPath: staging, VolumeCapability: capability}); err != nil {
		return err
	}
	_, err := k.node.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{VolumeId: v.handle, StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability})
	return err
}

// unmount undoes mount.
func (k *kubelet) unmount(ctx context.Context, pod *corev1.Pod, v *volume) error {
	if !v.mounted {
		return nil
	}
	staging, target := k.paths(pod, v)
	if _, err := k.node.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: v.handle, TargetPath: target}); err != nil {
		return err
	}
	if _, err := k.node.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: v.handle, StagingTargetPath: staging}); err != nil {
		return err
	}
	v.mounted = false
	return nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // or another of its name
		return nil
	}
	return err
}
