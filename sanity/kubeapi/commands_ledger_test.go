package kubeapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

const repaired = ledger.RepairedAnnotation

// storedLedger is the ledger of a PersistentVolume, which has to be one.
func storedLedger(t *testing.T, pv string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Parse(readPV(t, pv).Annotations[ledger.Annotation])
	must(t, err)
	return l
}

func TestLedgerRepairShowsFirstAndWritesWithYes(t *testing.T) {
	single.take(t)
	whole.use(t)
	const garbled = `{"version":1,"holders":[{"nodeID":"i-gone","node":"gone","nodeUID":"u","bootID":"b","state":"released","contested":{"bootID":"b"}}` // cut off
	addPV(t, "garbled", garbled)
	addNode(t, "n1", "garbled")
	attach(t, "garbled", "n1", true)

	runAdmin(t, "ledger", "repair", "garbled").ends(t, 0).says(t, "is not a ledger", "node n1 (ID i-n1), held; named by VolumeAttachment, volumesInUse, volumesAttached",
		"node gone (ID i-gone), held, contested", "named only by the ledger that cannot be read", "Nothing was written", "csi-fencepost ledger repair garbled --yes")
	if got := readPV(t, "garbled").Annotations; got[ledger.Annotation] != garbled || got[repaired] != "" {
		t.Fatalf("without --yes it wrote: %v", got)
	}
	runAdmin(t, "ledger", "repair", "garbled", "--yes").ends(t, 0).says(t, "Repaired: ")
	l := storedLedger(t, "garbled")
	pv := readPV(t, "garbled")
	if l.Cluster != whole.cluster || l.PVUID != string(pv.UID) || l.Handle != "vol-of-garbled" || len(l.Holders) != 2 {
		t.Fatalf("not what should be there: %s", l)
	}
	if e := l.Get("i-n1"); e == nil || e.State != fence.Held || e.Token == "" || e.NodeName != "n1" || e.BootID != "boot-of-n1" {
		t.Errorf("the holder that Kubernetes names: %+v", e)
	}
	// What only the broken text names may hold it all the same: its state is not
	// believed, and that it was contested is.
	if e := l.Get("i-gone"); e == nil || e.State != fence.Held || e.Contest == nil || e.NodeName != "gone" || e.BootID != "b" {
		t.Errorf("the holder that only the broken ledger names: %+v", e)
	}
	var note ledger.Repair
	must(t, json.Unmarshal([]byte(pv.Annotations[repaired]), &note))
	if note.By == "" || note.At == "" || note.Was != garbled || note.Digest != ledger.DigestOf(pv.Annotations[ledger.Annotation]) {
		t.Errorf("the audit: %+v", note)
	}
	runAdmin(t, "ledger", "repair", "garbled", "--yes").ends(t, 1).says(t, "can be read, and names every node", "nothing to repair")
}

// The sidecar replaces it by itself, and asks the driver as it does, which nobody
// else can.
func TestLedgerRepairLeavesTheLedgerOfAnotherClusterToTheSidecar(t *testing.T) {
	single.take(t)
	whole.use(t)
	pv := addPV(t, "foreign", "")
	n := addNode(t, "n1", "foreign")
	attach(t, "foreign", "n1", true)
	text := strings.Replace(ledgerOf(pv, entry(n)), whole.cluster, "another-cluster", 1)
	annotatePV(t, "foreign", ledger.Annotation, text)
	runAdmin(t, "ledger", "repair", "foreign", "--yes").ends(t, 1).says(t, "set aside: it was written in another cluster", "nothing to repair", "the sidecar writes a new one by itself")
	runAdmin(t, "ledger", "repair", "--all", "--yes").ends(t, 0).says(t, "Every ledger can be read: there is nothing to repair")
	if got := readPV(t, "foreign").Annotations; got[ledger.Annotation] != text || got[repaired] != "" {
		t.Errorf("it was written: %v", got)
	}
}

// A VolumeAttachment that is attached to a node which the ledger lacks: somebody
// got past the guard.
func TestLedgerRepairAddsAHolderThatTheLedgerLacks(t *testing.T) {
	single.take(t)
	whole.use(t)
	pv := addPV(t, "bypassed", "")
	one, _ := addNode(t, "n1", "bypassed"), addNode(t, "n2")
	annotatePV(t, "bypassed", ledger.Annotation, ledgerOf(pv, entry(one)))
	runAdmin(t, "ledger", "repair", "bypassed", "--yes").ends(t, 1).says(t, "nothing to repair")
	attach(t, "bypassed", "n2", true)
	runAdmin(t, "ledger", "repair", "bypassed", "--yes").ends(t, 0).says(t, "The ledger lacks node n2 (ID i-n2), which VolumeAttachment names")
	l := storedLedger(t, "bypassed")
	if e := l.Get("i-n1"); e == nil || e.Token != "token-n1" || e.State != fence.Publishing {
		t.Errorf("what could be read was changed: %s", l)
	}
	if e := l.Get("i-n2"); e == nil || e.State != fence.Held {
		t.Errorf("the holder that it lacked is not there: %s", l)
	}
}

func TestLedgerRepairRefusesWhatItCannotKnow(t *testing.T) {
	single.take(t)
	whole.use(t)
	newer := `{"version":2,"holders":[]}`
	addPV(t, "newer", newer)
	addPV(t, "none", "")
	addPV(t, "broken", "{oops")
	runAdmin(t, "ledger", "repair", "newer", "--yes").ends(t, 1).says(t, "written by a newer csi-fencepost")
	if got := readPV(t, "newer").Annotations[ledger.Annotation]; got != newer {
		t.Errorf("a newer ledger was overwritten: %s", got)
	}
	runAdmin(t, "ledger", "repair", "none").ends(t, 1).says(t, "has no ledger: it is written at the next attach or detach")
	runAdmin(t, "ledger", "repair", "brokn").ends(t, 1).says(t, "there is no PersistentVolume brokn; did you mean broken?")
	runAdmin(t, "ledger", "repair").ends(t, 2).says(t, "name the PersistentVolumes, or give --all")

	blind := person(t, "blind", reads("", "persistentvolumes", "nodes", "namespaces"), reads("storage.k8s.io", "csinodes", "csidrivers"), reads("coordination.k8s.io", "leases"))
	runAs(t, blind, "ledger", "repair", "broken", "--yes").ends(t, 1).says(t, "list volumeattachments")
	if got := readPV(t, "broken").Annotations[ledger.Annotation]; got != "{oops" {
		t.Errorf("written by somebody who cannot see who holds it: %s", got)
	}
}

func TestLedgerExportPrintsEveryLedgerAndWhatIsWrongWithIt(t *testing.T) {
	single.take(t)
	whole.use(t)
	pv := addPV(t, "good", "")
	n := addNode(t, "n1")
	annotatePV(t, "good", ledger.Annotation, ledgerOf(pv, entry(n)))
	addPV(t, "bad", "{oops")
	addPV(t, "none", "")
	old := addPV(t, "old", "")
	annotatePV(t, "old", ledger.Annotation, strings.Replace(ledgerOf(old), string(old.UID), "another-uid", 1))

	var export struct {
		Kind, Cluster string
		Items         []struct {
			PersistentVolume, State, Why, Text string
			Ledger                             *ledger.Ledger
		}
	}
	must(t, json.Unmarshal([]byte(runAdmin(t, "ledger", "export", "-o", "json").ends(t, 0).stdout), &export))
	if export.Kind != "LedgerExport" || export.Cluster != whole.cluster || len(export.Items) != 3 {
		t.Fatalf("not what is there: %+v", export)
	}
	bad, good, aside := export.Items[0], export.Items[1], export.Items[2]
	if bad.PersistentVolume != "bad" || bad.State != "garbled" || bad.Text != "{oops" || bad.Why == "" {
		t.Errorf("garbled: %+v", bad)
	}
	if good.PersistentVolume != "good" || good.State != "present" || good.Ledger.Get("i-n1") == nil {
		t.Errorf("good: %+v", good)
	}
	if aside.State != "setAside" || !strings.Contains(aside.Why, "restored from a backup") {
		t.Errorf("set aside: %+v", aside)
	}
	runAdmin(t, "ledger", "export", "good").ends(t, 0).says(t, "kind: LedgerExport", "nodeID: i-n1").saysNot(t, "oops")
}
