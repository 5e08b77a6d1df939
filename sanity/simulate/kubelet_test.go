package simulate

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/facts"
)

// TestTheKubeletDoesWhatTheTableSays: package facts holds it against a real one.
func TestTheKubeletDoesWhatTheTableSays(t *testing.T) {
	const (
		back    = "restart-kubelet n1 quick; sync n1; status n1"
		unmount = "unmount v1 n1; status n1; clock 60s"
	)
	scripts := map[string]string{
		"killed":        "pause n1; clock 60s",
		"back":          back,
		"back-unlisted": "unlist v1 n1; restart-kubelet n1 quick; rebuild n1; status n1; sync n1; status n1",
		"back-deleted":  "unlist v1 n1; " + back + "; delete-pod v1; sync n1; status n1; unmount v1 n1",
		"gone":          "force-delete-pod v1; " + back + "; " + unmount,
		"gone-hung":     "force-delete-pod v1; " + back + "; outlive v1 n1; status n1; restart-kubelet n1 quick; sync n1", // it finds nothing the next time either
		"gone-held":     "force-delete-pod v1; " + back,
		"lost":          "pause n1; force-delete-pod v1; clock 370s; not-ready n1; unlist v1 n1; detach v1 n1; resume n1; " + back + "; unmount v1 n1",
		"lost-stuck":    "pause n1; force-delete-pod v1; clock 370s; not-ready n1; unlist v1 n1; detach v1 n1; resume n1; " + back,
		"deleted":       "delete-pod v1; sync n1; " + unmount,
		"forced":        "force-delete-pod v1; sync n1; " + unmount,
		"staged":        "delete-pod v1; sync n1; unpublish-pod v1 n1; " + back,
		"back-detach":   "delete-pod v1; sync n1; unmount v1 n1; status n1; end-pod v1; delete-va v1 n1; schedule v1 n1; sync n1; status n1",
		"boot-detach":   "delete-va v1 n1; power-off n1; power-on n1; sync n1; status n1",
		"stuck":         "force-delete-pod v1; sync n1; clock 60s",
		"partitioned":   "cut-node n1; force-delete-pod v1; clock 60s",
		"healed":        "cut-node n1; force-delete-pod v1; clock 60s; join-node n1; sync n1; " + unmount,
		"rebooted":      "power-off n1; power-on n1; sync n1; status n1; verify v1 n1; mount v1 n1",
		"rebooted-gone": "power-off n1; force-delete-pod v1; power-on n1; sync n1; status n1",
	}
	for _, f := range facts.Kubelet {
		t.Run(f.Name, func(t *testing.T) {
			script, ok := scripts[f.Name]
			if !ok {
				t.Fatal("there is no script for it")
			}
			setup, events, err := ParseScript("setup nodes=3\n" + strings.ReplaceAll(script, ";", "\n"))
			if err != nil {
				t.Fatal(err)
			}
			var now facts.State
			play(t, withoutGuard, setup, 1, nil, func(w *World) {
				s, v := w.slot("n1"), w.volumes[0]
				look := func() {
					n := w.peekNode("n1")
					now.InUse = inUse(n, v)
					now.Mounted = s.machine.power && s.machine.mounts[v] != nil
					now.Writes = now.Mounted // to the simulation it is the same
					now.Forgotten = now.Forgotten || now.Mounted && !now.InUse
				}
				for _, e := range events {
					if e.Verb == Unlist {
						w.perform(e) // also while a pod wants it, as the stage does by hand
					} else {
						w.follow(e, false)
					}
					look()
					if w.Rule == "story" {
						t.Errorf("%s", w.Violation)
					}
				}
				w.kubeletEvents(s, func(e Event) {
					if e.Verb == Verify && !now.Mounted {
						t.Errorf("it may mount the volume next, by %s", e)
					}
				})
				if next := s.machine.kubelet.uses(v); next != now.InUse && s.connected() {
					t.Errorf("its next status lists the volume: %t", next)
				}
			})
			if now != f.Simulated {
				t.Errorf("a kubelet that %s: %s, and the table says that it is %s", f.Situation, now, f.Simulated)
			}
		})
	}
}
