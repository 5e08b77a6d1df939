package run

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/leaderelection"
	"github.com/kubernetes-csi/csi-lib-utils/standardflags"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// errVersion ends a run that was only asked for the version.
var errVersion = errors.New("version asked for")

// runFlags are the flags of `csi-fencepost run`, or of failover, which has some of them.
type runFlags struct {
	name string // of the subcommand

	// The flags that all CSI sidecars share. They are registered by
	// registerStandard and not by standardflags itself, which keeps them in
	// globals, registers --metrics-path elsewhere, and has other defaults.
	standardflags.SidecarConfiguration

	listen       string
	config       string
	agentDirs    cli.FolderList
	noKubernetes bool
	tlsCert      string
	tlsKey       string
	authorize    bool // of --http-endpoint
	timeout      time.Duration
	maxMessage   int
	drivers      driverList // of failover

	logging *logsapi.LoggingConfiguration
	gates   featuregate.MutableVersionedFeatureGate
	set     *flag.FlagSet
}

// newRunFlags returns the flags of run with their defaults.
func newRunFlags() *runFlags {
	f := newFlags("run")
	f.set.StringVar(&f.CSIAddress, "csi-address", "", "The driver's socket: unix:///path or /path. Required.")
	f.set.StringVar(&f.listen, "listen", "", "The socket to serve for external-attacher: unix:///path or /path. Required.")
	f.set.BoolVar(&f.noKubernetes, "no-kubernetes", false, "Run without a Kubernetes API: every call is forwarded and nothing is guarded. For a driver's own tests.")
	f.set.DurationVar(&f.timeout, "timeout", 15*time.Second, "The deadline of the calls that csi-fencepost makes to the driver for itself. Calls of the attacher keep the attacher's deadline.")
	f.set.IntVar(&f.maxMessage, "max-message-size", proxy.DefaultMaxMessageSize, "The largest gRPC message that passes between external-attacher and the driver, in bytes. The default is gRPC's own, and the most that external-attacher receives.")
	f.set.BoolVar(&f.LeaderElection, "leader-election", false, "Let one replica at a time do the background work. Calls are served by every replica in any case.")
	return f
}

// newFailoverFlags returns the flags of failover with their defaults.
func newFailoverFlags() *runFlags {
	f := newFlags("failover")
	f.set.Var(&f.drivers, "driver", "The name of a CSI driver whose volumes are moved; may be given several times. Without it: every driver that has a ClusterRoleBinding "+deploy.EnforcingPrefix+"DRIVER, looked at again every minute.")
	f.set.BoolVar(&f.LeaderElection, "leader-election", false, "Let one replica at a time fence and move. Every replica watches in any case.")
	return f
}

// driverList is a flag that is given once for each driver.
type driverList []string

func (l *driverList) String() string { return strings.Join(*l, ",") }

func (l *driverList) Set(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errors.New("it has to be the name of a driver, as in its CSIDriver object")
	}
	*l = append(*l, name)
	return nil
}

// newFlags returns the flags that both have, with their defaults.
func newFlags(name string) *runFlags {
	f := &runFlags{
		name:      name,
		agentDirs: cli.FolderList{"/usr/sbin"},
		logging:   logsapi.NewLoggingConfiguration(),
		gates:     featuregate.NewFeatureGate(),
		set:       flag.NewFlagSet("csi-fencepost "+name, flag.ContinueOnError),
	}
	f.set.SetOutput(io.Discard) // errors are printed once, by main
	f.registerStandard(f.set)
	f.set.StringVar(&f.config, "config", "", "The configuration file. Without one, every default holds.")
	f.set.Var(&f.agentDirs, "agent-dirs", "The folders in which fence agents may be, absolute, separated by commas.")
	f.set.StringVar(&f.tlsCert, "tls-cert-file", "", "The certificate, with those of its issuers, with which --http-endpoint is served over HTTPS. It is read again when it is rotated. Probes need scheme: HTTPS then. Empty: plain HTTP.")
	f.set.StringVar(&f.tlsKey, "tls-private-key-file", "", "The private key of --tls-cert-file.")
	f.set.BoolVar(&f.authorize, "http-authorization", false, "Serve --http-endpoint, but for "+strings.Join(openPaths, ", ")+", only to those whose bearer token the Kubernetes API lets get the path (TokenReview, SubjectAccessReview of nonResourceURLs). Needs --tls-cert-file, and the rights of deploy/rbac/authorization.yaml.")
	// Only an unregistered gate fails here, and this one is new.
	if err := logsapi.AddFeatureGates(f.gates); err != nil {
		panic(err)
	}
	logsapi.AddGoFlags(f.logging, f.set)
	return f
}

// registerStandard registers the flags of csi-lib-utils' standardflags under
// their own names. The API limits are higher than there: a takeover of many
// volumes is bound by them.
func (f *runFlags) registerStandard(fs *flag.FlagSet) {
	f.LeaderElectionLabels = map[string]string{}
	fs.BoolVar(&f.ShowVersion, "version", false, "Print the version and exit.")
	fs.StringVar(&f.KubeConfig, "kubeconfig", "", "The kubeconfig file. Needed only outside of a cluster.")
	fs.Float64Var(&f.KubeAPIQPS, "kube-api-qps", 50, "Requests per second to the Kubernetes API.")
	fs.IntVar(&f.KubeAPIBurst, "kube-api-burst", 100, "Requests to the Kubernetes API in one burst.")
	fs.StringVar(&f.HttpEndpoint, "http-endpoint", "", "The TCP address of metrics, /healthz, /readyz and "+leaderelection.HealthCheckerAddress+", for example :8080. Empty: not served.")
	fs.StringVar(&f.MetricsPath, "metrics-path", "/metrics", "The HTTP path of the metrics.")
	fs.StringVar(&f.LeaderElectionNamespace, "leader-election-namespace", "", "The namespace of the leader's Lease. Default: the pod's.")
	fs.DurationVar(&f.LeaderElectionLeaseDuration, "leader-election-lease-duration", 15*time.Second, "How long a candidate waits before it takes the lead from a silent leader.")
	fs.DurationVar(&f.LeaderElectionRenewDeadline, "leader-election-renew-deadline", 10*time.Second, "How long a leader tries to renew before it gives the lead up.")
	fs.DurationVar(&f.LeaderElectionRetryPeriod, "leader-election-retry-period", 5*time.Second, "How long to wait between two tries.")
	fs.Var(&f.LeaderElectionLabels, "leader-election-labels", "Labels of the leader's Lease: key:value, separated by commas.")
}

// parseRunFlags reads the command line of `csi-fencepost run`.
func parseRunFlags(args []string) (*runFlags, error) {
	f := newRunFlags()
	return f, f.parse(args, "csi-fencepost run serves external-attacher on --listen and talks to the driver on --csi-address.", f.wrongSockets, f.wrong, f.wrongTogether)
}

// parseFailoverFlags reads that of `csi-fencepost failover`.
func parseFailoverFlags(args []string) (*runFlags, error) {
	f := newFailoverFlags()
	return f, f.parse(args, `csi-fencepost failover moves the pods of dead nodes, and turns such nodes off, for all drivers that csi-fencepost guards: as a Deployment of its own account (deploy/failover).
It has a configuration of its own, with failover.enabled: true, and no driver's socket: agents that cut off a driver's storage stay in that driver's sidecar.`, f.wrong)
}

// parse returns the help or errVersion when only those were asked for, and a usage error that
// names the flag when something is wrong.
func (f *runFlags) parse(args []string, about string, checks ...func() []error) error {
	err := f.set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return f.help(about)
	case err != nil:
		return cli.Usagef("%s: %s; csi-fencepost %s --help lists the flags", f.name, f.explain(err), f.name)
	case f.ShowVersion:
		return errVersion
	case f.set.NArg() > 0:
		return cli.Usagef("%s: %q is not a flag, and %s takes nothing else; is a -- missing, or a = before a value?", f.name, f.set.Arg(0), f.name)
	}
	var errs []error
	for _, check := range append(checks, f.wrongLease, f.wrongElection) {
		errs = append(errs, check()...)
	}
	if err := errors.Join(errs...); err != nil {
		return cli.Usagef("%s: %v", f.name, err)
	}
	return nil
}

// collect returns what appends an error to errs if something is so.
func collect(errs *[]error) func(is bool, format string, args ...any) {
	return func(is bool, format string, args ...any) {
		if is {
			*errs = append(*errs, fmt.Errorf(format, args...))
		}
	}
}

// wrongSockets returns what is wrong with the two sockets, and with the calls between them.
func (f *runFlags) wrongSockets() (errs []error) {
	bad := collect(&errs)
	bad(f.CSIAddress == "", "--csi-address is missing: the socket of the CSI driver, for example --csi-address=/csi/csi.sock")
	bad(f.listen == "", "--listen is missing: the socket that external-attacher is to use, for example --listen=/fencepost/csi.sock")
	bad(f.CSIAddress != "" && trimScheme(f.CSIAddress) == trimScheme(f.listen), "--listen and --csi-address are the same socket %s: the driver has its own, and external-attacher's --csi-address is the one of --listen", f.listen)
	bad(f.timeout <= 0, "--timeout is %s: it has to be more than 0", f.timeout)
	bad(f.maxMessage < proxy.DefaultMaxMessageSize || f.maxMessage > math.MaxInt32, "--max-message-size is %d: it has to be a number of bytes from %d, which passes without csi-fencepost too, to %d", f.maxMessage, proxy.DefaultMaxMessageSize, math.MaxInt32)
	return errs
}

// wrong returns everything that is wrong with the flags that both subcommands have.
func (f *runFlags) wrong() (errs []error) {
	bad := collect(&errs)
	// NaN compares as false. client-go keeps the rate as a float32, in which what is
	// too small becomes 0, which is no limit, and what is too large becomes infinite.
	qps := float32(f.KubeAPIQPS)
	bad(!(qps > 0 && qps <= math.MaxFloat32), "--kube-api-qps is %v: it has to be a number of requests per second that is more than 0, such as 50", f.KubeAPIQPS)
	bad(f.KubeAPIBurst <= 0, "--kube-api-burst is %d: it has to be more than 0", f.KubeAPIBurst)
	bad(!plainPath(f.MetricsPath), "--metrics-path is %q: it has to be a path of letters, digits and the signs - _ . ~ that begins with /, such as /metrics", f.MetricsPath)
	for _, taken := range []string{healthPath, ReadyPath, leaderelection.HealthCheckerAddress, sidecar.StatuszPath, sidecar.StatuszJSONPath} {
		bad(f.MetricsPath == taken, "--metrics-path is %s, which has a meaning of its own: choose another one", taken)
	}
	if err := checkEndpoint(f.HttpEndpoint); err != nil {
		bad(true, "--http-endpoint is %q: it has to be host:port or :port, such as :8080: %v", f.HttpEndpoint, err)
	}
	for _, fault := range logsapi.Validate(f.logging, f.gates, nil) {
		name, _, _ := strings.Cut(fault.Field, "[")
		bad(true, "%s: %s", logFlags[name], fault.ErrorBody())
	}
	bad((f.tlsCert == "") != (f.tlsKey == ""), "--tls-cert-file and --tls-private-key-file belong together: one of them is missing")
	bad((f.tlsCert != "" || f.authorize) && f.HttpEndpoint == "", "--tls-cert-file and --http-authorization have no effect without --http-endpoint")
	bad(f.authorize && f.tlsCert == "", "--http-authorization needs --tls-cert-file and --tls-private-key-file: without TLS anybody on the way reads the tokens")
	return errs
}

// logFlags are the flags of the log's fields, and what each has to be.
var logFlags = map[string]string{
	"format":         "--logging-format has to be json or text",
	"flushFrequency": "--log-flush-frequency has to be more than 0, such as 5s",
	"vmodule":        "--vmodule has to be PATTERN=N, and goes with --logging-format=text",

	"options.text.splitStream":    "--log-text-split-stream" + needsAlpha,
	"options.text.infoBufferSize": "--log-text-info-buffer-size" + needsAlpha,
	"options.json.splitStream":    "--log-json-split-stream" + needsAlpha,
	"options.json.infoBufferSize": "--log-json-info-buffer-size" + needsAlpha,
}

// needsAlpha is said of flags of the log that only a feature gate switches on, which there is no flag for.
const needsAlpha = " has no effect here: take it off"

// pathForm is a path that needs no escapes. http.ServeMux takes blanks and braces for a
// method and for wildcards, and panics where they make none.
var pathForm = regexp.MustCompile(`^/[A-Za-z0-9/._~-]*$`)

// plainPath tells whether the HTTP server can serve the path as it is written: one with
// // or .. in it is never asked for, since the server redirects to the clean one first.
func plainPath(p string) bool {
	return pathForm.MatchString(p) && (path.Clean(p) == p || path.Clean(p)+"/" == p)
}

// wrongTogether returns what contradicts --no-kubernetes. A flag without effect
// would be believed to have one.
func (f *runFlags) wrongTogether() (errs []error) {
	if !f.noKubernetes {
		return nil
	}
	f.set.Visit(func(given *flag.Flag) {
		switch name := given.Name; {
		case name == "config", name == "kubeconfig", name == "http-authorization", strings.HasPrefix(name, "kube-api-"), strings.HasPrefix(name, "leader-election"):
			errs = append(errs, fmt.Errorf("--%s has no effect with --no-kubernetes: take one of them off", name))
		}
	})
	return errs
}

// checkEndpoint finds what is no address. Whether it can be listened on shows later.
func checkEndpoint(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// wrongLease returns what the API server would refuse of the leader's Lease, again and
// again.
func (f *runFlags) wrongLease() (errs []error) {
	if ns := f.LeaderElectionNamespace; ns != "" {
		for _, fault := range validation.IsDNS1123Label(ns) {
			errs = append(errs, fmt.Errorf("--leader-election-namespace is %q: it has to be the name of a namespace: %s", ns, fault))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.LeaderElectionLabels)) {
		for _, fault := range validation.IsQualifiedName(key) {
			errs = append(errs, fmt.Errorf("--leader-election-labels: %q is no key of a label: %s", key, fault))
		}
		for _, fault := range validation.IsValidLabelValue(f.LeaderElectionLabels[key]) {
			errs = append(errs, fmt.Errorf("--leader-election-labels: %q is no value of a label: %s", f.LeaderElectionLabels[key], fault))
		}
	}
	return errs
}

// A Lease counts whole seconds, and for longer than maxLease nobody would wait for the
// lead of a leader that died.
const (
	minLease = time.Second
	maxLease = 24 * time.Hour
)

// wrongElection returns what client-go would refuse only after the driver has
// answered.
func (f *runFlags) wrongElection() (errs []error) {
	if !f.LeaderElection {
		return nil
	}
	if d := f.LeaderElectionLeaseDuration; d < minLease || d > maxLease {
		errs = append(errs, fmt.Errorf("--leader-election-lease-duration is %s: it has to be from %s to %s", d, minLease, maxLease))
	}
	if f.LeaderElectionLeaseDuration <= f.LeaderElectionRenewDeadline {
		errs = append(errs, fmt.Errorf("--leader-election-lease-duration (%s) has to be more than --leader-election-renew-deadline (%s)", f.LeaderElectionLeaseDuration, f.LeaderElectionRenewDeadline))
	}
	if f.LeaderElectionRetryPeriod <= 0 || float64(f.LeaderElectionRenewDeadline) <= electionJitter*float64(f.LeaderElectionRetryPeriod) {
		errs = append(errs, fmt.Errorf("--leader-election-renew-deadline (%s) has to be more than %v times --leader-election-retry-period (%s), which has to be more than 0", f.LeaderElectionRenewDeadline, electionJitter, f.LeaderElectionRetryPeriod))
	}
	return errs
}

// invalidValue is how package flag says that a value cannot be read.
var invalidValue = regexp.MustCompile(`^(invalid(?: boolean)? value ".*" for (?:flag )?-([a-z-]+)): `)

// explain says what a flag's value would have to be, where package flag says only that
// it cannot be parsed, and what a flag that there is not may have meant.
func (f *runFlags) explain(err error) string {
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		return cli.UnknownFlag(name, f.pflags())
	}
	parts := invalidValue.FindStringSubmatch(err.Error())
	if parts == nil || f.set.Lookup(parts[2]) == nil {
		return err.Error()
	}
	if must := cli.MustBe(pflag.PFlagFromGoFlag(f.set.Lookup(parts[2]))); must != "" {
		return parts[1] + ": " + must
	}
	return err.Error()
}

// help is what it is about, the flags and their defaults, as an error.
func (f *runFlags) help(about string) error {
	var text strings.Builder
	text.WriteString(about + "\n\nFlags:\n")
	f.set.SetOutput(&text)
	f.set.PrintDefaults()
	return cli.HelpWith(text.String(), f.pflags())
}

func (f *runFlags) pflags() *pflag.FlagSet {
	flags := pflag.NewFlagSet(f.name, pflag.ContinueOnError)
	flags.AddGoFlagSet(f.set)
	return flags
}

// trimScheme returns the path of a socket address, in one spelling.
func trimScheme(address string) string {
	return filepath.Clean(strings.TrimPrefix(address, "unix://"))
}
