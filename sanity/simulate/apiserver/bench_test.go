package apiserver

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func benchNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-1", SystemUUID: "system-1"},
			Conditions:   []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/d.example^vol-1"}}}
}

// What a schedule of the simulation consists of.
func BenchmarkRequest(b *testing.B) {
	s, c := newServer(b)
	for i := range 10 {
		Put(s, benchNode(fmt.Sprint("n", i)))
	}
	Put(s, aVolume("pv1"))
	Put(s, aLease("l"))
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("list of 10", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("JSON patch", func(b *testing.B) {
		b.ReportAllocs()
		pv, _ := Find[*corev1.PersistentVolume](s, "", "pv1")
		for i := 0; b.Loop(); i++ {
			body := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"add","path":"/metadata/annotations","value":{"a":"%d"}}]`, pv.UID, i)
			if _, err := c.CoreV1().PersistentVolumes().Patch(ctx, "pv1", types.JSONPatchType, []byte(body), metav1.PatchOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		leases := c.CoordinationV1().Leases(metav1.NamespaceDefault)
		l, err := leases.Get(ctx, "l", metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			l.Spec.HolderIdentity = new(fmt.Sprint(i))
			if l, err = leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a schedule costs before its first step.
func BenchmarkNewServer(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		New(Options{})
	}
}
