package csiaddons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Nodes lists the cluster's Nodes live; client.CoreV1().Nodes() does.
type Nodes interface {
	List(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error)
}

// CSINodes lists the cluster's CSINodes live; client.StorageV1().CSINodes() does.
type CSINodes interface {
	List(ctx context.Context, options metav1.ListOptions) (*storagev1.CSINodeList, error)
}

// Options of an Agent. Name, Conn, Driver, Nodes and CSINodes are required.
type Options struct {
	// Name of the agent, as configured.
	Name string
	// Conn to the socket where the driver serves csi-addons.
	Conn grpc.ClientConnInterface
	// Driver is the CSI driver's name: another one on the socket is an error.
	Driver string
	// Secrets for the calls about a node; nil: none. They are asked at each use.
	Secrets func(ctx context.Context, node string) (map[string]string, error)
	// Parameters for all calls, such as which storage cluster is meant.
	Parameters map[string]string
	// Nodes of the cluster, and their CSINodes.
	Nodes    Nodes
	CSINodes CSINodes
	// AllowedSubnets, as CIDR blocks, hold all that a fence may name; none: it may
	// name anything.
	AllowedSubnets []string
	// DriverOnly tells that only the driver (GetFenceClients) may say which addresses a machine has,
	// and not its Node.
	DriverOnly bool
	// Declared are the addresses from which each node reaches the storage, by node
	// name. Where there are any they alone count, and other nodes are not covered.
	Declared map[string][]string
}

// Agent fences through the driver. It keeps nothing in memory.
type Agent struct {
	options  Options
	client   *addons.Client
	subnets  []netip.Prefix
	declared map[string][]netip.Prefix // nil: nothing is declared
}

var (
	_ agent.Agent   = (*Agent)(nil)
	_ agent.Knower  = (*Agent)(nil)
	_ agent.Checker = (*Agent)(nil)
)

// New is an Agent. The error names the option that is missing or wrong; the driver
// is not asked before the first use.
func New(options Options) (*Agent, error) {
	switch {
	case options.Name == "":
		return nil, errors.New("csi-addons agent: it has no name")
	case options.Conn == nil:
		return nil, fmt.Errorf("csi-addons agent %s: there is no connection to the driver's socket", options.Name)
	case options.Driver == "":
		return nil, fmt.Errorf("csi-addons agent %s: the CSI driver's name is empty", options.Name)
	case options.Nodes == nil || options.CSINodes == nil:
		return nil, fmt.Errorf("csi-addons agent %s: it cannot read Nodes and CSINodes, so it could not tell whose address it fences", options.Name)
	}
	a := &Agent{options: options, client: addons.NewClient(options.Conn)}
	var err error
	if a.subnets, err = parse(options.AllowedSubnets, addons.ParseBlock); err != nil {
		return nil, fmt.Errorf("csi-addons agent %s: its allowed subnets: %w", options.Name, err)
	}
	for node, addresses := range options.Declared {
		all, err := parse(addresses, addons.ParseHost)
		if err != nil {
			return nil, fmt.Errorf("csi-addons agent %s: the addresses declared for node %s: %w", options.Name, node, err)
		}
		if a.declared == nil {
			a.declared = map[string][]netip.Prefix{}
		}
		a.declared[node] = all
	}
	return a, nil
}

// Name implements agent.Agent.
func (a *Agent) Name() string { return a.options.Name }

// Proves implements agent.Agent: the machine may live on.
func (a *Agent) Proves() fence.Kind { return fence.StorageFence }

// Covers implements agent.Agent: the driver serves every node, but where addresses
// are declared only those count that have one.
func (a *Agent) Covers(node string) bool { return a.declared == nil || len(a.declared[node]) > 0 }

// KnowsByID implements agent.Knower: where addresses are declared they alone count.
func (a *Agent) KnowsByID(string) bool { return a.declared == nil }

// Status implements agent.Agent. It is Off if the driver's list covers all of
// the machine's addresses and all that the record says were fenced, On if it
// covers none, and Unclear else. Of a machine without a known address, as of one
// whose Node is gone, the record's are enough. What reads as cut and another Node has too
// is Unclear, unless the record or the configuration says that it is this machine's.
func (a *Agent) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	fenced, err := parse(m.Fenced, addons.ParseBlock)
	if err != nil {
		return agent.Reading{Detail: err.Error()}, fmt.Errorf("the record of node %s: %w", m.Node, err)
	}
	t, err := a.target(ctx, m)
	if err != nil && !(errors.Is(err, errNoAddress) && len(fenced) > 0) {
		return agent.Reading{Detail: err.Error()}, err
	}
	reading, err := a.read(ctx, t, union(t.blocks, fenced))
	reading.Named, reading.OwnWord = texts(t.blocks), t.byNode || len(t.blocks) == 0
	if err == nil && reading.State == agent.Off && a.declared == nil {
		err = a.unlessClaimed(ctx, m, t, &reading)
	}
	if err != nil {
		return agent.Reading{Detail: err.Error()}, err
	}
	return reading, nil
}

// unlessClaimed makes a reading Unclear where another Node has an address of this machine
// too, unless the record says that it was cut off of this one: a kubelet could have the
// fence of another machine taken for its own's.
func (a *Agent) unlessClaimed(ctx context.Context, m agent.Machine, t *target, reading *agent.Reading) error {
	found := slices.DeleteFunc(slices.Clone(t.blocks), func(b netip.Prefix) bool { return slices.Contains(m.Fenced, b.String()) })
	if len(found) == 0 {
		return nil
	}
	others, err := a.otherNodes(ctx, m, t, found)
	if err == nil && len(others) > 0 {
		reading.State = agent.Unclear
		reading.Detail += ", which may be the fence of " + fewOf(others)
	}
	return err
}

// read holds the blocks against the driver's list.
func (a *Agent) read(ctx context.Context, t *target, blocks []netip.Prefix) (agent.Reading, error) {
	listed, strange, err := a.client.List(ctx, t.with)
	if err != nil {
		return agent.Reading{}, a.explain("ListClusterFence", err)
	}
	var in, out []netip.Prefix
	for _, block := range blocks {
		if addons.Covers(listed, block) {
			in = append(in, block)
		} else {
			out = append(out, block)
		}
	}
	switch {
	case len(out) == 0:
		return agent.Reading{State: agent.Off, Cut: texts(in), Detail: fmt.Sprintf("driver %s lists %s as fenced", a.options.Driver, text(in))}, nil
	case len(in) > 0:
		return agent.Reading{Cut: texts(in), Detail: fmt.Sprintf("driver %s lists %s as fenced, and not %s", a.options.Driver, text(in), text(out))}, nil
	case len(strange) > 0:
		return agent.Reading{Detail: fmt.Sprintf("driver %s does not list %s as fenced, but an entry that is no CIDR block: %q",
			a.options.Driver, text(out), csi.Redact(strange[0], t.with.Secrets))}, nil
	case slices.ContainsFunc(listed, func(b netip.Prefix) bool { return overlapsAny(b, out) }):
		return agent.Reading{Detail: fmt.Sprintf("driver %s lists only a part of %s as fenced", a.options.Driver, text(out))}, nil
	}
	return agent.Reading{State: agent.On, Detail: fmt.Sprintf("driver %s does not list %s as fenced", a.options.Driver, text(out))}, nil
}

// Off implements agent.Agent. Its detail lists the blocks, also with an error
// of the driver's: they may be fenced all the same. Those that are not its own to open (m.Own)
// it lists behind the driver's name, where agent.Blocks does not look. They are fenced like the
// others: what lists them may be about to end.
func (a *Agent) Off(ctx context.Context, m agent.Machine) (detail string, err error) {
	t, err := a.target(ctx, m)
	if err != nil {
		return "", err
	}
	if err := a.mayFence(ctx, m, t); err != nil {
		return "", err
	}
	others := slices.DeleteFunc(texts(t.blocks), func(b string) bool { return m.Own == nil || slices.Contains(m.Own, b) })
	own := slices.DeleteFunc(texts(t.blocks), func(b string) bool { return slices.Contains(others, b) })
	detail = fmt.Sprintf("fence %s at driver %s (%s)", cmp.Or(strings.Join(own, ", "), "nothing new"), a.options.Driver, t.from)
	if len(others) > 0 {
		detail += ", where somebody else has cut off " + strings.Join(others, ", ")
	}
	if err := a.client.Fence(ctx, t.with, t.blocks); err != nil {
		return detail, a.explain("FenceClusterNetwork", err)
	}
	return detail, nil
}

// On implements agent.Agent: the addresses of now and those in m.Fenced get
// access again, or those in m.Only alone. If those of now cannot be told, or are
// somebody else's too, whose fence they may be, the others are enough.
func (a *Agent) On(ctx context.Context, m agent.Machine) (detail string, err error) {
	recorded := m.Fenced
	if m.Only != nil {
		recorded = m.Only
	}
	fenced, err := parse(recorded, addons.ParseBlock)
	if err != nil {
		return "", fmt.Errorf("the record of node %s: %w", m.Node, err)
	}
	t, err := a.target(ctx, m)
	if err == nil {
		err = a.mayUnfence(ctx, m, t)
	}
	if err != nil && (t == nil || len(fenced) == 0) {
		return "", err
	}
	if err != nil || m.Only != nil {
		t.blocks = nil
	}
	blocks := union(t.blocks, fenced)
	if len(blocks) == 0 {
		return "", fmt.Errorf("node %s: no fence of driver %s was to cut it off", m.Node, a.options.Driver)
	}
	detail = fmt.Sprintf("unfence %s at driver %s", text(blocks), a.options.Driver)
	if err := a.client.Unfence(ctx, t.with, blocks); err != nil {
		return detail, a.explain("UnfenceClusterNetwork", err)
	}
	return detail, nil
}

// Check implements agent.Checker: the driver fences, its list can be read, and
// nobody else has the machine's addresses. Nothing is fenced.
func (a *Agent) Check(ctx context.Context, m agent.Machine) (device string, faults []error) {
	t, err := a.target(ctx, m)
	if err != nil {
		return "", []error{err}
	}
	if err := a.mayFence(ctx, m, t); err != nil {
		faults = append(faults, err)
	}
	if _, err := a.read(ctx, t, t.blocks); err != nil {
		faults = append(faults, err)
	}
	return fmt.Sprintf("%s at driver %s", text(t.blocks), a.options.Driver), faults
}

// Addresses are the blocks that a fence of the machine has to name.
func (a *Agent) Addresses(ctx context.Context, m agent.Machine) ([]netip.Prefix, error) {
	t, err := a.target(ctx, m)
	if err != nil {
		return nil, err
	}
	return t.blocks, nil
}

// explain says which call of which driver failed. The driver's words carry no
// secret any more.
func (a *Agent) explain(method string, err error) error {
	return fmt.Errorf("driver %s: %s: %w", a.options.Driver, method, err)
}

func text(blocks []netip.Prefix) string { return strings.Join(texts(blocks), ", ") }

func texts(blocks []netip.Prefix) (all []string) {
	for _, block := range blocks {
		all = append(all, block.String())
	}
	return all
}
