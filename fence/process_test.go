package fence

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAProcessIsTheOneThatStartedThenAndServesByThatKey(t *testing.T) {
	seen := Process{Start: 1764000000.25, CPU: 12.5, Key: "key"}
	for name, c := range map[string]struct {
		seen, later *Process
		want        bool
	}{
		"the same":                        {&seen, &Process{1764000000.25, 12.5, "key"}, true},
		"it has worked since":             {&seen, &Process{1764000000.25, 900, "key"}, true},
		"the clock has moved a little":    {&seen, &Process{1764000002.9, 13, "key"}, true},
		"the other way":                   {&seen, &Process{1763999997.4, 13, "key"}, true},
		"it started later":                {&seen, &Process{1764000009.25, 12.6, "key"}, false},
		"it started earlier":              {&seen, &Process{1763999990.25, 12.6, "key"}, false},
		"it has worked less":              {&seen, &Process{1764000000.25, 12.4, "key"}, false},
		"another serves":                  {&seen, &Process{1764000000.25, 13, "other"}, false},
		"nobody says by which key":        {&Process{1764000000.25, 12.5, ""}, &Process{1764000000.25, 12.5, ""}, false},
		"none was seen":                   {nil, &seen, false},
		"none answers":                    {&seen, nil, false},
		"none was seen, and none answers": {nil, nil, false},
	} {
		if got := c.seen.Is(c.later); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What follows a process that was Settled when it was seen starts so much later that it is
// another one, though both starts are read as wrongly as they may be.
func TestASettledProcessIsNotTheOneThatFollowsIt(t *testing.T) {
	const asked = 1764000000.0
	seen := Process{Start: asked - Settled + startSlack/2.0, CPU: 1, Key: "key"}
	if next := (Process{Start: asked - startSlack/2.0, CPU: 1, Key: "key"}); seen.Is(&next) {
		t.Errorf("%v is %v", seen, next)
	}
}

func TestAKubeletIsAskedOnlyWhereThatMayFreeTheVolume(t *testing.T) {
	contested := facts{node: "same", boot: "same", life: Alive, ready: true, state: Publishing, va: "deleted", contest: "this boot"}
	for name, c := range map[string]struct {
		change func(*facts)
		holder func(*Holder)
		want   bool
	}{
		"contested":                        {want: true},
		"contested by its silence":         {change: func(f *facts) { f.life = Stale }, want: true},
		"a restart shows":                  {change: func(f *facts) { f.contest, f.va = "", "deleted, then Ready" }, want: true},
		"nothing shows a restart":          {change: func(f *facts) { f.contest = "" }},
		"it lists the volume in use":       {change: func(f *facts) { f.inUse = true }},
		"another machine":                  {change: func(f *facts) { f.node, f.boot = "other", "" }},
		"registered again":                 {change: func(f *facts) { f.node, f.boot = "again", "" }},
		"its Node is gone":                 {change: func(f *facts) { f.node, f.boot = "gone", "" }},
		"it is proven off":                 {change: func(f *facts) { f.life, f.evidence = Stale, "power" }},
		"taken over":                       {change: func(f *facts) { f.state = TakenOver }},
		"taken over, and listed again":     {change: func(f *facts) { f.state, f.contest = TakenOver, "" }, holder: func(h *Holder) { h.Sources = append(h.Sources, FromDriver) }, want: true},
		"nobody knows what ran before":     {holder: func(h *Holder) { h.Kubelet = nil }},
		"in volumesAttached, and not left": {change: func(f *facts) { f.attached, f.va = true, "attached" }},
	} {
		f := contested
		if c.change != nil {
			c.change(&f)
		}
		h := f.holder()
		h.Kubelet = &Process{Start: 1, CPU: 1, Key: "key"}
		if c.holder != nil {
			c.holder(&h)
		}
		if got := h.AsksKubelet(Policy{}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if h.Node != nil && h.Node.Memory != f.memory() {
			t.Errorf("%s: asking whether to ask answers it", name)
		}
	}
}

func TestAKubeletIsTrustedOnlyWhereItsWordAloneLetsTheVolumeGo(t *testing.T) {
	plain := facts{node: "same", boot: "same", life: Alive, ready: true, state: Publishing, va: "deleted"}
	for name, c := range map[string]struct {
		change func(*facts)
		want   bool
	}{
		"nothing shows a restart":          {want: true},
		"nor where it is silent":           {change: func(f *facts) { f.life = Stale }, want: true},
		"adopted":                          {change: func(f *facts) { f.state = Held }, want: true},
		"in no ledger":                     {change: func(f *facts) { f.state = NotInLedger }, want: true},
		"its unpublish has begun":          {change: func(f *facts) { f.state = Leaving }, want: true},
		"seen to list it, in a contest":    {change: func(f *facts) { f.contest = "seen" }, want: true},
		"read to have let go":              {change: func(f *facts) { f.va = "let go, deleted, then Ready" }, want: true},
		"its word is written down":         {change: func(f *facts) { f.state = Released }},
		"nothing is being detached":        {change: func(f *facts) { f.va = "attached" }},
		"contested":                        {change: func(f *facts) { f.contest = "this boot" }},
		"a restart shows":                  {change: func(f *facts) { f.va = "deleted, then Ready" }},
		"contested in an earlier boot":     {change: func(f *facts) { f.contest = "earlier boot" }},
		"believed":                         {change: func(f *facts) { f.process = true }},
		"it lists the volume in use":       {change: func(f *facts) { f.inUse = true }},
		"another machine":                  {change: func(f *facts) { f.node, f.boot = "other", "" }},
		"registered again":                 {change: func(f *facts) { f.node, f.boot = "again", "" }},
		"its Node is gone":                 {change: func(f *facts) { f.node, f.boot = "gone", "" }},
		"it is proven off":                 {change: func(f *facts) { f.life, f.evidence = Stale, "power" }},
		"taken over":                       {change: func(f *facts) { f.state = TakenOver }},
		"in volumesAttached, and not left": {change: func(f *facts) { f.attached, f.va = true, "attached" }},
	} {
		f := plain
		if c.change != nil {
			c.change(&f)
		}
		h := f.holder()
		if got := h.TrustsKubelet(Policy{}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if h.Node != nil && h.Node.Memory != f.memory() {
			t.Errorf("%s: asking whether to ask answers it", name)
		}
	}
}

func TestAForcedDetachDoubtsWhoHasNotFoundTheVolume(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		back, off time.Duration // ago, 0: never; it was taken an hour ago
		age       time.Duration
		want      bool
	}{
		"older than the detach":                 {age: time.Hour + 30*s},
		"hardly":                                {age: time.Hour + 29*s, want: true},
		"younger":                               {age: time.Minute, want: true},
		"its clock was set back":                {age: -time.Hour, want: true},
		"started before it was put back":        {back: 40 * time.Minute, age: 41 * time.Minute, want: true},
		"started just when it was put back":     {back: 40 * time.Minute, age: 40*time.Minute - 30*s, want: true},
		"started since it was put back":         {back: 40 * time.Minute, age: 40*time.Minute - 31*s},
		"started just now, and it is there":     {back: 40 * time.Minute, age: 0},
		"put back, and its clock was set back":  {back: 40 * time.Minute, age: -s, want: true},
		"older, and it was put back":            {back: 40 * time.Minute, age: 2 * time.Hour},
		"older, and it was taken again":         {back: 40 * time.Minute, off: 10 * time.Minute, age: 2 * time.Hour},
		"started while it was there":            {back: 40 * time.Minute, off: 10 * time.Minute, age: 10*time.Minute + 30*s},
		"started just when it was taken again":  {back: 40 * time.Minute, off: 10 * time.Minute, age: 10*time.Minute + 29*s, want: true},
		"started since it was taken again":      {back: 40 * time.Minute, off: 10 * time.Minute, age: time.Minute, want: true},
		"started before, and it is taken again": {back: 40 * time.Minute, off: 10 * time.Minute, age: 50 * time.Minute, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				f := Forced{Taken: now.Add(-time.Hour)}
				if tt.back > 0 {
					f.Back = now.Add(-tt.back)
				}
				if tt.off > 0 {
					f.Off = now.Add(-tt.off)
				}
				if got := f.doubts(tt.age); got != tt.want {
					t.Errorf("it is doubted: %t", got)
				}
			})
		})
	}
}
