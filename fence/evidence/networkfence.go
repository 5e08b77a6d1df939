package evidence

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// DriverFences is the driver's own word about network fences; csiaddons.Agent
// has it.
type DriverFences interface {
	// Addresses that a fence of the machine has to name.
	Addresses(ctx context.Context, m agent.Machine) ([]netip.Prefix, error)
	// Status is Off only if the driver's list names them all.
	Status(ctx context.Context, m agent.Machine) (agent.Reading, error)
}

// NetworkFence is a Source: storage access that somebody took away with
// csi-addons' NetworkFence objects, as far as the driver's own list confirms it.
type NetworkFence struct {
	driver string
	client rest.Interface
	fences DriverFences
}

// NetworkFences is the Source for the fences of that CSI driver. client is of
// any group.
func NetworkFences(driver string, client rest.Interface, fences DriverFences) *NetworkFence {
	return &NetworkFence{driver: driver, client: client, fences: fences}
}

// Name implements Source.
func (n *NetworkFence) Name() string { return "NetworkFence" }

// What csi-addons' controller writes into the status, word for word. The result
// is Succeeded for both.
const (
	fencedMessage   = "fencing operation successful"
	unfencedMessage = "unfencing operation successful"
)

// networkFence is the object, as far as it is needed.
type networkFence struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Class  string   `json:"networkFenceClassName"`
		Driver string   `json:"driver"`
		State  string   `json:"fenceState"`
		CIDRs  []string `json:"cidrs"`
	} `json:"spec"`
	Status struct {
		Result  string `json:"result"`
		Message string `json:"message"`
	} `json:"status"`
}

// Evidence implements Source. Objects and list are read live. What names the
// holder's machine and does not count is returned with Void. Where the Node alone says
// that the addresses are its, it counts only of one that shows no life (Evidence.OwnWord).
func (n *NetworkFence) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	objects, err := n.list(ctx)
	if apierrors.IsForbidden(err) {
		return n.evidence(&q, nil, "", voidForbidden+networkFences.plural+" and "+networkFenceClasses.plural+"."+networkFences.group), nil
	}
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	m := machineOf(&q)
	blocks, unknown := n.fences.Addresses(ctx, m)
	if unknown != nil {
		blocks = hostBlocks(m.Addresses)
	}
	about := slices.DeleteFunc(objects, func(f networkFence) bool { return !f.names(blocks) })
	if len(about) == 0 {
		return nil, nil // or nobody can tell that it is about this machine
	}
	if unknown != nil {
		return n.evidence(&q, about, "", "the addresses of the machine cannot be told: "+unknown.Error()), nil
	}
	if void := incomplete(about, blocks); void != "" {
		return n.evidence(&q, about, "", void), nil
	}
	reading, err := n.fences.Status(ctx, m)
	switch {
	case err != nil:
		return n.evidence(&q, about, "", "the driver's list does not confirm it: "+err.Error()), nil
	case reading.State != agent.Off:
		return n.evidence(&q, about, reading.Detail, "the driver's list does not confirm it: "+reading.Detail), nil
	}
	found := n.evidence(&q, about, reading.Detail, "")
	found[0].OwnWord = reading.OwnWord
	return found, nil
}

// list reads the objects of this driver live.
func (n *NetworkFence) list(ctx context.Context) ([]networkFence, error) {
	var all objectList[networkFence]
	if there, err := networkFences.list(ctx, n.client, &all); err != nil || !there {
		return nil, err
	}
	var own []networkFence
	for _, f := range all.Items {
		driver, err := n.driverOf(ctx, &f)
		if err != nil {
			return nil, err
		}
		if driver == n.driver {
			own = append(own, f)
		}
	}
	return own, nil
}

// driverOf is the driver of a NetworkFence: where the object names a class, the class names the
// driver.
func (n *NetworkFence) driverOf(ctx context.Context, f *networkFence) (string, error) {
	if f.Spec.Class == "" {
		return f.Spec.Driver, nil
	}
	var class struct {
		Spec struct {
			Provisioner string `json:"provisioner"`
		} `json:"spec"`
	}
	_, err := networkFenceClasses.get(ctx, n.client, f.Spec.Class, &class)
	return class.Spec.Provisioner, err
}

// blocks of the object; those that are none name nobody.
func (f *networkFence) blocks() []netip.Prefix { return hostBlocks(f.Spec.CIDRs) }

func (f *networkFence) names(blocks []netip.Prefix) bool {
	return slices.ContainsFunc(f.blocks(), func(b netip.Prefix) bool { return slices.ContainsFunc(blocks, b.Overlaps) })
}

// lacks says what the object lacks to be a finished fence; empty: nothing.
func (f *networkFence) lacks() string {
	switch {
	case f.Metadata.DeletionTimestamp != nil:
		return "it is being deleted"
	case f.Spec.State != "Fenced":
		return fmt.Sprintf("its fenceState is %q, not Fenced", f.Spec.State)
	case f.Status.Result != "Succeeded" || f.Status.Message != fencedMessage:
		return fmt.Sprintf("its result is %q with message %q, not Succeeded with %q", f.Status.Result, f.Status.Message, fencedMessage)
	}
	return ""
}

// lifting tells whether access is being given back, so that the list may change at any moment.
func (f *networkFence) lifting() bool {
	return f.Spec.State != "Fenced" && !(f.Status.Result == "Succeeded" && f.Status.Message == unfencedMessage)
}

// incomplete says why the objects do not amount to a fence of all the blocks.
func incomplete(about []networkFence, blocks []netip.Prefix) string {
	var finished []netip.Prefix
	var lacking string
	for _, f := range about {
		lack := f.lacks()
		switch {
		case f.lifting():
			return fmt.Sprintf("NetworkFence %s is being lifted: %s", f.Metadata.Name, lack)
		case lack == "":
			finished = append(finished, f.blocks()...)
		case lacking == "":
			lacking = fmt.Sprintf("NetworkFence %s is not in force: %s", f.Metadata.Name, lack)
		}
	}
	for _, block := range blocks {
		if !addons.Covers(finished, block) {
			return cmp.Or(lacking, fmt.Sprintf("no NetworkFence names the machine's address %s", block))
		}
	}
	return ""
}

func (n *NetworkFence) evidence(q *Question, about []networkFence, detail, void string) []fence.Evidence {
	var names []string
	for _, f := range about {
		names = append(names, f.Metadata.Name)
	}
	e := evidence(fence.StorageFence, q, unbound(q), void)
	if anew := q.anew(); anew != nil {
		e[0].NodeUID = string(anew.UID)
	}
	e[0].Source, e[0].Detail = strings.TrimSpace("NetworkFence "+strings.Join(names, ", ")), detail
	return e
}

// machineOf is the holder's machine for an agent. The addresses of another
// machine under its Node's name are not its own.
func machineOf(q *Question) agent.Machine {
	m := agent.Machine{Node: q.Holder.NodeName, UID: q.Holder.NodeUID, BootID: q.Holder.BootID, NodeID: q.Holder.NodeID}
	node := q.machine()
	if anew := q.anew(); anew != nil {
		node, m.UID = anew, string(anew.UID)
	}
	if node != nil {
		for _, address := range node.Status.Addresses {
			if address.Type == v1.NodeInternalIP || address.Type == v1.NodeExternalIP {
				m.Addresses = append(m.Addresses, address.Address)
			}
		}
	}
	return m
}

func hostBlocks(texts []string) []netip.Prefix {
	var blocks []netip.Prefix
	for _, text := range texts {
		if block, err := addons.ParseBlock(text); err == nil {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

var (
	_ Source = (*NetworkFence)(nil)
	_ Source = (*Remediation)(nil)
)
