package ledger

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Whatever stands in the annotation of a repair: a repair's own note has the driver asked again before
// the next write, whoever repaired and whatever stood there before; another text does so only where it
// has the digest of the very ledger; and none changes what the ledgers say, or whether one is there.
func FuzzRepaired(f *testing.F) {
	pv := newPV("pv", carrying(entry("i-1", fence.Held), entry("i-2", fence.TakenOver)))
	whole := pv.Annotations[Annotation]
	digest := DigestOf(whole)
	for _, note := range []string{
		``, `{`, `null`, `[]`, `{"sha256":7}`, `{"sha256":""}`, `{"at":7,"sha256":"` + digest + `"}`, `{"sha256":"` + digest + `"} {}`,
		`{"by":"` + digest + `"}`, `{"sha256":"` + strings.ToUpper(digest) + `"}`, `{"sha256":"x","SHA256":"` + digest + `"}`, `{"sha256":"` + digest + `"}`,
	} {
		f.Add(whole, note, "alice", "{")
	}
	f.Add("", `{"sha256":"`+DigestOf("")+`"}`, "\x00\xff\u2028", strings.Repeat("\"", 1000))
	f.Add(whole[:20], `{"sha256":"`+DigestOf(whole[:20])+`"}`, "", "")
	store := &Store{cluster: cluster, ids: &csi.Identity{Driver: driver}}
	f.Fuzz(func(t *testing.T, text, note, by, was string) {
		open := func(annotations map[string]string) (*Book, error) {
			pv := newPV("pv", func(pv *corev1.PersistentVolume) { pv.Annotations = maps.Clone(annotations) })
			return store.open(handle, []*corev1.PersistentVolume{pv})
		}
		bare, bareErr := open(map[string]string{Annotation: text})
		own, err := json.Marshal(Repair{At: "2026-01-01T00:00:00Z", By: by, Was: was, Digest: DigestOf(text)})
		if err != nil {
			t.Fatal(err)
		}
		for _, note := range []string{note, string(own)} {
			book, err := open(map[string]string{Annotation: text, RepairedAnnotation: note})
			if (err == nil) != (bareErr == nil) || err != nil && err.Error() != bareErr.Error() {
				t.Fatalf("with the note: %v, without: %v", err, bareErr)
			}
			if err != nil {
				continue
			}
			if !reflect.DeepEqual(book.Ledger, bare.Ledger) || book.Missing != bare.Missing || !reflect.DeepEqual(book.SetAside, bare.SetAside) || !reflect.DeepEqual(book.Before, bare.Before) {
				t.Errorf("with the note %s: %+v, without: %+v", note, book, bare)
			}
			if book.Repaired && (book.Missing || !book.Unasked() || !hasDigest(note, DigestOf(text))) || note == string(own) && !book.Missing && !book.Repaired {
				t.Errorf("the note %s: repaired %v, unasked %v, missing %v", note, book.Repaired, book.Unasked(), book.Missing)
			}
		}
		if other := newPV("pv"); repaired(withNote(other, string(own)), text+" ") {
			t.Errorf("the note %s is of another ledger", own)
		}
	})
}

func withNote(pv *corev1.PersistentVolume, note string) *corev1.PersistentVolume {
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, RepairedAnnotation, note)
	return pv
}

// hasDigest: the note is an object with that digest in its place.
func hasDigest(note, digest string) bool {
	var object map[string]any
	if json.Unmarshal([]byte(note), &object) != nil {
		return false
	}
	for key, value := range object {
		if strings.EqualFold(key, "sha256") && value == digest {
			return true
		}
	}
	return false
}
