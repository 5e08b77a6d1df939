package ledger

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// repairedWith notes a repair that wrote that text.
func repairedWith(text string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		note, err := json.Marshal(Repair{At: "2026-01-01T00:00:00Z", By: "alice", Digest: DigestOf(text)})
		if err != nil {
			panic(err)
		}
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, RepairedAnnotation, string(note))
	}
}

// A repair cannot ask the driver. Whoever writes next has to.
func TestALedgerIsRepairedUntilTheNextWrite(t *testing.T) {
	pv := newPV("pv", carrying(entry("i-1", fence.Held)))
	repairedWith(pv.Annotations[Annotation])(pv)
	s := newStore(newAPIServer(t, pv))
	b := read(t, s, "pv")
	if !b.Repaired || !b.Unasked() || b.Missing {
		t.Fatalf("nobody has written since the repair: %+v", b)
	}
	if same, err := s.Write(t.Context(), b, b.Ledger); err != nil || !same.Repaired {
		t.Errorf("a write that changes nothing leaves the repair's text: %+v, %v", same, err)
	}
	next, err := put(t, s, b, entry("i-2", fence.Publishing))
	if err != nil {
		t.Fatal(err)
	}
	if again := read(t, s, "pv"); next.Repaired || again.Repaired || again.Unasked() {
		t.Errorf("it was written since: %+v, %+v", next, again)
	}
}

func TestALedgerThatNoRepairWroteIsNotRepaired(t *testing.T) {
	carries := carrying(entry("i-1", fence.Held))
	for name, note := range map[string]func(*corev1.PersistentVolume){
		"no note":             func(*corev1.PersistentVolume) {},
		"of another text":     repairedWith("{}"),
		"without a digest":    func(pv *corev1.PersistentVolume) { pv.Annotations[RepairedAnnotation] = `{"by":"alice"}` },
		"that is no JSON":     func(pv *corev1.PersistentVolume) { pv.Annotations[RepairedAnnotation] = `{` },
		"with a wrong digest": func(pv *corev1.PersistentVolume) { pv.Annotations[RepairedAnnotation] = `{"sha256":7}` },
	} {
		if b := read(t, newStore(newAPIServer(t, newPV("pv", carries, note))), "pv"); b.Repaired || b.Unasked() {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// Of two PVs with one handle the driver was asked for neither's if one was repaired.
func TestOneRepairedLedgerOfTwoIsEnoughToAskAgain(t *testing.T) {
	one, two := newPV("pv-1", carrying(entry("i-1", fence.Held))), newPV("pv-2", carrying(entry("i-2", fence.Held)))
	repairedWith(one.Annotations[Annotation])(one)
	if b := read(t, newStore(newAPIServer(t, one, two)), "pv-1", "pv-2"); !b.Repaired {
		t.Errorf("%+v", b)
	}
}
