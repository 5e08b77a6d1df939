package outcome

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var day = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func of(story string, change func(*Outcome)) Outcome {
	o := Outcome{Story: story, Kubernetes: "v1.2.3", Clocks: Real, Commit: "abc1234", Began: day, Text: "moved"}
	if change != nil {
		change(&o)
	}
	return o
}

func book(t *testing.T, outcomes ...Outcome) *Book {
	t.Helper()
	b, err := Open(filepath.Join(t.TempDir(), "outcomes.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if err := b.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestAnOutcomeIsOnDiskAsSoonAsItIsPut(t *testing.T) {
	b := book(t, of("one", nil), of("two", func(o *Outcome) { o.Alone, o.TakenInUse = true, 1 }))
	again, err := Open(b.path)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := again.Find("two", true, "v1.2.3")
	if !ok || o.TakenInUse != 1 || !o.Began.Equal(day) || len(again.All()) != 2 {
		t.Errorf("read back: %v %+v of %+v", ok, o, again.All())
	}
	left, err := os.ReadDir(filepath.Dir(b.path))
	if err != nil || len(left) != 1 {
		t.Errorf("the folder has %v %v, want the book alone", left, err)
	}
}

func TestTheLatestPlayTakesTheEarliersPlaceAndNoOthers(t *testing.T) {
	b := book(t,
		of("one", nil),
		of("one", func(o *Outcome) { o.Clocks = Short }),
		of("one", func(o *Outcome) { o.Alone = true }),
		of("one", func(o *Outcome) { o.Kubernetes = "v0.9.0" }),
		of("one", func(o *Outcome) { o.Text = "moved again" }))
	if o, _ := b.Find("one", false, "v1.2.3"); o.Text != "moved again" || len(b.All()) != 4 {
		t.Errorf("the latest is %+v, of %d", o, len(b.All()))
	}
}

func TestRealClocksAreShownBeforeShortOnes(t *testing.T) {
	b := book(t, of("one", func(o *Outcome) { o.Clocks, o.Text = Short, "short" }))
	if o, ok := b.Find("one", false, "v1.2.3"); !ok || o.Text != "short" {
		t.Errorf("found %v %+v", ok, o)
	}
	if err := b.Put(of("one", nil)); err != nil {
		t.Fatal(err)
	}
	if o, _ := b.Find("one", false, "v1.2.3"); o.Clocks != Real {
		t.Errorf("found %+v", o)
	}
}

func TestAnOutcomeThatDoesNotSayWhatItHoldsForIsRefused(t *testing.T) {
	for what, spoil := range map[string]func(*Outcome){
		"story":      func(o *Outcome) { o.Story = "" },
		"Kubernetes": func(o *Outcome) { o.Kubernetes = "" },
		"commit":     func(o *Outcome) { o.Commit = "" },
		"date":       func(o *Outcome) { o.Began = time.Time{} },
		"clocks":     func(o *Outcome) { o.Clocks = "fast" },
	} {
		b := book(t)
		if err := b.Put(of("one", spoil)); err == nil || len(b.All()) != 0 {
			t.Errorf("without its %s: %v, and the book has %+v", what, err, b.All())
		}
	}
}

func TestABookThatSomebodySpoiledIsNotRead(t *testing.T) {
	one := `{"story":"one","kubernetes":"v1","clocks":"real","commit":"a","began":"2026-03-04T05:06:07Z","seconds":1}`
	for text, says := range map[string]string{
		"[" + one + "," + one + "]": "two outcomes of story one",
		`[{"storey":"one"}]`:        "storey",
		`[{"story":"one"}]`:         "lacks its story",
		"[":                         "outcomes.json",
	} {
		path := filepath.Join(t.TempDir(), "outcomes.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

func page() Page {
	return Page{Measured: "v1.2.3", Others: []Version{
		{Kubernetes: "v1.3.0", What: "The newest."},
		{Kubernetes: "v0.9.0", What: "The oldest."}},
		Between: []string{"v1.3 looks twice.", "v1 has no v0."},
		Chapters: []Chapter{{Title: "Nodes", Stories: []Story{
			{Name: "one", Rule: "R1: a rule", From: "k/7, https://example.com/a/b"},
			{Name: "two", Rule: "R2: a | b", GuardedOnly: true},
			{Name: "three", Rule: "R3"},
		}}},
		Kinds: [][]string{{"", "RWO"}, {"pod", "`one`"}},
		Address: func(ref string) (string, error) {
			return strings.Replace(ref, "k/", "https://github.com/k/k/issues/", 1), nil
		}}
}

func write(t *testing.T, b *Book) string {
	t.Helper()
	text, err := page().Write(b)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestThePageShowsWhatWasSeenAndWhatWasNotPlayed(t *testing.T) {
	text := write(t, book(t,
		of("one", nil),
		of("one", func(o *Outcome) { o.Alone, o.DoubleWrites, o.TakenInUse, o.Clocks = true, 12, 1, Short }),
		of("two", func(o *Outcome) { o.Failed, o.Text = true, "" }),
		of("one", func(o *Outcome) { o.Kubernetes = "v0.9.0" })))
	for _, want := range []string{
		"| `one` | R1: a rule | [k/k#7](https://github.com/k/k/issues/7), [example.com](https://example.com/a/b) | moved; **two nodes wrote at once (12 writes mixed up)**; **volume taken from a node that used it** <sub>2026-03-04 abc1234, short clocks</sub> | moved <sub>2026-03-04 abc1234</sub> |",
		"| `two` | R2: a \\| b |  | (nothing to compare) | **failed** <sub>2026-03-04 abc1234</sub> |",
		"| `three` | R3 |  | *not played yet* | *not played yet* |",
		"| `one` | *not played yet* | moved <sub>2026-03-04 abc1234</sub> |",
		"3 stories. With csi-fencepost 2 were played, 0 of them with a violation, 1 failed. With Kubernetes alone 1 were played (1 have nothing to compare), 1 with a violation, 0 failed.",
		"|  | RWO |\n|---|---|\n| pod | `one` |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, text)
		}
	}
	if _, old, _ := strings.Cut(text, "v0.9.0"); strings.Contains(old, "`two`") {
		t.Error("the oldest Kubernetes' table has a story that was not played on it")
	}
}

func TestAPageWithoutThePlaysOfAnotherKubernetesSaysSo(t *testing.T) {
	text := write(t, book(t, of("one", nil)))
	for _, want := range []string{
		"\n## From one Kubernetes to the next\n\n- v1.3 looks twice.\n- v1 has no v0.\n",
		"\n## The same on Kubernetes v1.3.0\n\nThe newest. No story was played on it yet.\n",
		"\n## The same on Kubernetes v0.9.0\n\nThe oldest. No story was played on it yet.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, text)
		}
	}
}

func TestThePageNamesThePlaysThatCameOutOtherwiseOnAnotherKubernetes(t *testing.T) {
	newest := func(change func(*Outcome)) func(*Outcome) {
		return func(o *Outcome) {
			o.Kubernetes = "v1.3.0"
			if change != nil {
				change(o)
			}
		}
	}
	taken := func(o *Outcome) { o.Alone, o.TakenInUse = true, 2 }
	once := func(o *Outcome) { o.Alone, o.TakenInUse = true, 1 }
	same := []Outcome{of("one", nil), of("one", taken), of("one", newest(nil)), of("one", newest(once)), of("three", newest(nil))}
	text := write(t, book(t, same...))
	if want := "The newest. Stories that were not played on it are left out. In each of the 2 plays that v1.2.3 has too, the storage array saw the same.\n\n| story"; !strings.Contains(text, want) {
		t.Errorf("the page lacks\n%s\nit is\n%s", want, text)
	}
	text = write(t, book(t, append(same, of("three", nil), of("one", newest(func(o *Outcome) { o.Alone = true })), of("three", newest(func(o *Outcome) { o.Failed, o.CouldDoubleWrite = true, 1 })))...))
	for _, want := range []string{
		"In 1 of the 3 plays that v1.2.3 has too, the storage array saw the same; not in these:\n\n- `one`, Kubernetes alone: nothing wrong; on v1.2.3 volume taken from a node that used it.\n",
		"- `three`, with csi-fencepost: failed, two nodes could write at once; on v1.2.3 nothing wrong.\n\n| story",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, text)
		}
	}
}

func TestTheMeasuredVersionHasTheMostPlaysOnRealClocks(t *testing.T) {
	newest := func(o *Outcome) { o.Kubernetes = "v1.3.0" }
	short := func(o *Outcome) { o.Kubernetes, o.Clocks = "v1.3.0", Short }
	for _, c := range []struct {
		what     string
		outcomes []Outcome
		want     string
	}{
		{"nothing was played", nil, "v1.3.0"},
		{"the newest with short clocks only", []Outcome{of("one", nil), of("one", short), of("two", short)}, "v1.2.3"},
		{"as many on both", []Outcome{of("one", nil), of("two", newest)}, "v1.3.0"},
		{"fewer on the newest", []Outcome{of("one", nil), of("two", nil), of("two", newest)}, "v1.2.3"},
	} {
		if got := book(t, c.outcomes...).Measured("v1.3.0", "v1.2.3", "v0.9.0"); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestAViolationWithCSIFencepostIsCountedAndNamed(t *testing.T) {
	b := book(t, of("one", func(o *Outcome) { o.CouldDoubleWrite = 1 }), of("two", nil))
	c := page().Count(b, "v1.2.3")
	if c.Guarded != (Tally{Played: 2, Violated: 1}) || len(c.Broken) != 1 || c.Broken[0] != "one" {
		t.Errorf("counted %+v", c)
	}
	if got := strings.Join(c.Missing, ", "); got != "one (alone), three, three (alone)" {
		t.Errorf("missing: %s", got)
	}
	if !strings.Contains(write(t, b), "**two nodes could write at once**") {
		t.Error("the page does not show it")
	}
}

func TestAStoryThatIsKnownToFailIsShownCountedAndNamed(t *testing.T) {
	p := page()
	p.Chapters[0].Stories[0].Known = "It is stuck. It will not be."
	failed := func(o *Outcome) { o.Failed, o.Known, o.Text = true, true, "waited in vain" }
	b := book(t, of("one", failed), of("two", nil))
	text, err := p.Write(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `one` | R1: a rule **Not so yet, known to fail with csi-fencepost:** It is stuck. It will not be. | ",
		"| **fails, as known**; waited in vain <sub>",
		"With csi-fencepost 2 were played, 0 of them with a violation, 0 failed and 1 failed as they are known to. With",
		"\n1 stories are known to fail with csi-fencepost, each for the reason in its row: `one`.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, text)
		}
	}
	if left := strings.Join(p.Left(b), "\n"); !strings.Contains(left, "1 stories are known to fail with csi-fencepost, each stuck for the reason in its row: one") {
		t.Errorf("left are %s", left)
	}
	if c := p.Count(b, "v1.2.3"); c.Known != 1 || c.Guarded != (Tally{Played: 2}) || len(c.Broken) != 0 {
		t.Errorf("counted %+v", c)
	}
	for what, o := range map[string]Outcome{
		"it passed":                      of("one", nil),
		"it failed otherwise":            of("one", func(o *Outcome) { o.Failed = true }),
		"it had a violation":             of("one", func(o *Outcome) { o.Failed, o.TakenInUse = true, 1 }),
		"another one failed as if known": of("two", failed),
	} {
		if c := p.Count(book(t, o), "v1.2.3"); c.Known != 0 || len(c.Broken) != 1 {
			t.Errorf("%s: counted %+v", what, c)
		}
	}
}

func TestAFailureIsKnownOnlyWithCSIFencepostAndWithoutAViolation(t *testing.T) {
	for what, spoil := range map[string]func(*Outcome){
		"it passed":         func(o *Outcome) { o.Failed = false },
		"Kubernetes alone":  func(o *Outcome) { o.Alone = true },
		"it had violations": func(o *Outcome) { o.CouldDoubleWrite = 1 },
	} {
		b := book(t)
		if err := b.Put(of("one", func(o *Outcome) { o.Failed, o.Known = true, true; spoil(o) })); err == nil || !strings.Contains(err.Error(), "no mark covers") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
