package fitness

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"
	"github.com/onsi/gomega"

	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
)

// suiteLimit is longer than any suite: each call has a deadline of its own.
const suiteLimit = 24 * time.Hour

// tester is what Ginkgo tells that the suite failed; the verdict says it better.
type tester struct{}

func (tester) Fail() {}

// Run is the program csi-fencepost sanity, with its flags read: it runs the suite,
// writes the reports, and returns the exit code. SIGINT and SIGTERM end the
// question that is being asked, and the suite cleans up; a second one ends that
// too.
func Run(o *setup.Options, stdout, stderr io.Writer) int {
	files, err := createAll(o.JUnitFile, o.ReportFile)
	if err != nil {
		fmt.Fprintf(stderr, "csi-fencepost sanity: %v\n", err)
		return setup.ExitCannotTell
	}
	defer files.close()
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.Timeout, suite.GracePeriod = suiteLimit, cleanLimit
	reporter.JUnitReport, reporter.NoColor = o.JUnitFile, true
	formatter.ColorableStdOut = io.Discard
	if o.Verbose {
		formatter.ColorableStdOut, reporter.Verbose = stderr, true
	}
	s := GinkgoTest(&o.Config)
	s.progress = stderr
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(tester{}, SuiteName, suite, reporter)
	r := s.Report()
	if err := write(r, o, stdout); err != nil {
		fmt.Fprintf(stderr, "csi-fencepost sanity: %v\n", err)
		return setup.ExitCannotTell
	}
	return r.ExitCode()
}

// ExitCode of the program for this report.
func (r *Report) ExitCode() int {
	switch r.Verdict {
	case FitForTakeover, FitWithSettings:
		return setup.ExitFit
	case NotFit:
		return setup.ExitNotFit
	}
	return setup.ExitCannotTell
}

type openFiles []*os.File

// createAll finds out before the suite runs whether its reports can be written.
func createAll(paths ...string) (files openFiles, err error) {
	for _, p := range paths {
		if p == "" {
			continue
		}
		f, err := os.Create(p)
		if err != nil {
			files.close()
			return nil, fmt.Errorf("the report cannot be written: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func (files openFiles) close() {
	for _, f := range files {
		f.Close()
	}
}

func write(r *Report, o *setup.Options, stdout io.Writer) error {
	if o.ReportFile != "" {
		f, err := os.Create(o.ReportFile)
		if err != nil {
			return err
		}
		defer f.Close()
		r.Text(f)
	}
	var text []byte
	var err error
	switch o.Output {
	case "json":
		text, err = r.JSON()
	case "yaml":
		text, err = r.YAML()
	default:
		r.Text(stdout)
		return nil
	}
	if err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}
