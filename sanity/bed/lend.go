package bed

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// Lend makes a volume of this stage's driver whose claim is in another stage's
// namespace, so that a pod there can use volumes of both drivers.
func (s *Stage) Lend(to *Stage, name string) *Volume {
	s.T.Helper()
	v := &Volume{Name: s.Name + "-" + name, Handle: "vol-" + s.Name + "-" + name, stage: s}
	s.must("disk", s.Array.CreateVolume(v.Handle, array.VolumeOptions{}))
	o := VolumeOptions{Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	v.CreatePV(o)
	v.patchPV(`{"spec":{"claimRef":{"namespace":` + quote(to.Name) + `}}}`)
	lent := &Volume{Name: v.Name, stage: to}
	lent.createClaim(o)
	lent.waitBound()
	return v
}
