package fitness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// SuiteName is the suite's name in Ginkgo's reports.
const SuiteName = "csi-fencepost sanity"

// Suite is one run, from GinkgoTest on.
type Suite struct {
	config *Config
	rig    *rig
	report Report
	// progress is told each answer as it comes.
	progress io.Writer
}

// Test runs the suite on a driver, as a Ginkgo suite of its own, and returns the
// report, which it also logs if t is a *testing.T. It fails t unless the driver is
// fit, with settings or without. Ginkgo runs one suite in a process.
func Test(t ginkgo.GinkgoTestingT, config Config) *Report {
	s := GinkgoTest(&config)
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, SuiteName)
	r := s.Report()
	if t, ok := t.(interface{ Log(...any) }); ok {
		var text strings.Builder
		r.Text(&text)
		t.Log("\n" + text.String())
	}
	return r
}

// GinkgoTest registers the specs in a Ginkgo suite of the caller's, who registers
// the fail handler and runs it. What config points to is read when the specs run,
// so that it can still be changed in a BeforeSuite. Report has the outcome
// afterwards.
func GinkgoTest(config *Config) *Suite {
	s := &Suite{config: config, progress: io.Discard}
	ginkgo.Describe("A takeover with this driver", ginkgo.Ordered, ginkgo.ContinueOnFailure, ginkgo.Serial, func() {
		ginkgo.BeforeAll(func(ctx ginkgo.SpecContext) {
			ginkgo.DeferCleanup(s.cleanUp, ginkgo.NodeTimeout(cleanLimit))
			gomega.Expect(s.prepare(ctx, ginkgo.GinkgoWriter)).To(gomega.Succeed())
		})
		for _, q := range questions {
			ginkgo.It(q.name+": "+q.asks, func(ctx ginkgo.SpecContext) { s.spec(ctx, q) })
		}
		ginkgo.It("the verdict: is the driver fit?", func() {
			r := s.Report()
			gomega.Expect(r.Verdict).To(gomega.BeElementOf(FitForTakeover, FitWithSettings), "%s", r.Reasons)
		})
	})
	return s
}

// Report is what has been found so far, judged.
func (s *Suite) Report() *Report {
	r := s.report
	if s.rig != nil {
		r.Calls = s.rig.calls.times()
	}
	r.judge()
	return &r
}

// spec turns an outcome into that of a spec: one fails where the driver is unfit,
// and is skipped where the answer is unknown.
func (s *Suite) spec(ctx context.Context, q question) {
	o := s.ask(ctx, q)
	ginkgo.AddReportEntry("answer", fmt.Sprintf("%s: %s. %s", o.Answer, o.Saw, o.Means), ginkgo.ReportEntryVisibilityFailureOrVerbose)
	switch {
	case ctx.Err() != nil:
		ginkgo.Fail("it was interrupted")
	case o.Effect == Unfit:
		ginkgo.Fail(fmt.Sprintf("%s: %s. %s", o.Answer, o.Saw, o.Means))
	case o.Answer == Unknown:
		ginkgo.Skip(o.Saw)
	}
}

// prepare connects to the driver and makes the volume.
func (s *Suite) prepare(ctx context.Context, log logger) error {
	s.report = Report{Address: s.config.Address, Nodes: s.config.NodeIDs}
	err := s.begin(ctx, log)
	if err != nil {
		s.report.Problem = err.Error()
	}
	return err
}

func (s *Suite) begin(ctx context.Context, log logger) error {
	r, err := connect(ctx, s.config, newCalls(log.Printf), log)
	if r != nil && r.driver != nil {
		s.report.Driver, s.report.Version, s.report.Nodes = r.driver.Name(), r.version, slices.Clone(r.nodes)
	}
	if err != nil {
		return err
	}
	s.rig = r
	if !r.publishes {
		return nil // the first question says so, and the others are not asked
	}
	if err := r.makeVolume(ctx); err != nil {
		return err
	}
	s.report.Volume = r.volume.id
	return nil
}

// A logger is Ginkgo's, or a test's.
type logger interface {
	io.Writer
	Printf(format string, args ...any)
}

// ask asks one question and keeps its outcome.
func (s *Suite) ask(ctx context.Context, q question) Outcome {
	f, err := s.find(ctx, q)
	switch {
	case ctx.Err() != nil:
		s.report.Problem = "it was interrupted"
		f = unknown(Missing, "it was interrupted")
	case err != nil:
		f = unknown(Missing, "it could not be asked: %v", err)
	}
	o := Outcome{Question: q.name, Asks: q.asks, Answer: f.answer, Saw: f.saw, Effect: f.effect, Needs: f.needs, Means: f.means}
	if o.Means == "" && o.Effect != Fine && err == nil {
		o.Means = q.means
	}
	s.report.Outcomes = append(s.report.Outcomes, o)
	fmt.Fprintf(s.progress, "%2d/%d %s: %s (%s)\n", len(s.report.Outcomes), len(questions), o.Question, o.Answer, o.Saw)
	return o
}

func (s *Suite) find(ctx context.Context, q question) (found, error) {
	r := s.rig
	if !r.publishes {
		if q.name != nameOffers {
			return unknown(Open, "it was not asked: the driver does not publish volumes"), nil
		}
		return q.ask(ctx, r)
	}
	if q.name != nameOffers && q.name != nameListed { // nothing was published before
		if err := r.free(ctx); err != nil {
			return found{}, err
		}
	}
	return q.ask(ctx, r)
}

// cleanUp leaves nothing behind; an error says what it had to leave.
func (s *Suite) cleanUp(ctx context.Context) error {
	if s.rig == nil {
		return nil
	}
	defer s.rig.close()
	fmt.Fprintln(s.progress, "cleaning up")
	s.report.Left = s.rig.clean(ctx)
	var errs []error
	for _, text := range s.report.Left {
		errs = append(errs, errors.New("not cleaned up: "+text))
	}
	return errors.Join(errs...)
}
