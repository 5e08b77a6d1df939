package bed

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// clear takes what a story that ended well leaves on its control plane: a hundred
// stories share one, and for as long as a dead Node is there each sidecar asks for its
// lease and the attach-detach controller goes on detaching. The records of its nodes go
// with them: so many fences in an hour are too many for the nodes that are left. After a
// failure all stays, to be looked at.
func (s *Stage) clear() {
	if s.T.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// In this order: nothing that goes is made anew by what still wants it.
	if err := errors.Join(s.clearWorkloads(ctx), s.clearNodes(ctx), s.clearVolumes(ctx)); err != nil {
		s.T.Logf("%s: what is left on the control plane: %v", s.Name, err)
	}
}

func (s *Stage) clearWorkloads(ctx context.Context) error {
	background, now := metav1.DeletePropagationBackground, int64(0)
	deep, every := metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}
	apps := s.Client.AppsV1()
	return errors.Join(
		apps.Deployments(s.Name).DeleteCollection(ctx, deep, every),
		apps.StatefulSets(s.Name).DeleteCollection(ctx, deep, every),
		apps.DaemonSets(s.Name).DeleteCollection(ctx, deep, every),
		s.Client.CoreV1().Pods(s.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, every))
}

func (s *Stage) clearNodes(ctx context.Context) (err error) {
	leases := s.Client.CoordinationV1()
	for _, n := range s.Nodes {
		err = errors.Join(err,
			ignoreNotFound(s.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})),
			ignoreNotFound(leases.Leases(corev1.NamespaceNodeLease).Delete(ctx, n.Name, metav1.DeleteOptions{})),
			ignoreNotFound(leases.Leases(config.Default().Fencing.Namespace).Delete(ctx, record.LeaseName(n.Name), metav1.DeleteOptions{})))
	}
	return err
}

// clearVolumes also takes the finalizers off: who would take them has ended.
func (s *Stage) clearVolumes(ctx context.Context) error {
	err := s.Client.CoreV1().PersistentVolumeClaims(s.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	volumes := s.Client.CoreV1().PersistentVolumes()
	all, failed := volumes.List(ctx, metav1.ListOptions{})
	if failed != nil {
		return errors.Join(err, failed)
	}
	for _, v := range all.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == s.Name {
			err = errors.Join(err, ignoreNotFound(volumes.Delete(ctx, v.Name, metav1.DeleteOptions{})))
			_, failed := volumes.Patch(ctx, v.Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
			err = errors.Join(err, ignoreNotFound(failed))
		}
	}
	attachments := s.Client.StorageV1().VolumeAttachments()
	attached, failed := attachments.List(ctx, metav1.ListOptions{})
	if failed != nil {
		return errors.Join(err, failed)
	}
	for _, a := range attached.Items {
		if a.Spec.Attacher == s.Driver {
			err = errors.Join(err, ignoreNotFound(attachments.Delete(ctx, a.Name, metav1.DeleteOptions{})))
			_, failed := attachments.Patch(ctx, a.Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
			err = errors.Join(err, ignoreNotFound(failed))
		}
	}
	return err
}

var noFinalizers = []byte(`{"metadata":{"finalizers":null}}`)
