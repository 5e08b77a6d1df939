package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what csi-sanity reported of one way.
type result struct {
	way      string
	outcomes map[string]outcome // by the test's name
}

// outcome of a test.
type outcome struct {
	status string // passed, failed, skipped, pending, ... as Ginkgo says
	reason string // why it was skipped
}

func (o outcome) String() string {
	if o.reason != "" {
		return o.status + " (" + o.reason + ")"
	}
	return o.status
}

const absent = "did not run"

// junit is the part of Ginkgo's report that is read.
type junit struct {
	Suites []struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Status  string `xml:"status,attr"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// readReport reads the tests of a report. It fails when there is none in it, or
// two of one name: they could not be told apart.
func readReport(way, path string) (result, error) {
	r := result{way: way, outcomes: map[string]outcome{}}
	content, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	var report junit
	if err := xml.Unmarshal(content, &report); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			if !strings.HasPrefix(c.Name, "[It] ") {
				continue // the suite's own set-up
			}
			name := strings.TrimPrefix(c.Name, "[It] ")
			if _, twice := r.outcomes[name]; twice {
				return r, fmt.Errorf("%s: two tests are called %q", path, name)
			}
			o := outcome{status: c.Status}
			if c.Skipped != nil {
				o.reason = strings.TrimPrefix(c.Skipped.Message, "skipped - ")
			}
			r.outcomes[name] = o
		}
	}
	if len(r.outcomes) == 0 {
		return r, errors.New(path + ": no test was run")
	}
	return r, nil
}

// count is how many tests ended so.
func (r result) count(status string) int {
	n := 0
	for _, o := range r.outcomes {
		if o.status == status {
			n++
		}
	}
	return n
}

// differences lists the tests whose outcome in other is another than in r.
func (r result) differences(other result) []string {
	var lines []string
	names := maps.Clone(r.outcomes)
	maps.Copy(names, other.outcomes)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if want, got := r.of(name), other.of(name); want != got {
			lines = append(lines, fmt.Sprintf("%s: %s: %s; %s: %s", name, r.way, want, other.way, got))
		}
	}
	return lines
}

func (r result) of(name string) outcome {
	if o, ok := r.outcomes[name]; ok {
		return o
	}
	return outcome{status: absent}
}

// printTable writes what came out, and says whether it is as it should be: no
// failure anywhere, and each way as the first.
func printTable(out io.Writer, results []result) bool {
	direct, good := results[0], true
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "csi-sanity\ttests\tpassed\tfailed\tskipped\tpending\tother than direct")
	for _, r := range results {
		passed, skipped, pending := r.count("passed"), r.count("skipped"), r.count("pending")
		failed := len(r.outcomes) - passed - skipped - pending
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", r.way, len(r.outcomes), passed, failed, skipped, pending, len(direct.differences(r)))
		good = good && passed > 0 && failed == 0 && len(direct.differences(r)) == 0
	}
	table.Flush()
	for _, r := range results[1:] {
		for _, line := range direct.differences(r) {
			fmt.Fprintln(out, "differs:", line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(direct.outcomes)) {
		if o := direct.outcomes[name]; o.status != "passed" {
			fmt.Fprintf(out, "not passed: %s: %s\n", name, o)
		}
	}
	return good
}
