package fitness

import (
	"os"
	"strings"
	"testing"
	"time"
)

const page = "../../docs/vendors/fitness.md"

func TestThePageHasEveryQuestionAndEveryDefault(t *testing.T) {
	read, err := os.ReadFile(page)
	must(t, err)
	text := string(read)
	at := 0
	for _, q := range questions {
		row := "\n| " + q.name + " | " + q.asks + " | "
		i := strings.Index(text, row)
		if i < at {
			t.Errorf("%s lacks the row, or has it in another order: %s", page, row)
		}
		at = max(at, i)
	}
	if rows := strings.Count(text[strings.Index(text, "| question | asks |"):strings.Index(text, "The published nodes are read")], "\n| "); rows != len(questions) {
		t.Errorf("%s has %d rows for %d questions", page, rows, len(questions))
	}
	c := NewConfig()
	if c.Timeout != time.Minute || c.Watch != 10*time.Second || c.Rounds != 10 || cleanLimit != 5*time.Minute || soon != 10*time.Second {
		t.Error("the page has other defaults: change both")
	}
	for _, v := range []Verdict{FitForTakeover, FitWithSettings, NotFit, CannotTell} {
		if code := (&Report{Verdict: v}).ExitCode(); !strings.Contains(text, "\n| `"+string(v)+"` | "+string(rune('0'+code))+" | ") {
			t.Errorf("%s does not say that %q is exit code %d", page, v, code)
		}
	}
	if !strings.Contains(text, "```yaml\n"+snippet([]Need{Guard}, false)+"```\n") {
		t.Errorf("%s shows another configuration than the suite prints:\n%s", page, snippet([]Need{Guard}, false))
	}
}

func TestTheCodeOnThePageIsThatOfTheExample(t *testing.T) {
	read, err := os.ReadFile(page)
	must(t, err)
	_, code, found := strings.Cut(string(read), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	example, err := os.ReadFile("example_test.go")
	must(t, err)
	lines := strings.Split(strings.TrimSpace(code), "\n")
	if !found || len(lines) < 4 {
		t.Fatalf("%s has no code", page)
	}
	for _, line := range lines[1 : len(lines)-1] {
		if !strings.Contains(string(example), strings.TrimSpace(line)) {
			t.Errorf("the example lacks %q", line)
		}
	}
}
