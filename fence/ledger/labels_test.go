package ledger

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

const gceDriver = "pd.csi.storage.gke.io"

// disk is an in-tree GCE PD: its name is in its spec, its place in a label.
func disk(name, pdName, zone string) *corev1.PersistentVolume {
	return newPV(name, func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: pdName}}
		labelled(zone)(pv)
	})
}

func labelled(zone string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Labels = map[string]string{corev1.LabelTopologyZone: zone}
		if zone == "" {
			pv.Labels = nil
		}
	}
}

func (a *apiServer) label(pv, zone string) {
	a.change(pv, func(pv *corev1.PersistentVolume) *corev1.PersistentVolume { labelled(zone)(pv); return pv })
}

// Each case has the holder written down in zone r-x-a; then the label changes, somebody else is written
// down by the handle that is asked for, and the label is put back.
func TestNoLabelHasAHolderForgotten(t *testing.T) {
	const inA, inB, inRegion = "projects/p/zones/r-x-a/disks/d", "projects/p/zones/r-x-b/disks/d", "projects/p/regions/r-x/disks/d"
	for _, test := range []struct{ name, zone, asked string }{
		{"as it was", "r-x-a", inA},
		{"another zone", "r-x-b", inB},
		{"a region", "r-x-a__r-x-b", inRegion},
		{"none", "", inA},
		{"another zone, which the caller has not seen", "r-x-b", inA},
		{"a region, which the caller has not seen", "r-x-a__r-x-b", inA},
		{"what cannot be read, which the caller has not seen", "a__b", inA},
		{"another zone, and back, which the caller has not seen", "r-x-a", inB},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPIServer(t, disk("pv", "d", "r-x-a"))
			s := New(a.client(), cluster, &csi.Identity{Driver: gceDriver})
			reads := func(handle string, want ...string) *Book {
				t.Helper()
				b, err := s.Read(t.Context(), handle, []string{"pv"})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range b.Ledger.Holders {
					got = append(got, e.NodeID)
				}
				if !slices.Equal(got, want) || b.Missing != (want == nil) || len(b.SetAside) != 0 {
					t.Fatalf("the ledger names %q, want %q; %+v", got, want, b)
				}
				return b
			}
			b := reads(inA)
			if _, err := put(t, s, b, entry("a", fence.Held)); err != nil {
				t.Fatal(err)
			}
			a.label("pv", test.zone)
			b = reads(test.asked, "a")
			if moved := test.name != "as it was"; b.Moved != moved || s.ids.Same(s.Disk(b), inA) != true || moved && !s.ids.Same(s.Disk(b), inB) {
				t.Errorf("moved: %v, to be looked for as %s", b.Moved, s.Disk(b))
			}
			if _, err := put(t, s, b, entry("b", fence.Held)); err != nil {
				t.Fatal(err)
			}
			a.label("pv", "r-x-a")
			b = reads(inA, "a", "b")
			if moved := test.name != "as it was" && test.name != "none"; moved && !b.Moved {
				t.Error("nobody knows by which handle they have it, and it is not said")
			}
			// Who is written down by nobody any more makes it what the label says.
			l := b.Ledger.Clone()
			l.Cut("a", "token-a")
			l.MarkTaken("b", "token-b", false)
			if _, err := s.Write(t.Context(), b, l); err != nil {
				t.Fatal(err)
			}
			if b = reads(inA, "b"); b.Moved {
				t.Error("it has moved for ever")
			}
		})
	}
}

// The first one is written down as well while the label says what the caller has not seen.
func TestTheFirstHolderIsWrittenDownWhateverTheLabelSays(t *testing.T) {
	a := newAPIServer(t, disk("pv", "d", "r-x-b"))
	s := New(a.client(), cluster, &csi.Identity{Driver: gceDriver})
	b, err := s.Read(t.Context(), "projects/p/zones/r-x-a/disks/d", []string{"pv"})
	if err != nil || len(b.PVs) != 1 || !b.Missing || !b.Moved {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := put(t, s, b, entry("a", fence.Held)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "pv", "a")
}

// A second PersistentVolume that has the handle still does not hide what the first one's ledger says by it.
func TestALedgerCountsByTheHandleOfBeforeBesideOneThatHasIt(t *testing.T) {
	const inA = "projects/p/zones/r-x-a/disks/d"
	a := newAPIServer(t, disk("one", "d", "r-x-a"), newPV("two", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = gceDriver, inA }))
	s := New(a.client(), cluster, &csi.Identity{Driver: gceDriver})
	reads := func() *Book {
		t.Helper()
		b, err := s.Read(t.Context(), inA, []string{"one", "two"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, err := put(t, s, reads(), entry("a", fence.Held)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "one", "a")
	a.label("one", "r-x-b")
	if b := reads(); b.Ledger.Get("a") == nil || !b.Moved || len(b.PVs) != 2 {
		t.Errorf("%+v", b)
	}
}

// What stood there before anybody was written down, or after everybody was cut, moves nobody.
func TestALedgerThatNamesNobodyGoesWithTheLabel(t *testing.T) {
	const inA, inB = "projects/p/zones/r-x-a/disks/d", "projects/p/zones/r-x-b/disks/d"
	a := newAPIServer(t, disk("one", "d", "r-x-a"), disk("two", "d", "r-x-b"))
	s := New(a.client(), cluster, &csi.Identity{Driver: gceDriver})
	reads := func(handle string, want ...string) *Book {
		t.Helper()
		b, err := s.Read(t.Context(), handle, []string{"one", "two"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, pv := range b.PVs {
			got = append(got, pv.Name)
		}
		if !slices.Equal(got, want) || b.Moved {
			t.Fatalf("%s: read %q, want %q; moved: %v", handle, got, want, b.Moved)
		}
		return b
	}
	b, err := put(t, s, reads(inA, "one"), entry("a", fence.Held))
	if err != nil {
		t.Fatal(err)
	}
	l := b.Ledger.Clone()
	l.Cut("a", "token-a")
	if _, err := s.Write(t.Context(), b, l); err != nil {
		t.Fatal(err)
	}
	a.label("one", "r-x-b")
	a.label("two", "r-x-a")
	reads(inA, "two")
	if _, err := put(t, s, reads(inB, "one"), entry("b", fence.Held)); err != nil {
		t.Fatal(err)
	}
	reads(inB, "one")
}

func TestDisksOfOneNameInTwoZonesAreTwoVolumes(t *testing.T) {
	const inA, inB = "projects/p/zones/r-x-a/disks/d", "projects/p/zones/r-x-b/disks/d"
	csiDisk := func(name, handle string) *corev1.PersistentVolume {
		return newPV(name, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = gceDriver, handle })
	}
	for name, pvs := range map[string][]*corev1.PersistentVolume{
		"in-tree":       {disk("one", "d", "r-x-a"), disk("two", "d", "r-x-b")},
		"CSI":           {csiDisk("one", inA), csiDisk("two", inB)},
		"one of either": {disk("one", "d", "r-x-a"), csiDisk("two", inB)},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, pvs...)
			s := New(a.client(), cluster, &csi.Identity{Driver: gceDriver})
			for pv, handle := range map[string]string{"one": inA, "two": inB} {
				for range 2 {
					b, err := s.Read(t.Context(), handle, []string{"one", "two"})
					if err != nil || len(b.PVs) != 1 || b.PVs[0].Name != pv || b.Moved {
						t.Fatalf("%s: %+v, %v", handle, b, err)
					}
					if _, err := put(t, s, b, entry(pv, fence.Held)); err != nil {
						t.Fatal(err)
					}
				}
				stands(t, a, pv, pv)
			}
		})
	}
}

// A ledger of another disk, or of another PersistentVolume, does not come to count by a label.
func TestALedgerOfAnotherDiskIsSetAsideWhateverTheLabelSays(t *testing.T) {
	for name, change := range map[string]func(*Ledger){
		"another disk":                nil,
		"another PersistentVolume":    func(l *Ledger) { l.Handle, l.PVUID = "projects/p/zones/r-x-b/disks/d", "another" },
		"what is no handle of a disk": func(l *Ledger) { l.Handle = "d" },
	} {
		t.Run(name, func(t *testing.T) {
			pv := disk("pv", "d", "r-x-a")
			l := ledgerOn(pv, entry("a", fence.Held))
			l.Driver, l.Handle = gceDriver, "projects/p/zones/r-x-a/disks/e"
			if change != nil {
				change(l)
			}
			annotated(l.String())(pv)
			s := New(newAPIServer(t, pv).client(), cluster, &csi.Identity{Driver: gceDriver})
			b, err := s.Read(t.Context(), "projects/p/zones/r-x-a/disks/d", []string{"pv"})
			if err != nil || !b.Missing || len(b.SetAside) != 1 || b.Moved {
				t.Errorf("%+v, %v", b, err)
			}
			if wantBefore := name == "another PersistentVolume"; slices.Equal(b.Before, []string{"a"}) != wantBefore {
				t.Errorf("before: %q", b.Before)
			}
		})
	}
}
