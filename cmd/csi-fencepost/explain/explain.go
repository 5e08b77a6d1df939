package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// explainFlags are the flags and arguments of `csi-fencepost explain`.
type explainFlags struct {
	cluster    cluster.Flags
	agents     cluster.AgentFlags
	namespace  string
	observe    time.Duration
	watch      bool
	kind, name string
	set        *cli.Flags
}

func parseExplainFlags(args []string) (*explainFlags, error) {
	f := &explainFlags{set: cli.NewFlags("explain", explainHelp)}
	f.set.Output("text", "json", "yaml")
	f.set.StringVarP(&f.namespace, "namespace", "n", "", "The namespace of the claim or pod. Default: the one of the kubeconfig's context.")
	f.set.DurationVar(&f.observe, "observe", 0, "Watch the holders' leases for so long, to tell whether they live. A kubelet renews its lease every 10 seconds.")
	f.set.BoolVarP(&f.watch, "watch", "w", false, "Print it again and again, until interrupted.")
	f.cluster.Register(f.set)
	f.agents.Register(f.set)
	if err := f.set.Parse(args); err != nil {
		return f, err
	}
	if f.observe < 0 || f.observe > 10*time.Minute {
		return nil, f.set.Wrong("--observe is %s: it has to be between 0 and 10m", f.observe)
	}
	return f, f.subject(f.set.Args())
}

// subjects by the names that people type, and in words.
var subjects = map[string]string{
	"pv": "pv", "persistentvolume": "pv", "persistentvolumes": "pv",
	"pvc": "pvc", "persistentvolumeclaim": "pvc", "persistentvolumeclaims": "pvc",
	"pod": "pod", "pods": "pod", "po": "pod",
	"node": "node", "nodes": "node", "no": "node",
}

var subjectWords = map[string]string{"pv": "PersistentVolume", "pvc": "PersistentVolumeClaim", "pod": "Pod", "node": "Node"}

// subject reads what is to be explained.
func (f *explainFlags) subject(args []string) error {
	if len(args) == 0 {
		return f.set.Wrong("nothing is named; csi-fencepost explain pv NAME")
	}
	if f.kind = subjects[args[0]]; f.kind == "" {
		return f.set.Wrong("%q is none of pv, pvc, pod and node; csi-fencepost explain pv NAME", args[0])
	}
	switch what := subjectWords[f.kind]; {
	case len(args) == 1:
		return f.set.Wrong("the %s's name is missing; csi-fencepost explain %s NAME", what, f.kind)
	case len(args) > 2:
		return f.set.Wrong("one %s at a time, got %s", what, strings.Join(args[1:], ", "))
	}
	f.name = args[1]
	return nil
}

// Command is `csi-fencepost explain`.
func Command() cli.Command {
	return cli.Command{Name: "explain", Summary: "who holds a volume, what is known of it, what would unblock it", Args: []string{"pv", "pvc", "pod", "node"}, Run: runExplain}
}

const explainHelp = `csi-fencepost explain pv|pvc|pod|node NAME says who holds a volume, what is known of the holders, and what would
unblock it; of a node, which volumes it holds. With --config it asks the fence agents too. It changes nothing.`

// runExplain is `csi-fencepost explain`.
func runExplain(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseExplainFlags(args)
	if err != nil {
		return err
	}
	c, err := f.cluster.Open("explain")
	if err != nil {
		return err
	}
	if f.namespace == "" {
		f.namespace = c.Namespace
	}
	x := &explaining{explainFlags: f, c: c, stdout: stdout, stderr: stderr}
	if f.cluster.Config != "" && len(c.Config.Fencing.Levels) > 0 {
		var done func()
		if x.asked, done, err = f.agents.Build(ctx, c); err != nil {
			return err
		}
		defer done()
	}
	if f.watch {
		return x.watchIt(ctx)
	}
	return x.once(ctx, stdout)
}

// A Look is everything that one look at a volume showed.
type Look struct {
	Driver string
	Pv     *corev1.PersistentVolume
	Survey *survey.Survey
	// waiting are the publishes that are asked for.
	waiting []waiter
	// leases are when each holder's node last renewed its lease, on that node's own clock.
	leases   map[string]time.Time
	observed time.Duration
	observe  bool // mode Observe
	// Denied are the missing rights; garbled: the ledger cannot be read.
	Denied  []string
	Garbled *ledger.GarbledError
	// aside says which text is no ledger and does not count, as Book.SetAside does.
	aside []string
	// NoIdentity tells that it was not checked whether the ledger is of this cluster.
	NoIdentity bool
	notes      []string
	// records of the holders' nodes, and VolumeAttachments by name: for the ages
	// of what they say.
	records     map[string]*record.Record
	attachments map[string]*storagev1.VolumeAttachment
	// readings of the fence agents that were asked, by node, and what was made
	// of them.
	readings map[string][]cluster.ReadingView
	asked    []fence.Evidence
	now      time.Time
}

// A waiter is a node for which the volume is asked.
type waiter struct {
	holder *fence.Holder
	// snapshot as the publish is judged on; nil: its node ID is not known.
	snapshot *fence.Snapshot
}

// looking is a look under way.
type looking struct {
	*cluster.Cluster
	client   *forgiving
	Surveyor *survey.Surveyor
	tracker  *observe.Tracker
	ids      *csi.Identity
	handle   string
	look     *Look
}

// LookAt surveys the volume of a PersistentVolume, with read rights only.
// Observing for longer than 0 watches the holders' leases in between.
func LookAt(ctx context.Context, c *cluster.Cluster, pvName string, observe time.Duration, progress io.Writer) (*Look, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := BeginLook(ctx, c, pvName)
	if err != nil {
		return nil, err
	}
	if c.Lives == nil {
		go l.tracker.Run(ctx)
	}
	if l.look.Survey, err = l.Surveyor.Volume(ctx, l.handle); err != nil {
		return nil, err
	}
	if observe > 0 {
		if err := l.watch(ctx, observe, progress); err != nil {
			return nil, err
		}
		if l.look.Survey, err = l.Surveyor.Volume(ctx, l.handle); err != nil {
			return nil, err
		}
	}
	if err := l.surveyWaiting(ctx); err != nil {
		return nil, err
	}
	if err := l.readLeases(ctx); err != nil {
		return nil, err
	}
	if err := l.readBehind(ctx); err != nil {
		return nil, err
	}
	l.finish(ctx, observe)
	l.look.recall(l.Config.Fencing.Apart)
	return l.look, nil
}

// surveyWaiting surveys the volume once more for each node that asks for it, as
// the sidecar does when the attacher calls.
func (l *looking) surveyWaiting(ctx context.Context) error {
	for i := range l.look.Survey.Holders {
		h := &l.look.Survey.Holders[i]
		if !waits(h) {
			continue
		}
		w := waiter{holder: h}
		if h.NodeID != "" {
			s, err := l.Surveyor.Publish(ctx, l.handle, h.NodeID, nil)
			if err != nil {
				return err
			}
			w.snapshot = &s.Snapshot
		}
		l.look.waiting = append(l.look.waiting, w)
	}
	return nil
}

// BeginLook reads the PersistentVolume, and lists what may name its holders.
func BeginLook(ctx context.Context, c *cluster.Cluster, pvName string) (*looking, error) {
	l := &looking{Cluster: c, client: &forgiving{Interface: c.Client}}
	pv, driver, err := FindPV(ctx, c, pvName)
	if err != nil {
		return nil, err
	}
	l.look = &Look{Pv: pv, Driver: driver}
	l.ids = &csi.Identity{Driver: driver}
	l.handle, _ = l.ids.PVHandle(pv)
	uid, err := l.client.identity(ctx, pv)
	if err != nil {
		return nil, err
	}
	index, err := survey.ListLive(ctx, l.client, l.ids, pv)
	if err != nil {
		return nil, err
	}
	fencing := c.Config.Fencing
	// A share of silent nodes is no matter here: nothing is fenced by it.
	if l.tracker = c.Lives; l.tracker == nil {
		l.tracker = observe.NewTracker(fencing.SuspectAfter.Duration, 1)
	}
	records := record.NewStore(l.client.CoordinationV1(), fencing.Namespace)
	sources := sidecar.NewSources(sidecar.SourceOptions{Config: c.Config, Objects: c.Client.CoreV1().RESTClient(),
		Records: evidence.Records{Store: records, Actor: "csi-fencepost explain", ReadOnly: true}}).All
	l.Surveyor = &survey.Surveyor{Client: l.client, IDs: l.ids, Index: index, Ledgers: ledger.New(l.client, uid, l.ids),
		Records: records, Sources: sources, Lives: l.tracker, Policy: c.Config.Policy()}
	// Where it cannot be read, more nodes may be shown as holders.
	l.Surveyor.Seal, _ = guard.ReadSeal(ctx, l.Surveyor, l.client.CoordinationV1())
	return l, nil
}

// watch reads the holders' leases again and again, for the tracker.
func (l *looking) watch(ctx context.Context, period time.Duration, progress io.Writer) error {
	nodes := nodesOf(l.look.Survey)
	for end := time.Now().Add(period); time.Now().Before(end); {
		cli.Countdown(progress, fmt.Sprintf("watching the leases of %s", strings.Join(nodes, ", ")), time.Until(end))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(cluster.LeasePoll, time.Until(end))):
		}
		for _, node := range nodes {
			lease, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				l.tracker.Absent(node)
			case err != nil:
				// An outage may have kept the kubelet from renewing.
				l.tracker.Reset(err.Error())
			default:
				l.tracker.Observe(lease)
			}
		}
	}
	cli.Countdown(progress, "", 0)
	return nil
}

func nodesOf(s *survey.Survey) []string {
	var nodes []string
	for i := range s.Holders {
		if name := s.Holders[i].NodeName; name != "" && !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// readLeases takes note of when the holders' nodes renewed their leases, as
// they say themselves.
func (l *looking) readLeases(ctx context.Context) error {
	l.look.leases = map[string]time.Time{}
	for _, node := range nodesOf(l.look.Survey) {
		lease, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("cannot read the lease of node %s: %w", node, err)
		case lease.Spec.RenewTime != nil:
			l.look.leases[node] = lease.Spec.RenewTime.Time
		}
	}
	return nil
}

// finish notes what this look could not see.
func (l *looking) finish(ctx context.Context, observed time.Duration) {
	k := l.look
	k.now, k.observed, k.Denied = time.Now(), observed, l.client.denied
	k.Garbled, k.aside = l.client.unreadable(k.Survey.Book.Missing)
	k.observe, k.NoIdentity = l.Config.Mode == "Observe", l.client.noIdentity
	k.notes = append(k.notes, "The driver itself was not asked where it has the volume published (published_node_ids); the sidecar asks it.")
	if l.client.noIdentity {
		k.notes = append(k.notes, "The identity of the cluster could not be read (no right to get namespace kube-system): whether the ledger was written in this cluster was not checked.")
	}
	driver, err := l.Cluster.Client.StorageV1().CSIDrivers().Get(ctx, k.Driver, metav1.GetOptions{})
	if err == nil && driver.Spec.AttachRequired != nil && !*driver.Spec.AttachRequired {
		k.notes = append(k.notes, "CSIDriver "+k.Driver+" has attachRequired: false, so Kubernetes does not attach its volumes: there is nothing for csi-fencepost to guard.")
	}
}

// FindPV reads a PersistentVolume and names its CSI driver. An error names the
// nearest names if there is none of that name.
func FindPV(ctx context.Context, c *cluster.Cluster, name string) (*corev1.PersistentVolume, string, error) {
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", noSuchPV(ctx, c, name)
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot read PersistentVolume %s: %w", name, err)
	}
	driver := DriverOf(pv)
	if _, ok := (&csi.Identity{Driver: driver}).PVHandle(pv); !ok {
		return nil, "", &notCSIError{name}
	}
	return pv, driver, nil
}

// DriverOf is the CSI driver of a PersistentVolume, in-tree ones through their
// migration; empty: none.
func DriverOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver
	}
	translator := csitranslation.New()
	plugin, err := translator.GetInTreePluginNameFromSpec(pv, nil)
	if err != nil {
		return ""
	}
	driver, err := translator.GetCSINameFromInTreeName(plugin)
	if err != nil {
		return ""
	}
	return driver
}

// A notCSIError tells of a volume that no attacher ever asks a driver for.
type notCSIError struct{ pv string }

func (e *notCSIError) Error() string {
	return fmt.Sprintf("PersistentVolume %s is no volume of a CSI driver, nor an in-tree one that is migrated to CSI: csi-fencepost has nothing to guard there", e.pv)
}

func noSuchPV(ctx context.Context, c *cluster.Cluster, name string) error {
	list, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("there is no PersistentVolume %s (and the others cannot be listed: %w)", name, err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return fmt.Errorf("there is no PersistentVolume %s%s", name, cli.DidYouMean(name, names))
}
