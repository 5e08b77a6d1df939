package csi

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

func TestWhatMayHaveASingleWriterIsGuarded(t *testing.T) {
	type mode = spec.VolumeCapability_AccessMode_Mode
	const newest = mode(99)
	want := map[mode]struct{ writable, readonly bool }{
		spec.VolumeCapability_AccessMode_UNKNOWN:                   {true, true},
		spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        {true, true},
		spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   {true, true},
		spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: {true, true},
		spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  {true, true},
		spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    {false, false},
		spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:  {true, false},
		spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   {false, false},
		newest: {true, true},
	}
	for number := range spec.VolumeCapability_AccessMode_Mode_name {
		if _, there := want[mode(number)]; !there {
			t.Errorf("mode %s is not judged here", mode(number))
		}
	}
	for m, want := range want {
		capability := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: m}}
		if got := SingleWriter(capability, false); got != want.writable {
			t.Errorf("%s: %v", m, got)
		}
		if got := SingleWriter(capability, true); got != want.readonly {
			t.Errorf("%s, read-only: %v", m, got)
		}
		if got := BesideAWriter(capability); got != (m == spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER) {
			t.Errorf("%s, beside a writer: %v", m, got)
		}
	}
	for _, capability := range []*spec.VolumeCapability{nil, {}} {
		if !SingleWriter(capability, false) || !SingleWriter(capability, true) {
			t.Errorf("%v is not guarded", capability)
		}
	}
}

func TestPVAccessModesAreMappedAsTheAttacherMapsThem(t *testing.T) {
	const rwo, rox, rwx, rwop = corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod
	tests := []struct {
		modes []corev1.PersistentVolumeAccessMode
		want  Writers
	}{
		{[]corev1.PersistentVolumeAccessMode{rwo}, Single},
		{[]corev1.PersistentVolumeAccessMode{rwop}, Single},
		{[]corev1.PersistentVolumeAccessMode{rwx}, Multi},
		{[]corev1.PersistentVolumeAccessMode{rox}, Multi},
		{[]corev1.PersistentVolumeAccessMode{rwo, rwx}, Multi},
		{[]corev1.PersistentVolumeAccessMode{rox, rwx}, Multi},
		{[]corev1.PersistentVolumeAccessMode{rwo, rox}, Unknown},
		{[]corev1.PersistentVolumeAccessMode{rwop, rwx}, Unknown},
		{[]corev1.PersistentVolumeAccessMode{"ReadWriteFew"}, Unknown},
		{nil, Unknown},
	}
	for _, test := range tests {
		got := PVSingleWriter(test.modes)
		if got != test.want {
			t.Errorf("%v: %s, want %s", test.modes, got, test.want)
		}
		if got.Guarded() != (test.want != Multi) {
			t.Errorf("%v: guarded %v", test.modes, got.Guarded())
		}
	}
}
