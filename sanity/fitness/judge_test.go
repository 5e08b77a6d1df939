package fitness

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// asked are outcomes of all questions, every one yes, changed by the given.
func asked(changes ...Outcome) []Outcome {
	var all []Outcome
	for _, q := range questions {
		o := Outcome{Question: q.name, Asks: q.asks, Answer: Yes, Effect: Fine, Saw: "it answers OK"}
		for _, c := range changes {
			if c.Question == q.name {
				c.Asks, c.Means = q.asks, q.means
				o = c
			}
		}
		all = append(all, o)
	}
	return all
}

var (
	movesSilently = Outcome{Question: "publish elsewhere", Answer: No, Effect: Setting, Needs: Guard, Saw: "it answers OK and moves the volume"}
	slow          = Outcome{Question: "call times", Answer: No, Effect: Setting, Needs: Time, Saw: "at most 70s"}
	notTwice      = Outcome{Question: "unpublish twice", Answer: No, Effect: Unfit, Saw: "it answers INTERNAL"}
	unseen        = Outcome{Question: "late unpublish", Answer: Unknown, Effect: Missing, Saw: "nobody can see it"}
	notRevoked    = Outcome{Question: nameRevokes, Answer: No, Effect: Remark, Saw: "write 12 succeeded"}
	noWriter      = Outcome{Question: nameRevokes, Answer: Unknown, Effect: Open, Saw: "no writer"}
)

func judged(driver string, outcomes []Outcome) *Report {
	r := &Report{Driver: driver, Address: "/csi.sock", Outcomes: outcomes}
	r.judge()
	return r
}

func TestTheVerdictFollowsFromTheWorstAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		outcomes []Outcome
		want     Verdict
		code     int
	}{
		"all yes":                     {asked(), FitForTakeover, 0},
		"remarks and open questions":  {asked(notRevoked), FitForTakeover, 0},
		"a setting":                   {asked(movesSilently, noWriter), FitWithSettings, 0},
		"unfit beats a setting":       {asked(movesSilently, notTwice), NotFit, 1},
		"unfit beats what is missing": {asked(unseen, notTwice), NotFit, 1},
		"missing beats a setting":     {asked(unseen, movesSilently), CannotTell, 2},
		"not asked to the end":        {asked()[:3], CannotTell, 2},
		"nothing asked":               {nil, CannotTell, 2},
	} {
		r := judged("x.example.com", c.outcomes)
		if r.Verdict != c.want || r.ExitCode() != c.code {
			t.Errorf("%s: %s, exit code %d; want %s, %d", name, r.Verdict, r.ExitCode(), c.want, c.code)
		}
		if (r.Configuration != "") != (c.code == 0) {
			t.Errorf("%s: configuration %q", name, r.Configuration)
		}
		if r.Verdict != FitForTakeover && len(r.Reasons) == 0 {
			t.Errorf("%s: no reason is given", name)
		}
	}
}

func TestWhatKeptTheSuiteFromItsEndIsNoVerdict(t *testing.T) {
	r := &Report{Outcomes: asked(), Problem: "it was interrupted"}
	if r.judge(); r.Verdict != CannotTell {
		t.Errorf("%s", r.Verdict)
	}
	r = &Report{Outcomes: asked(notTwice), Problem: "it was interrupted"}
	if r.judge(); r.Verdict != NotFit {
		t.Errorf("what was seen before does not count: %s", r.Verdict)
	}
	var zero Report
	if zero.ExitCode() != 2 {
		t.Errorf("a report without a verdict is exit code %d", zero.ExitCode())
	}
}

// The settings are the words of the configuration, and mean what they say.
func TestEverySettingIsAConfiguration(t *testing.T) {
	for _, needs := range [][]Need{nil, {Guard}, {Time}, {TaintFirst}, {Guard, Time, TaintFirst}} {
		for _, revokes := range []bool{false, true} {
			text := snippet(needs, revokes)
			c, err := config.Parse([]byte(text))
			if err != nil {
				t.Errorf("%v: %v in\n%s", needs, err, text)
				continue
			}
			if c.Driver.UnpublishRevokesAccess != revokes || c.Mode != config.Enforce {
				t.Errorf("%v: %+v", needs, c)
			}
			if has := c.Unpublish.Unfenced == config.Refuse; has != strings.Contains(text, "unfenced") || has != (len(needs) > 0 && needs[0] == Guard) {
				t.Errorf("%v: unfenced is %q", needs, c.Unpublish.Unfenced)
			}
		}
	}
}

func TestRevocationIsConfiguredOnlyWhereItWasSeenAndNothingSpeaksAgainstIt(t *testing.T) {
	for name, c := range map[string]struct {
		driver   string
		outcomes []Outcome
		want     bool
	}{
		"seen":                      {"x.example.com", asked(), true},
		"not seen":                  {"x.example.com", asked(notRevoked), false},
		"not asked":                 {"x.example.com", asked(noWriter), false},
		"the profile says no":       {"ebs.csi.aws.com", asked(), false},
		"revoked by the node's own": {"rook-ceph.rbd.csi.ceph.com", asked(), false},
	} {
		r := judged(c.driver, c.outcomes)
		if got := strings.Contains(r.Configuration, "unpublishRevokesAccess: true"); got != c.want {
			t.Errorf("%s: %v\n%s", name, got, r.Configuration)
		}
	}
}

func TestADriverThatIsKnownIsHeldAgainstItsProfile(t *testing.T) {
	r := judged("ebs.csi.aws.com", asked())
	if len(r.Differs) != 2 || !strings.Contains(r.Differs[0], "lists published nodes") || !strings.Contains(r.Differs[1], "DetachVolume") {
		t.Errorf("%q", r.Differs)
	}
	if r := judged("x.example.com", asked()); len(r.Differs) != 0 {
		t.Errorf("%q", r.Differs)
	}
	r = judged("rbd.csi.ceph.com", asked(noWriter))
	if r.Verdict != FitWithSettings || !strings.Contains(r.Configuration, "outOfServiceTaint: true") || !strings.Contains(strings.Join(r.Besides, ""), "Taint first") {
		t.Errorf("taint first: %s, %s, %q", r.Verdict, r.Configuration, r.Besides)
	}
}

func TestASlowDriverNeedsAPatientAttacher(t *testing.T) {
	r := &Report{Driver: "x", Outcomes: asked(slow), Calls: []CallTimes{{Method: "ControllerPublishVolume", Max: 41}, {Method: "ControllerUnpublishVolume", Max: 29}, {Method: "ListVolumes", Max: 500}}}
	if r.judge(); r.Verdict != FitWithSettings || !strings.Contains(strings.Join(r.Besides, ""), "--timeout=110s") {
		t.Errorf("%s, %q", r.Verdict, r.Besides)
	}
}

// The report of each verdict, as a person reads it. go test -rewrite writes it
// anew; its difference is a change that users see.
func TestTheReportReadsAsItIsKept(t *testing.T) {
	times := []CallTimes{
		{Method: "ControllerPublishVolume", Calls: 70, Errors: 12, Min: 1.2, Median: 2.34, P95: 28.1, Max: 41.2345},
		{Method: "ControllerUnpublishVolume", Calls: 60, Errors: 2, Min: 0.9, Median: 1.34, P95: 3.1, Max: 29},
		{Method: "ControllerGetVolume", Calls: 9, Min: 0.0012, Median: 0.002, P95: 0.003, Max: 0.0039},
		{Method: "DeleteVolume", Calls: 1, Errors: 1},
	}
	for name, r := range map[string]*Report{
		"fit":      {Driver: "x.example.com", Version: "1.2", Nodes: []string{"n1", "n2"}, Volume: "vol-1", Outcomes: asked(), Calls: times},
		"settings": {Driver: "rbd.csi.ceph.com", Nodes: []string{"n1", "n2"}, Volume: "vol-1", Outcomes: asked(movesSilently, slow, noWriter), Calls: times},
		"not-fit":  {Driver: "ebs.csi.aws.com", Nodes: []string{"n1", "n2"}, Volume: "vol-1", Outcomes: asked(notTwice, notRevoked), Calls: times, Left: []string{"volume vol-1: DeleteVolume answered INTERNAL (no)"}},
		"problem":  {Problem: "no CSI driver answers at --csi-address /csi.sock"},
	} {
		r.Address = "/csi.sock"
		r.judge()
		var got strings.Builder
		r.Text(&got)
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(file, []byte(got.String()), 0o644))
		}
		want, err := os.ReadFile(file)
		must(t, err)
		if got.String() != string(want) {
			t.Errorf("%s differs: run go test -rewrite\n%s", file, got.String())
		}
	}
}

func TestTimesAreRankedByNearestRank(t *testing.T) {
	c := newCalls(func(string, ...any) {})
	for i := 20; i > 0; i-- {
		c.took["m"] = append(c.took["m"], time.Duration(i)*time.Second)
	}
	got := c.of("m")
	if got.Min != 1 || got.Median != 10 || got.P95 != 19 || got.Max != 20 || got.Calls != 20 {
		t.Errorf("%+v", got)
	}
	if none := c.of("none"); none.Calls != 0 || none.Max != 0 {
		t.Errorf("%+v", none)
	}
}
