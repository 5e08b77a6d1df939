package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// A NodeStatus is one node and what its agents read.
type NodeStatus struct {
	Node     string        `json:"node"`
	Liveness string        `json:"liveness"`
	Record   string        `json:"record"`
	Agents   []ReadingView `json:"agents"`
}

// RecordWords sum up what a record claims that still counts, and why the last fence
// failed, if it did.
func RecordWords(r *record.Record) string {
	if r == nil {
		return ""
	}
	var words []string
	for i := range r.Fences {
		if f := &r.Fences[i]; f.Current() {
			word := FenceWords(f)
			if r.Doubt(f) == fence.VoidUnvouched {
				word += ", for which nobody vouches"
			}
			words = append(words, word)
		}
	}
	if n := len(r.Fences); n > 0 && r.Fences[n-1].Phase == record.Failed {
		last := &r.Fences[n-1]
		words = append(words, fmt.Sprintf("fencing it failed at %s: %s", cli.OrDash(last.EndedAt), cli.OrDash(last.Why)))
	}
	for _, c := range r.Confirmations {
		if slices.ContainsFunc(c.Machines, func(m record.Machine) bool { return r.Vouched(c.Of(&m)) }) {
			words = append(words, "off, says "+c.By)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Taints)) {
		if r.Taints[key].Void == "" {
			words = append(words, "taint "+key[strings.LastIndex(key, "/")+1:])
		}
	}
	n := 0
	for i := range r.Releases {
		if r.Doubt(&r.Releases[i]) == "" {
			n++
		}
	}
	switch {
	case n == 1:
		words = append(words, "1 volume released")
	case n > 1:
		words = append(words, fmt.Sprintf("%d volumes released", n))
	}
	return strings.Join(words, "; ")
}

// FenceWords name a fence by what it cuts and how far it is.
func FenceWords(f *record.Fence) string {
	what := "power"
	if f.Kind == fence.StorageFence {
		what = "storage of " + f.Driver
	}
	switch {
	case f.UnderWay():
		return "being fenced (" + what + ") by " + f.Actor
	case f.Phase == record.Lifting:
		return "being given back (" + what + "), fenced by " + f.Actor
	}
	return strings.ToLower(string(f.Phase)) + " (" + what + ") by " + f.Actor
}
