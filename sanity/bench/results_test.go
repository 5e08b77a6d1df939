package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestThePageIsWhatTheResultsSay(t *testing.T) {
	all, err := readResults("results.json")
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile("RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	if page(merged(all, nil)) != string(written) {
		t.Error("sanity/bench/RESULTS.md is not what sanity/bench/results.json says: go run ./sanity/bench -only=SECTION -o sanity/bench/RESULTS.md")
	}
}

func TestASectionThatIsMeasuredAnewReplacesItsResultAlone(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	one := func(section, figure string) result {
		r := row{what: "a | call", path: "direct", p50: figure}
		other := row{what: "a | call", path: "csi-fencepost", rate: "7 /s"}
		return result{Section: section, Command: "go run ./sanity/bench -only=" + section, When: at, Machine: "m", Load: "1, after 2",
			Versions: []string{"csi-fencepost v1, go1", "etcd v3"}, Rows: [][]string{r.cells(), other.cells()}, Notes: []string{"a note"}}
	}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := writeResults(file, merged(nil, []result{one("memory", "1 s"), one("pass", "2 s"), one("of yesterday", "9 s")})); err != nil {
		t.Fatal(err)
	}
	old, err := readResults(file)
	if err != nil {
		t.Fatal(err)
	}
	text := page(merged(old, []result{one("memory", "3 s")}))
	for _, want := range []string{"| [pass](#pass) | calls that pass through | 2026-01-02 03:04 UTC | v1 | 1, after 2 |\n| [memory](#memory)",
		"## memory\n\nResident memory, 2026-01-02 03:04 UTC.\n\n```sh\ngo run ./sanity/bench -only=memory\n```\n\n- m; load average 1, after 2\n- csi-fencepost v1, go1\n- etcd v3\n",
		"| what | path | p50 | calls per second |\n| --- | --- | --- | --- |\n| a \\| call | direct | 3 s | – |\n|  | csi-fencepost | – | 7 /s |\n\n- a note\n", "| 2 s |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for _, no := range []string{"yesterday", "| 1 s |"} {
		if strings.Contains(text, no) {
			t.Errorf("the page has %q", no)
		}
	}
	if err := os.WriteFile(file, []byte(`[{"Section":"pass","Rows":[["a","b"]]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(file); err == nil || !strings.Contains(err.Error(), "a row of section pass has 2 cells") {
		t.Errorf("got %v", err)
	}
}

func TestRowsThatBeginInTheSameWayAreATableOfTheirOwn(t *testing.T) {
	storm := func(kind string, figures ...string) (rows [][]string) {
		for _, f := range figures {
			r := row{what: kind + ": " + f, path: "csi-fencepost", p50: "1 s"}
			rows = append(rows, r.cells())
		}
		return rows
	}
	rows := slices.Concat(storm("quick", "proof", "moved: first / last", "runs", "calls"), storm("slow", "proof", "moved: first / last", "runs", "calls"))
	text := page([]result{{Section: "storm", Rows: rows}})
	for _, want := range []string{"\n### Quick\n\n| what | path | p50 |\n| --- | --- | --- |\n| proof | csi-fencepost | 1 s |\n| moved: first / last | csi-fencepost | 1 s |\n", "| calls | csi-fencepost | 1 s |\n\n### Slow\n\n| what |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for name, rows := range map[string][][]string{"few of each": slices.Concat(storm("quick", "proof"), storm("slow", "proof")), "no colon": {row{what: "memory"}.cells()}} {
		if text := page([]result{{Section: "storm", Rows: rows}}); strings.Contains(text, "###") {
			t.Errorf("%s: the page has tables of their own:\n%s", name, text)
		}
	}
}
