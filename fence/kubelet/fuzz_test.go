package kubelet

import (
	"io"
	"math"
	"strings"
	"testing"
)

// Whatever is answered where a kubelet is to be: it is a process of that node's kubelet only if a line
// names the node and one each says when it started and what it has used, as finite numbers above 0.
func FuzzAnswer(f *testing.F) {
	f.Add(metrics)
	f.Add(strings.ReplaceAll(metrics, "n1", "another"))
	f.Add(strings.ReplaceAll(metrics, "\n", "\r\n"))
	f.Add("kubelet_node_name{node=\"n1\"} 1\nprocess_start_time_seconds NaN\nprocess_cpu_seconds_total +Inf\n")
	f.Add("process_start_time_seconds 1\nprocess_start_time_seconds{a=\"b\"} 2\nprocess_cpu_seconds_total 1\nkubelet_node_name{node=\"n1\"} 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := read(strings.NewReader(text), "n1")
		if err != nil {
			if p != nil {
				t.Errorf("an error and a process: %v, %+v", err, p)
			}
			return
		}
		if !(p.Start > 0) || !(p.CPU > 0) || math.IsInf(p.Start, 0) || math.IsInf(p.CPU, 0) || p.Key != "" {
			t.Errorf("it is %+v", p)
		}
		begins := map[string]int{}
		for line := range strings.SplitSeq(text, "\n") {
			for _, name := range []string{startMetric, cpuMetric, nameMetric} {
				if strings.HasPrefix(line, name) {
					begins[name]++
				}
			}
		}
		if begins[startMetric] == 0 || begins[cpuMetric] == 0 || begins[nameMetric] == 0 || !strings.Contains(text, "n1") && !strings.Contains(text, `\`) {
			t.Errorf("it counts as n1's kubelet, and does not say so: %q", text)
		}
	})
}

// endless goes on with a line for ever, and counts what was taken of it.
type endless struct {
	line  string
	taken int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.line[(e.taken+n)%len(e.line):])
	}
	e.taken += n
	return n, nil
}

// What goes on and on is no kubelet's answer, whatever it began with.
func TestAnAnswerWithoutAnEndIsAnError(t *testing.T) {
	for _, line := range []string{"other_metric 1\n", "x", "\n"} {
		e := &endless{line: strings.Repeat(line, 1<<15)}
		p, err := read(io.MultiReader(strings.NewReader(metrics), e), "n1")
		if p != nil || err == nil || err.Error() != "its answer is longer than 33554432 bytes" {
			t.Errorf("%q: %+v, %v", line, p, err)
		}
		if e.taken > maxAnswer+4096 {
			t.Errorf("%q: %d bytes were read", line, e.taken)
		}
	}
	if _, err := read(io.MultiReader(strings.NewReader(metrics), io.LimitReader(&endless{line: strings.Repeat("x", 1<<15)}, maxAnswer-int64(len(metrics)))), "n1"); err != nil {
		t.Errorf("as much as there may be: %v", err)
	}
}
