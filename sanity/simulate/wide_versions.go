package simulate

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Two versions of csi-fencepost may run side by side in the wide world, as while a Deployment
// rolls. The next one is this one with a field more in each entry of a ledger, which this one
// does not know and has to keep for as long as the entry is of one publication.

const hintOfNext = `{"hint":"of the next version"}`

// inItsVersion is a patch of a ledger as the process's version writes it, and tests what
// it has written before; what stands there, it has read.
func (p *Process) inItsVersion(pv string, data []byte) []byte {
	if !p.next {
		return data
	}
	var ops []patchOperation
	if json.Unmarshal(data, &ops) != nil {
		return data
	}
	stands := ""
	if now := p.w.peekVolume(pv); now != nil {
		stands = now.Annotations[ledger.Annotation]
	}
	for i, op := range ops {
		var text string
		if json.Unmarshal(op.Value, &text) != nil {
			continue
		}
		if op.Op == "test" {
			if known, ok := p.w.hinted[text]; ok && text != stands {
				text = known
			}
		} else if l, err := ledger.Parse(text); err == nil {
			for i := range l.Holders {
				if e := &l.Holders[i]; e.Token != "" {
					e.Later = format.Later(hintOfNext)
				}
			}
			p.w.hinted[text] = l.String()
			text = l.String()
		}
		ops[i].Value, _ = json.Marshal(text)
	}
	out, err := json.Marshal(ops)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return out
}

// judgeFormat holds that what the next version wrote into an entry is there for as long as the
// entry, on whichever PersistentVolume of the disk: the next read merges what they say.
func (w *World) judgeFormat(pv *corev1.PersistentVolume) {
	v := w.volume(handleOf(pv.Name))
	if v == nil {
		return
	}
	kept := map[string]bool{}
	for _, e := range w.ledger(v) {
		if len(e.Later) > 0 {
			kept[e.Token], w.hints[e.Token] = true, true
		}
	}
	// Another PersistentVolume may have an entry as it was before the next version wrote it.
	l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
	if err != nil {
		return
	}
	for _, e := range l.Holders {
		if len(e.Later) == 0 && w.hints[e.Token] && !kept[e.Token] {
			w.violation("format", fmt.Sprintf("the entry of %s of volume %s has lost what the next version wrote into it", e.NodeID, v.name))
		}
	}
}
