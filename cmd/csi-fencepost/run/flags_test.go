package run

import (
	"context"
	"flag"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-lib-utils/standardflags"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// good is a command line of run that is right.
func good(more ...string) []string {
	return append([]string{"--csi-address=/csi/csi.sock", "--listen=/fencepost/csi.sock"}, more...)
}

func TestWrongFlagIsNamedAndExplained(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown":                {good("--csi-adress=x"), "-csi-adress"},
		"positional":             {good("junk"), `"junk" is not a flag`},
		"value after a space":    {good("--leader-election", "true"), `"true" is not a flag`},
		"no csi-address":         {[]string{"--listen=/l"}, "--csi-address is missing"},
		"no listen":              {[]string{"--csi-address=/a"}, "--listen is missing"},
		"both missing":           {nil, "--csi-address is missing: the socket of the CSI driver, for example --csi-address=/csi/csi.sock\n--listen is missing"},
		"same socket":            {[]string{"--csi-address=unix:///csi/csi.sock", "--listen=/csi//csi.sock"}, "are the same socket"},
		"timeout":                {good("--timeout=0s"), "--timeout is 0s"},
		"timeout without unit":   {good("--timeout=15"), "timeout"},
		"qps":                    {good("--kube-api-qps=0"), "--kube-api-qps is 0"},
		"burst":                  {good("--kube-api-burst=-1"), "--kube-api-burst is -1"},
		"metrics path":           {good("--metrics-path=metrics"), "--metrics-path is \"metrics\""},
		"metrics path taken":     {good("--metrics-path=/readyz"), "--metrics-path is /readyz"},
		"relative agent folder":  {good("--agent-dirs=/usr/sbin,agents"), `folder "agents" is not an absolute path`},
		"empty agent folder":     {good("--agent-dirs="), `folder "" is not an absolute path`},
		"root as agent folder":   {good("--agent-dirs=/usr/sbin,/"), "folder /: every program of the container would be a fence agent"},
		"system agent folder":    {good("--agent-dirs=/usr"), "/usr is a folder of the system"},
		"agent folder of kernel": {good("--agent-dirs=/proc/self/root/usr/sbin"), "/proc is a folder of the system"},
		"label":                  {good("--leader-election-labels=a"), "it has to be key:value, several of them separated by commas, such as app:csi"},
		"lease duration":         {good("--leader-election", "--leader-election-lease-duration=10s"), "--leader-election-lease-duration (10s) has to be more"},
		"retry period":           {good("--leader-election", "--leader-election-retry-period=9s"), "--leader-election-retry-period (9s)"},
		"retry period 0":         {good("--leader-election", "--leader-election-retry-period=0s"), "has to be more than 0"},
		"no-kubernetes config":   {good("--no-kubernetes", "--config=/c"), "--config has no effect with --no-kubernetes"},
		"no-kubernetes leader":   {good("--no-kubernetes", "--leader-election"), "--leader-election has no effect"},
		"no-kubernetes api rate": {good("--no-kubernetes", "--kube-api-qps=5"), "--kube-api-qps has no effect"},
		"two at once":            {good("--timeout=0s", "--kube-api-burst=0"), "--kube-api-burst is 0"},
		"logging format":         {good("--logging-format=xml"), "logging-format"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := sidecarLine(append([]string{"run"}, c.args...)...)
			if code != cli.ExitUsage {
				t.Errorf("exit code %d, want %d", code, cli.ExitUsage)
			}
			if !strings.Contains(stderr, c.want) {
				t.Errorf("stderr %q does not say %q", stderr, c.want)
			}
			if stdout != "" {
				t.Errorf("an error went to stdout: %q", stdout)
			}
		})
	}
}

func TestRightFlagsAreTaken(t *testing.T) {
	f, err := parseRunFlags(good("--agent-dirs=/a/,/b", "-v=4", "--leader-election-labels=team:storage", "--leader-election"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.agentDirs, []string{"/a", "/b"}) {
		t.Errorf("--agent-dirs: %v", f.agentDirs)
	}
	if f.LeaderElectionLabels["team"] != "storage" {
		t.Errorf("--leader-election-labels: %v", f.LeaderElectionLabels)
	}
	if f.logging.Verbosity != 4 {
		t.Errorf("-v: %d", f.logging.Verbosity)
	}
}

func TestEveryMetricsPathThatIsTakenIsServed(t *testing.T) {
	for _, path := range []string{"/metrics", "/metrics/", "/", "/a-b_c.d~e/1", "/statusz/metrics", "/healthz/"} {
		f, err := parseRunFlags(good("--metrics-path=" + path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if code, body := get(t, f.mux(t), path); code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// mux is what is served with these flags.
func (f *runFlags) mux(t *testing.T) *http.ServeMux {
	t.Helper()
	r := &runner{flags: f, config: config.Default(), metrics: sidecar.NewMetrics(), ready: &sidecar.Readiness{}, leader: newLeaderHealth()}
	r.board = sidecar.NewBoard("", r.config, f.LeaderElection, r.ready)
	return r.mux()
}

// One process's flags are not another's: nothing is kept in globals.
func TestFlagsAreIndependent(t *testing.T) {
	first, err := parseRunFlags(good("--leader-election-labels=a:b", "--agent-dirs=/a"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := parseRunFlags(good())
	if err != nil {
		t.Fatal(err)
	}
	if len(second.LeaderElectionLabels) != 0 || second.agentDirs.String() != "/usr/sbin" {
		t.Errorf("second has %v %v, the first's", second.LeaderElectionLabels, second.agentDirs)
	}
	if first.agentDirs.String() != "/a" {
		t.Errorf("first has %v", first.agentDirs)
	}
}

// Whoever knows one CSI sidecar knows the flags of this one.
func TestFlagsAreThoseOfEverySidecar(t *testing.T) {
	own := map[string]string{
		"csi-address":    "", // a wrong default would be dialled for ever
		"kube-api-qps":   "50",
		"kube-api-burst": "100",
	}
	ours := newRunFlags().set
	standard := flag.NewFlagSet("standard", flag.ContinueOnError)
	standardflags.RegisterCommonFlags(standard)
	seen := 0
	standard.VisitAll(func(theirs *flag.Flag) {
		if theirs.Name == "metrics-address" { // deprecated there
			return
		}
		seen++
		flag := ours.Lookup(theirs.Name)
		if flag == nil {
			t.Errorf("--%s is missing", theirs.Name)
			return
		}
		want, differs := own[theirs.Name]
		if !differs {
			want = theirs.DefValue
		}
		if flag.DefValue != want {
			t.Errorf("--%s: default %q, want %q", theirs.Name, flag.DefValue, want)
		}
	})
	if seen < 10 {
		t.Errorf("only %d standard flags were compared", seen)
	}
	if theirs := flag.CommandLine.Lookup("metrics-path"); ours.Lookup("metrics-path").DefValue != theirs.DefValue {
		t.Errorf("--metrics-path: default %q, want %q", ours.Lookup("metrics-path").DefValue, theirs.DefValue)
	}
}

func TestHelpOfRunListsEveryFlag(t *testing.T) {
	for _, args := range [][]string{{"run", "--help"}, {"help", "run"}} {
		code, stdout, _ := sidecarLine(args...)
		if code != cli.ExitOK {
			t.Errorf("%v: exit code %d", args, code)
		}
		newRunFlags().set.VisitAll(func(f *flag.Flag) {
			if !strings.Contains(stdout, "\n  -"+f.Name) {
				t.Errorf("%v: --%s is not listed", args, f.Name)
			}
		})
	}
}

// sidecarLine runs a command line that ends before anything is started.
func sidecarLine(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = cli.Run(context.Background(), []cli.Command{Command()}, args, &out, &errs)
	return code, out.String(), errs.String()
}

// Commands, make targets and links are held by sanity/docs, on every page.
func TestReadmeNamesOnlyFlagsThatRunHas(t *testing.T) {
	readme := clitest.ReadFile(t, "README.md")
	flags := newRunFlags().set
	for _, match := range regexp.MustCompile("`--([a-z-]+)[=`]").FindAllStringSubmatch(readme, -1) {
		if flags.Lookup(match[1]) == nil {
			t.Errorf("README.md names --%s, which run does not have", match[1])
		}
	}
}
