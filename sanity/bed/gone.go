package bed

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Terminate takes the machine away for good, and its Node and lease with it, as
// an autoscaler does with a cloud's instance.
func (n *Node) Terminate() {
	n.stage.T.Helper()
	n.stage.must("terminate "+n.Name, n.stage.Array.RemoveMachine(n.ID))
	n.stage.must("remove node "+n.Name, n.kube.Remove(n.stage.ctx()))
}

// Recreate deletes the PersistentVolume and its claim, whatever protects them,
// and makes both again for the same disk.
func (v *Volume) Recreate(o VolumeOptions) {
	v.stage.T.Helper()
	claims := v.stage.Client.CoreV1().PersistentVolumeClaims(v.stage.Name)
	v.stage.must("delete claim "+v.Claim(), ignoreNotFound(claims.Delete(v.stage.ctx(), v.Claim(), metav1.DeleteOptions{})))
	v.DeletePV()
	v.stage.WaitFor(60*time.Second, "claim "+v.Claim()+" is gone", func() bool {
		_, err := claims.Get(v.stage.ctx(), v.Claim(), metav1.GetOptions{})
		return err != nil && ignoreNotFound(err) == nil
	})
	if len(o.Modes) == 0 {
		o.Modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	v.CreatePV(o)
	v.createClaim(o)
	v.waitBound()
}
