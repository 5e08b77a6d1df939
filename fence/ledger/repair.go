package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// RepairedAnnotation on a PersistentVolume says who had its ledger rebuilt, when,
// and what stood there before. It is written with the ledger, in one step.
const RepairedAnnotation = "csi-fencepost.io/repaired"

// A Repair is the text of RepairedAnnotation.
type Repair struct {
	At string `json:"at"` // RFC 3339, on the clock of who repaired
	By string `json:"by"`
	// Was is what stood there, clipped; empty: nothing did.
	Was string `json:"was,omitempty"`
	// Digest of the text of the ledger that was written: a ledger with another
	// one was written since. Empty: the ledger was taken off.
	Digest string `json:"sha256,omitempty"`
}

// DigestOf is the SHA-256 of a ledger's text, in hexadecimal.
func DigestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// repaired tells whether text, the PV's ledger, is as a repair has left it.
func repaired(pv *corev1.PersistentVolume, text string) bool {
	var r Repair
	err := json.Unmarshal([]byte(pv.Annotations[RepairedAnnotation]), &r)
	return err == nil && r.Digest == DigestOf(text)
}
