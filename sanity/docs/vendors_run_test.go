package main_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// The vendor's example is run, before the reference driver and the modelled API
// server (sanity/kubeapi holds that one against a real one): it publishes,
// and keeps a second node out.
func TestTheVendorsExampleGuards(t *testing.T) {
	const handle = "vol-1"
	ctx, stop := context.WithCancel(t.Context())
	disks := array.New(array.Options{})
	t.Cleanup(disks.Close)
	api := apiserver.New(apiserver.Options{})
	driver := disks.DriverName()
	volume := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
	for _, node := range []string{"n1", "n2"} {
		if err := disks.AddMachine("id-" + node); err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Status.NodeInfo.BootID = "boot-of-" + node
		if node == "n1" {
			n.Status.VolumesInUse = []corev1.UniqueVolumeName{volume}
		}
		apiserver.Put(api, n)
		apiserver.Put(api, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id-" + node}}}})
	}
	if err := disks.CreateVolume(handle, array.VolumeOptions{}); err != nil {
		t.Fatal(err)
	}
	apiserver.Put(api, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}}})

	folder := t.TempDir()
	own, guarded := filepath.Join(folder, "driver.sock"), filepath.Join(folder, "csi.sock")
	if err := disks.Serve(ctx, own); err != nil {
		t.Fatal(err)
	}
	conn, err := proxy.Dial(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ended := make(chan error, 1)
	go func() { ended <- serveGuarded(ctx, api.Config("vendor", nil), conn, guarded) }()
	attacher, err := proxy.Dial(ctx, guarded) // waits until it is served
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { attacher.Close() })
	publish := func(node string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := spec.NewControllerClient(attacher).ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: "id-" + node,
			VolumeCapability: &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
				AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}})
		return err
	}
	if err := publish("n1"); err != nil {
		t.Errorf("to the first node: %v", err)
	}
	if err := publish("n2"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "n1") {
		t.Errorf("to a second one: %v", err)
	}
	if at := disks.Attached(handle); len(at) != 1 || at[0] != "id-n1" {
		t.Errorf("attached to %v", at)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the example ended with %v", err)
	}
}
