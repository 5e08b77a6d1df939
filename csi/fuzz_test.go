package csi

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/csi-translation-lib/plugins"
)

var fuzzedDrivers = []string{anyDriver, ebsDriver, gceDriver, plugins.AzureDiskDriverName, plugins.CinderDriverName, plugins.VSphereDriverName}

func text(f *testing.F, object any) []byte {
	f.Helper()
	out, err := json.Marshal(object)
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// Whatever a PersistentVolume says: it is read twice alike, what was read from
// the cache is not changed, and a volume of another driver is not taken for one of
// this.
func FuzzPersistentVolume(f *testing.F) {
	f.Add(text(f, csiPV(anyDriver, "vol-1")))
	f.Add(text(f, ebsPV("aws://us-east-1a/vol-0a")))
	f.Add(text(f, gcePV("disk-1", "us-central1-a__us-central1-b", corev1.ReadWriteMany)))
	f.Add([]byte(`{"spec":{"azureDisk":{"diskName":"d","diskURI":"/subscriptions/s"}}}`))
	f.Add([]byte(`{"spec":{"vsphereVolume":{"volumePath":"[ds] x.vmdk"},"accessModes":["ReadWriteOncePod"]}}`))
	f.Add([]byte(`{"spec":{"cinder":{"volumeID":"c"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"failure-domain.beta.kubernetes.io/zone","operator":"In","values":[]}]}]}}}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		var pv corev1.PersistentVolume
		if json.Unmarshal(object, &pv) != nil {
			return
		}
		before := pv.DeepCopy()
		for _, driver := range fuzzedDrivers {
			ids := &Identity{Driver: driver}
			handle, ok := ids.PVHandle(&pv)
			if again, same := ids.PVHandle(&pv); again != handle || same != ok {
				t.Errorf("driver %s: read as %q and as %q", driver, handle, again)
			}
			if ok == (handle == "") {
				t.Errorf("driver %s: its volume (%v) with handle %q", driver, ok, handle)
			}
			if c := pv.Spec.CSI; c != nil && ok && (c.Driver != driver || c.VolumeHandle != handle) {
				t.Errorf("driver %s: %+v is read as %q", driver, c, handle)
			}
			if !ok && ids.PVWriters(&pv) != Unknown {
				t.Errorf("driver %s: the writers of another's volume are known", driver)
			}
			va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &pv.Spec}}}
			if _, inline := ids.InlineHandle(va); inline && pv.Spec.CSI != nil && !ok {
				t.Errorf("driver %s: inline it is its volume, as a PV not", driver)
			}
		}
		if !reflect.DeepEqual(before, &pv) {
			t.Errorf("what was read has been changed from %+v to %+v", before, pv)
		}
	})
}

// Whatever a Node lists: a volume is listed if and only if its handle is among
// the handles, and another driver's never are.
func FuzzNode(f *testing.F) {
	node := &corev1.Node{}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d.example.com^vol-1", "kubernetes.io/csi/" + gceDriver + "^projects/UNSPECIFIED/zones/z/disks/d"}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d.example.com^a^b"}}
	f.Add(text(f, node), "vol-1")
	f.Add([]byte(`{"status":{"volumesInUse":["kubernetes.io/csi/d.example.com^","kubernetes.io/csi/d.example.com","x"]}}`), "")
	f.Fuzz(func(t *testing.T, object []byte, handle string) {
		var node corev1.Node
		if json.Unmarshal(object, &node) != nil {
			return
		}
		for _, driver := range fuzzedDrivers {
			ids := &Identity{Driver: driver}
			handles := ids.NodeHandles(&node)
			for _, h := range handles {
				if inUse, attached := ids.NodeLists(&node, h); !inUse && !attached {
					t.Errorf("driver %s: %q is among the handles, and not listed", driver, h)
				}
			}
			inUse, attached := ids.NodeLists(&node, handle)
			among := slices.ContainsFunc(handles, func(h string) bool { return ids.Same(h, handle) })
			if (inUse || attached) != among {
				t.Errorf("driver %s: %q is listed (%v, %v), and among the handles: %v", driver, handle, inUse, attached, among)
			}
		}
	})
}

// Handles are compared alike from both sides, and found by their key.
func FuzzHandles(f *testing.F) {
	f.Add("vol-1", "vol-1")
	f.Add("projects/p/zones/z/disks/d", "projects/UNSPECIFIED/zones/z/disks/d")
	f.Add("projects/p/zones/z/disks/d", "projects/UNSPECIFIED/regions/z/disks/d/")
	f.Add("", "^")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, driver := range fuzzedDrivers {
			ids := &Identity{Driver: driver}
			same := ids.Same(a, b)
			if same != ids.Same(b, a) || ids.Same(a, a) != (a != "") {
				t.Errorf("driver %s: %q and %q are one volume from one side only", driver, a, b)
			}
			if same && ids.Key(a) != ids.Key(b) || ids.Key(ids.Key(a)) != ids.Key(a) {
				t.Errorf("driver %s: %q and %q have the keys %q and %q", driver, a, b, ids.Key(a), ids.Key(b))
			}
			if a != b && same && driver != gceDriver {
				t.Errorf("driver %s: %q and %q are one volume", driver, a, b)
			}
			if back, ok := ids.HandleOf(ids.UniqueName(a)); back != a || ok != (a != "") {
				t.Errorf("driver %s: %q comes back as %q", driver, a, back)
			}
		}
	})
}

// Whatever a driver says in an error: what goes on carries no secret.
func FuzzMessages(f *testing.F) {
	f.Add("cannot log in with hunter22", "hunter22", "other")
	f.Add(strings.Repeat("\u2028é", 500), "\u2028", "")
	f.Add("abcabcd", "abc", "abcd")
	f.Fuzz(func(t *testing.T, said, one, other string) {
		clean := Redact(said, map[string]string{"a": one, "b": other})
		for _, secret := range []string{one, other} {
			// What takes a secret's place may spell another one.
			if secret != "" && !strings.ContainsAny(one+other, "*") && !strings.ContainsAny(secret, "striped") && strings.Contains(clean, secret) {
				t.Errorf("%q is still in %q", secret, clean)
			}
		}
	})
}

// Whatever a driver lists: of a volume exactly the nodes are named that stand
// beside it in the list.
func FuzzListVolumes(f *testing.F) {
	wire, err := proto.Marshal(&spec.ListVolumesResponse{Entries: []*spec.ListVolumesResponse_Entry{
		listed("vol-1", "b", "", "a", "b"), listed("vol-2", "c"), listed(""), {}, listed("vol-1", "d")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire, "vol-1")
	f.Add([]byte{0x0a, 0x00, 0x12, 0x01, 'x'}, "")
	var page atomic.Pointer[spec.ListVolumesResponse]
	d := lister(f, func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) { return page.Load(), nil })
	f.Fuzz(func(t *testing.T, wire []byte, volume string) {
		var answer spec.ListVolumesResponse
		if proto.Unmarshal(wire, &answer) != nil || !utf8.ValidString(volume) {
			return
		}
		answer.NextToken = ""
		page.Store(&answer)
		got, told, err := d.PublishedNodes(t.Context(), volume)
		if err != nil || !told {
			t.Fatalf("%v, %v", told, err)
		}
		var want []string
		for _, e := range answer.GetEntries() {
			for _, id := range e.GetStatus().GetPublishedNodeIds() {
				if e.GetVolume().GetVolumeId() == volume && volume != "" && id != "" && !slices.Contains(want, id) {
					want = append(want, id)
				}
			}
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("volume %q is published to %q, and the list says %q", volume, got, want)
		}
	})
}

// lister is a driver that lists as the function does.
func lister(f *testing.F, list func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error)) *Driver {
	f.Helper()
	dir, err := os.MkdirTemp("", "list") // short: a socket is in it
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		f.Fatal(err)
	}
	d := &testDriver{name: anyDriver, capabilities: capabilities{listVolumes, listPublished}, list: list}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, d)
	spec.RegisterControllerServer(server, d)
	go server.Serve(listener)
	f.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	driver, err := NewDriver(f.Context(), conn)
	if err != nil {
		f.Fatal(err)
	}
	return driver
}
