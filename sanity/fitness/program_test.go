package fitness

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
)

// asProgram makes this test binary the program, for Ginkgo runs one suite in a
// process.
const asProgram = "CSI_FENCEPOST_SANITY_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	o, err := setup.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, setup.Explain(err))
		os.Exit(setup.ExitCannotTell)
	}
	os.Exit(Run(o, os.Stdout, os.Stderr))
}

// program is one run of it.
type program struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func newProgram(t *testing.T, b *bench, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &program{Cmd: exec.CommandContext(t.Context(), self, append([]string{
		"--csi-address=" + b.socket, "--node-ids=n1,n2", "--timeout=2s", "--watch=50ms", "--rounds=3"}, args...)...)}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Stdout, p.Stderr = &p.out, &p.err
	return p
}

func (p *program) wants(t *testing.T, code int) {
	t.Helper()
	p.Wait()
	if got := p.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d\n%s\n%s", got, code, p.out.String(), p.err.String())
	}
}

// junit is the part of the report that is read.
type junit struct {
	Suites []struct {
		Name  string `xml:"name,attr"`
		Cases []struct {
			Name   string `xml:"name,attr"`
			Status string `xml:"status,attr"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// specs are the statuses by the question's name.
func specs(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var j junit
	must(t, xml.Unmarshal(text, &j))
	found := map[string]string{}
	for _, s := range j.Suites {
		for _, c := range s.Cases {
			if name, is := strings.CutPrefix(c.Name, "[It] A takeover with this driver "); is {
				name, _, _ = strings.Cut(name, ":")
				found[name] = c.Status
			}
		}
	}
	return found
}

func TestAFitDriverIsReportedInEveryForm(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	dir := t.TempDir()
	p := newProgram(t, b, "--junit-file="+dir+"/junit.xml", "--report="+dir+"/report.txt", "-o=json")
	must(t, p.Start())
	p.wants(t, setup.ExitFit)
	var r Report
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		t.Fatalf("standard output is not JSON alone: %v\n%s", err, p.out.String())
	}
	if r.Verdict != FitForTakeover || len(r.Outcomes) != len(questions) || len(r.Calls) == 0 || r.Driver != array.DefaultDriverName {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(dir + "/report.txt")
	must(t, err)
	if !strings.Contains(string(text), "VERDICT: fit for takeover\n") {
		t.Errorf("the report:\n%s", text)
	}
	found := specs(t, dir+"/junit.xml")
	for _, q := range questions {
		if want := map[Answer]string{Yes: "passed", Unknown: "skipped"}[r.outcome(t, q.name).Answer]; found[q.name] != want {
			t.Errorf("JUnit has %q for %q, want %q", found[q.name], q.name, want)
		}
	}
	if found["the verdict"] != "passed" {
		t.Errorf("JUnit has no verdict: %v", found)
	}
	b.spotless(t)
}

func TestADriverThatIsNotFitFailsItsSpecsAndTheVerdict(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	b.Inject(array.Fault{Method: array.Publish, Node: "n2", Do: array.Lie})
	file := filepath.Join(t.TempDir(), "junit.xml")
	p := newProgram(t, b, "--junit-file="+file, "-o=yaml")
	must(t, p.Start())
	p.wants(t, setup.ExitNotFit)
	var r Report
	must(t, yaml.UnmarshalStrict(p.out.Bytes(), &r))
	if r.Verdict != NotFit || r.Configuration != "" {
		t.Errorf("%+v", r)
	}
	found := specs(t, file)
	if found["publish elsewhere"] != "failed" || found["the verdict"] != "failed" || found["publish again"] != "passed" {
		t.Errorf("%v", found)
	}
	b.spotless(t)
}

func TestWithoutAVerdictTheExitCodeIsAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a flag is wrong":         {[]string{"--rounds=0"}, "--rounds is 0"},
		"no driver":               {[]string{"--csi-address=" + b.socket + ".nobody"}, "no CSI driver answers"},
		"a report has no folder":  {[]string{"--report=/nonexistent/report.txt"}, "/nonexistent/report.txt"},
		"JUnit's has none either": {[]string{"--junit-file=/nonexistent/junit.xml"}, "/nonexistent/junit.xml"},
	} {
		p := newProgram(t, b, c.args...)
		must(t, p.Start())
		p.wants(t, setup.ExitCannotTell)
		if all := p.out.String() + p.err.String(); !strings.Contains(all, c.says) {
			t.Errorf("%s: it does not say %q:\n%s", name, c.says, all)
		}
	}
	if calls := b.CallsOf("CreateVolume", ""); len(calls) > 0 {
		t.Errorf("a volume was created: %v", calls)
	}
}

func TestCtrlCCleansUp(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, array.Options{})
			// The second publish hangs until the caller gives up, and is done then.
			b.Inject(array.Fault{Method: array.Publish, Do: array.Proceed, Times: 1})
			b.Inject(array.Fault{Method: array.Publish, Do: array.HangThenDo, Times: 1})
			p := newProgram(t, b, "--timeout=1m", "-v")
			must(t, p.Start())
			hanging := func(c array.Call) bool {
				return c.Method == array.Publish && c.End.IsZero() && len(b.CallsOf(array.Publish, "")) > 1
			}
			if _, err := b.WaitCall(t.Context(), "a publish that hangs", hanging); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			must(t, p.Process.Signal(sig))
			p.wants(t, setup.ExitCannotTell)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s to end", took)
			}
			if !strings.Contains(p.out.String(), "VERDICT: cannot tell") || !strings.Contains(p.out.String(), "interrupted") {
				t.Errorf("the report:\n%s", p.out.String())
			}
			b.spotless(t)
		})
	}
}
