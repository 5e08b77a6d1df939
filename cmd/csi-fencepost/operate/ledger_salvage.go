package operate

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// idInText finds what looks like a holder's node ID in a text that is no JSON,
// and what says of its machine if that follows as a ledger writes it.
var idInText = regexp.MustCompile(`"nodeID"\s*:\s*` + stringInText + `(?:,"node":` + stringInText + `)?(?:,"nodeUID":` + stringInText + `)?(?:,"bootID":` + stringInText + `)?`)

const stringInText = `("(?:[^"\\]|\\.)+")`

// readable are the holders that can still be made out in a text that is not a
// ledger: whatever has a nodeID, and whether it was contested. States are not
// believed: an entry that says that its node let go may be the garbled part.
func readable(text string) []ledger.Entry {
	var loose struct{ Holders []json.RawMessage }
	// A field of the wrong type leaves the others read.
	whole := json.Unmarshal([]byte(text), &loose) == nil
	var found []ledger.Entry
	seen := map[string]bool{}
	add := func(e ledger.Entry) {
		if e.NodeID != "" && !seen[e.NodeID] {
			seen[e.NodeID] = true
			found = append(found, e)
		}
	}
	for _, raw := range loose.Holders {
		add(looseEntry(raw))
	}
	// In a text that is cut off, nobody can tell whose contest it is.
	contested := !whole && strings.Contains(text, `"contested"`)
	for _, match := range idInText.FindAllStringSubmatch(text, -1) {
		var e ledger.Entry
		for i, field := range []*string{&e.NodeID, &e.NodeName, &e.NodeUID, &e.BootID} {
			_ = json.Unmarshal([]byte(match[i+1]), field) // empty where there is none
		}
		if contested {
			e.Contest = &fence.Contest{}
		}
		add(e)
	}
	return found
}

func looseEntry(raw json.RawMessage) ledger.Entry {
	var e struct {
		NodeID    string          `json:"nodeID"`
		Node      string          `json:"node"`
		NodeUID   string          `json:"nodeUID"`
		BootID    string          `json:"bootID"`
		Contested json.RawMessage `json:"contested"`
	}
	_ = json.Unmarshal(raw, &e)
	out := ledger.Entry{NodeID: e.NodeID, NodeName: e.Node, NodeUID: e.NodeUID, BootID: e.BootID}
	if len(e.Contested) > 0 && string(e.Contested) != "null" {
		out.Contest = &fence.Contest{}
		_ = json.Unmarshal(e.Contested, out.Contest)
	}
	return out
}
