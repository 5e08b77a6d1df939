package fitness

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"
)

// Report is everything that the suite found, as -o json has it.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Reasons of a verdict that is not FitForTakeover.
	Reasons []string `json:"reasons,omitempty"`
	// Configuration for csi-fencepost, as YAML; empty where the driver is not
	// fit.
	Configuration string `json:"configuration,omitempty"`
	// Besides is what the configuration cannot say.
	Besides []string `json:"besides,omitempty"`
	// Differs is where the driver does other things than is known of it.
	Differs []string `json:"differs,omitempty"`

	Driver  string   `json:"driver"`
	Version string   `json:"version,omitempty"`
	Address string   `json:"address"`
	Nodes   []string `json:"nodes,omitempty"`
	Volume  string   `json:"volume,omitempty"`

	Outcomes []Outcome   `json:"outcomes"`
	Calls    []CallTimes `json:"calls"`
	// Left is what could not be cleaned.
	Left []string `json:"left,omitempty"`
	// Problem kept the suite from being asked at all, or to its end.
	Problem string `json:"problem,omitempty"`
}

// JSON is the report as JSON.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

// YAML is the report as YAML, with the fields of JSON.
func (r *Report) YAML() ([]byte, error) { return yaml.Marshal(r) }

// Text writes the report as a person reads it.
func (r *Report) Text(w io.Writer) {
	fmt.Fprintf(w, "driver %s\n\nVERDICT: %s\n", r.about(), r.Verdict)
	list(w, "", r.Reasons)
	r.table(w)
	r.texts(w)
	r.times(w)
	if r.Configuration != "" {
		fmt.Fprintf(w, "\nConfiguration:\n\n  %s\n", strings.ReplaceAll(strings.TrimSuffix(r.Configuration, "\n"), "\n", "\n  "))
	}
	list(w, "Besides:", r.Besides)
	list(w, "Other than is known of this driver:", r.Differs)
	list(w, "NOT CLEANED UP:", r.Left)
}

// about is what was asked.
func (r *Report) about() string {
	name := r.Driver
	if name == "" {
		name = "unknown"
	}
	if r.Version != "" {
		name += " " + r.Version
	}
	name += " at " + r.Address
	if len(r.Nodes) > 0 {
		name += ", nodes " + strings.Join(r.Nodes, ", ")
	}
	if r.Volume != "" {
		name += ", volume " + r.Volume
	}
	return name
}

func list(w io.Writer, title string, texts []string) {
	if len(texts) == 0 {
		return
	}
	fmt.Fprintln(w)
	if title != "" {
		fmt.Fprintln(w, title)
	}
	for _, t := range texts {
		fmt.Fprintf(w, "  - %s\n", t)
	}
}

func (r *Report) table(w io.Writer) {
	if len(r.Outcomes) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "question\tanswer\teffect\twhat the driver did")
	for _, o := range r.Outcomes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", o.Question, o.Answer, o.Effect, o.Saw)
	}
	t.Flush()
}

// texts says what each answer means that is not as one would wish.
func (r *Report) texts(w io.Writer) {
	var texts []string
	for _, o := range r.Outcomes {
		switch o.Effect {
		case Remark:
			texts = append(texts, fmt.Sprintf("%s No. %s", o.Asks, o.Means))
		case Open:
			texts = append(texts, fmt.Sprintf("%s Unknown. If not: %s", o.Asks, o.Means))
		}
	}
	list(w, "What this means for a takeover:", texts)
}

func (r *Report) times(w io.Writer) {
	if len(r.Calls) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "call\tcalls\tnot OK\tmin\tmedian\tp95\tmax")
	for _, c := range r.Calls {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", c.Method, c.Calls, c.Errors, seconds(c.Min), seconds(c.Median), seconds(c.P95), seconds(c.Max))
	}
	t.Flush()
}

func seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return round(time.Duration(s * float64(time.Second))).String()
}
