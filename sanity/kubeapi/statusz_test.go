package kubeapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/proxy/statusz"
	"github.com/csi-fencepost/csi-fencepost/sanity/monitoring"
)

var saveNight = flag.String("save", "", "a folder that the pages of the bad night are written to, to be looked at")

// TestABadNightIsSeen has one story, which takes a minute, and looks at it in
// every way.
func TestABadNightIsSeen(t *testing.T) {
	s := tellNight(t)
	metrics, page, data := s.get("/metrics"), s.get("/statusz"), s.get("/statusz?format=json")
	if *saveNight != "" {
		for name, text := range map[string]string{"metrics.txt": metrics, "statusz.html": page, "statusz.json": data} {
			s.must(os.WriteFile(filepath.Join(*saveNight, name), []byte(text), 0o644))
		}
	}
	t.Run("the JSON has it all", func(t *testing.T) { wantState(t, data) })
	t.Run("the page has it all, and no markup that others wrote", func(t *testing.T) { wantPage(t, page) })
	t.Run("no secret is shown", func(t *testing.T) {
		for name, text := range map[string]string{"metrics": metrics, "page": page, "JSON": data, "page without a guard": s.get("/statusz?refresh=5")} {
			if strings.Contains(text, arraySecret) || strings.Contains(text, agentSecret) {
				t.Errorf("a secret is in the %s", name)
			}
		}
	})
	t.Run("every metric of the dashboard and the alerts is exported, with its labels", func(t *testing.T) { wantExported(t, metrics) })
	t.Run("promtool finds nothing to say about our metrics", func(t *testing.T) { wantLinted(t, metrics) })
}

func (s *night) get(path string) string {
	s.t.Helper()
	code, body := s.HTTP(s.process, path)
	if code != 200 {
		s.t.Fatalf("%s: %d %s", path, code, body)
	}
	return body
}

func wantState(t *testing.T, data string) {
	var s statusz.State
	if err := json.Unmarshal([]byte(data), &s); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]statusz.Node{}
	for _, n := range s.Nodes {
		nodes[n.Name] = n
	}
	waits := map[string]statusz.Waiting{}
	for _, w := range s.Waiting {
		waits[w.PV+" "+w.Call] = w
	}
	agents := map[string]statusz.Agent{}
	for _, a := range s.Agents {
		agents[a.Name] = a
	}
	silent, gone, db := nodes["rack-1-worker-07"], nodes["rack-3-worker-31"], waits["night-pvc-5b1f0c3e-postgres-0 ControllerPublishVolume"]
	if len(s.Waiting) > 0 && db.Volume == "" {
		db = findWaiting(s.Waiting, "postgres")
	}
	for what, ok := range map[string]bool{
		"the driver, ready, in mode Enforce":            s.Driver == "disk.example.com" && s.Ready && s.Mode == "Enforce" && s.Leader == "Alone" && s.Kind == "Status",
		"three waiting calls, with times and reasons":   len(s.Waiting) == 3 && db.Times >= 3 && !db.Since.IsZero() && strings.Contains(db.Text, "To unblock:") && db.Reason != "" && strings.Contains(db.Runbook, "#"+strings.ToLower(db.Reason)),
		"the silent node, suspected, with its volume":   silent.State == statusz.Suspected && silent.SilentSeconds >= 50 && len(silent.Volumes) == 1,
		"what is awaited of it":                         silent.Awaited != "",
		"the brake that holds, in words":                slices.ContainsFunc(s.Brakes, func(b statusz.Brake) bool { return b.Reason == "Cordoned" && strings.Contains(b.Text, "uncordon") }),
		"the operator's word, and its trail":            gone.State == statusz.Confirmed && len(gone.Evidence) > 0 && gone.Evidence[0].Phase == "Counts" && gone.Evidence[0].Source == "ann@example.com" && len(gone.Audit) > 0,
		"an agent that answers, and what it read":       agents["bmc"].State == "Answers" && agents["bmc"].Last[0].Result == "on" && agents["bmc"].Last[0].Node == "rack-1-worker-07",
		"an agent that does not":                        agents["pdu"].State == "Fails" && agents["pdu"].Last[0].Error != "",
		"a takeover, and from whom":                     slices.ContainsFunc(s.Decisions, func(d statusz.Decision) bool { return d.Verdict == "took over" && len(d.From) == 1 }),
		"the refusals, each once with how often":        slices.ContainsFunc(s.Decisions, func(d statusz.Decision) bool { return d.Verdict == "refuse" && d.Times >= 3 }),
		"five watched nodes, and two that nobody needs": s.Watched == 5 && nodes["rack-1-worker-03"].Name == "",
	} {
		if !ok {
			t.Errorf("not told: %s", what)
		}
	}
	if t.Failed() {
		t.Log(data)
	}
}

func findWaiting(all []statusz.Waiting, part string) statusz.Waiting {
	for _, w := range all {
		if strings.Contains(w.PV, part) {
			return w
		}
	}
	return statusz.Waiting{}
}

func wantPage(t *testing.T, page string) {
	for _, want := range []string{"3 calls wait", "rack-1-worker-07", "not fenced: Cordoned", "does not answer", "To unblock:", "said to be off",
		"power supply burnt &lt;img src=x onerror=alert(1)&gt;", `<meta name="viewport"`, "disk.example.com · mode Enforce"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<img", "<script", "src=\"", "url(", "@import"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// targetLabels are those that Prometheus puts on what it scrapes.
var targetLabels = []string{"job", "instance", "namespace", "pod"}

// wantExported holds every expression of deploy/monitoring against a scrape.
func wantExported(t *testing.T, metrics string) {
	has := exported(metrics)
	for where, exprs := range map[string][]string{"dashboard.json": dashboardExprs(t), "alerts.yaml": alertExprs(t)} {
		if len(exprs) < 9 {
			t.Fatalf("%s: only %d expressions were found", where, len(exprs))
		}
		for i, all := range monitoring.Parse(t, exprs) {
			for _, one := range all {
				if one.Metric == "up" {
					continue // Prometheus's own
				}
				labels, found := has[one.Metric]
				if !found {
					t.Errorf("%s: %s: csi-fencepost exports no %q", where, exprs[i], one.Metric)
				}
				for _, l := range one.Labels {
					if found && !labels[l] && !slices.Contains(targetLabels, l) {
						t.Errorf("%s: %s: %s has no label %q", where, exprs[i], one.Metric, l)
					}
				}
			}
		}
	}
}

// exported are the label names of each series of a scrape, by metric.
func exported(metrics string) map[string]map[string]bool {
	has := map[string]map[string]bool{}
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, labelled := strings.Cut(strings.Fields(line)[0], "{")
		if has[name] == nil {
			has[name] = map[string]bool{}
		}
		if !labelled {
			continue
		}
		for _, pair := range strings.Split(rest, `",`) {
			label, _, _ := strings.Cut(pair, "=")
			has[name][label] = true
		}
	}
	return has
}

// dashboardExprs are all expressions of the dashboard, its variables filled in
// as Grafana does.
func dashboardExprs(t *testing.T) []string {
	text, err := os.ReadFile(filepath.Join(monitoring.Folder(), "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	type target struct {
		Expr string `json:"expr"`
	}
	var d struct {
		Panels []struct {
			ID      int      `json:"id"`
			Type    string   `json:"type"`
			Title   string   `json:"title"`
			Targets []target `json:"targets"`
			Grid    struct{ X, Y, W, H int }
		} `json:"panels"`
		Annotations struct{ List []target } `json:"annotations"`
		Templating  struct {
			List []struct{ Name, Definition string }
		} `json:"templating"`
	}
	read := json.NewDecoder(bytes.NewReader(text))
	if err := read.Decode(&d); err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer("$__rate_interval", "2m", "$job", ".+")
	var exprs []string
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: its id is not its own, or it shows nothing", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, one := range p.Targets {
			exprs = append(exprs, filled.Replace(one.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		exprs = append(exprs, filled.Replace(a.Expr))
	}
	for _, v := range d.Templating.List {
		if metric, _, found := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ","); found {
			exprs = append(exprs, metric)
		}
	}
	for _, e := range exprs {
		if strings.Contains(e, "$") {
			t.Errorf("%s: a variable that this test does not know", e)
		}
	}
	return exprs
}

func alertExprs(t *testing.T) []string {
	text, err := os.ReadFile(filepath.Join(monitoring.Folder(), "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	var exprs []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			exprs = append(exprs, r.Expr)
		}
	}
	return exprs
}

// wantLinted has promtool look at names, help texts and types. What other
// libraries export is theirs.
func wantLinted(t *testing.T, metrics string) {
	var ours strings.Builder
	for line := range strings.Lines(metrics) {
		if strings.Contains(line, "csi_fencepost_") {
			ours.WriteString(line)
		}
	}
	check := exec.Command(monitoring.Tool(t, "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(ours.String())
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
