// Package vsphere fences virtual machines of VMware vSphere.
package vsphere

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// Agent is fence_fencepost_vsphere.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "vsphere",
		Short: "VMware vSphere: a virtual machine's power state, and whether vCenter hears of it",
		Long: "Off is poweredOff, on is poweredOn, both while vCenter is connected to the machine and to its host. suspended, and a machine that is disconnected, inaccessible, invalid or orphaned, or whose host is disconnected or notResponding, are neither: vCenter then tells what it heard last. " +
			"A host that dies is notResponding after about a minute. A machine that vSphere HA has started again is read on its new host: a copy that a host without network and storage still runs has lost the locks of its files, and its virtual disks with them, but goes on writing to what it has mounted over its own network, until its host is back and ends it. Let HA power off the machines of an isolated host, and of one that has lost its storage (VMCP). " +
			"off is PowerOffVM_Task, which asks nobody. " +
			"The plug is the node's provider ID, vsphere://UUID with the BIOS UUID, in either order of bytes; it is the machine's system UUID. Two machines with one are an error. A copy in another vCenter has the same one (replication, a restored backup): where the node has gone there, what it left behind reads off here, so give the agent the other vCenter at once. " +
			"A user sees only what its role shows: give it a role with VirtualMachine.Interact.PowerOff and PowerOn on the vCenter, with all below it, so that it sees hosts and twins, too. " +
			"Each run logs in, and out again.",
		Parameters: []contract.Parameter{
			{Name: "ip", Required: true, Help: "Address or name of the vCenter."},
			{Name: "ipport", Help: "Its port, if it is not 443."},
			{Name: "username", Required: true, Help: "The user, as fencing@vsphere.local."},
			{Name: "password", Required: true, Secret: true, Help: "The user's password."},
		},
		Open: open,
	}
}

type vcenter struct {
	way      *soap.Client
	content  types.ServiceContent
	endpoint string
}

func open(ctx context.Context, v contract.Values) (contract.Platform, error) {
	api, err := rest.Open(v, "ip")
	if err != nil {
		return nil, err
	}
	return login(ctx, api, v)
}

func login(ctx context.Context, api *rest.Client, v contract.Values) (contract.Platform, error) {
	c, err := connect(ctx, api)
	if err != nil {
		return nil, fmt.Errorf("the vCenter %s: %w", api.Base, err)
	}
	who := &types.Login{This: *c.content.SessionManager, UserName: v["username"], Password: v["password"]}
	if _, err := given(methods.Login(ctx, c.way, who)); err != nil {
		return nil, fmt.Errorf("the login at %s: %w", api.Base, err)
	}
	return c, nil
}

const (
	path      = "/sdk"
	namespace = "urn:vim25"
)

// connect asks in the version that the vCenter has: it may refuse a later one.
func connect(ctx context.Context, api *rest.Client) (*vcenter, error) {
	var offered struct {
		Namespaces []struct {
			Name    string `xml:"name"`
			Version string `xml:"version"`
		} `xml:"namespace"`
	}
	api.Decode = xml.Unmarshal
	if err := api.Get(ctx, path+"/vimServiceVersions.xml", &offered); err != nil {
		return nil, err
	}
	c, err := client(api.HTTP, api.Base)
	if err != nil {
		return nil, err
	}
	for _, n := range offered.Namespaces {
		if n.Name == namespace {
			c.way.Version = n.Version
		}
	}
	answer, err := given(methods.RetrieveServiceContent(ctx, c.way, &types.RetrieveServiceContent{
		This: types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"}}))
	if err != nil {
		return nil, err
	}
	c.content = answer.Returnval
	if c.way.Version == "" || c.content.SessionManager == nil || c.content.SearchIndex == nil || c.content.ViewManager == nil {
		return nil, errors.New("it tells no version, or has no sessions, search or views")
	}
	return c, nil
}

func client(by *http.Client, endpoint string) (*vcenter, error) {
	at, err := url.Parse(endpoint + path)
	if err != nil {
		return nil, err
	}
	way := soap.NewClient(at, false)
	way.Transport, way.CheckRedirect = faults{by.Transport}, by.CheckRedirect
	way.Namespace, way.UserAgent = namespace, "csi-fencepost-agents"
	return &vcenter{way: way, endpoint: endpoint}, nil
}

// faults are the only answers with status 500: the SDK takes others that have it for a success.
type faults struct{ by http.RoundTripper }

const maxFault = 1 << 20

func (f faults) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := f.by.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusInternalServerError {
		return res, err
	}
	defer res.Body.Close()
	var says struct {
		Fault *struct{} `xml:"Body>Fault"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxFault))
	if err != nil || xml.Unmarshal(text, &says) != nil || says.Fault == nil {
		return nil, fmt.Errorf("it answers with status %d, and with no fault", res.StatusCode)
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	return res, nil
}

// given is an answer that there is: the SDK takes one without for a success.
func given[T any](answer *T, err error) (*T, error) {
	if err == nil && answer == nil {
		err = errors.New("it answers with nothing")
	}
	return answer, err
}

// Close logs out: a session that is left ends after half an hour, and a vCenter has a bound.
func (c *vcenter) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = methods.Logout(ctx, c.way, &types.Logout{This: *c.content.SessionManager})
}

// get reads properties of one object. A property that is not set is not in the answer.
func (c *vcenter) get(ctx context.Context, of types.ManagedObjectReference, properties ...string) (map[string]any, error) {
	answer, err := given(methods.RetrievePropertiesEx(ctx, c.way, &types.RetrievePropertiesEx{This: c.content.PropertyCollector, SpecSet: []types.PropertyFilterSpec{{
		ObjectSet: []types.ObjectSpec{{Obj: of}}, PropSet: []types.PropertySpec{{Type: of.Type, PathSet: properties}},
	}}}))
	if err != nil {
		return nil, err
	}
	if answer.Returnval == nil || len(answer.Returnval.Objects) != 1 || answer.Returnval.Objects[0].Obj != of {
		return nil, fmt.Errorf("the vCenter does not answer with %s", of.Value)
	}
	object := answer.Returnval.Objects[0]
	for _, p := range object.MissingSet {
		return nil, fmt.Errorf("%s of %s may not be seen: %s", p.Path, of.Value, p.Fault.LocalizedMessage)
	}
	has := map[string]any{}
	for _, p := range object.PropSet {
		has[p.Name] = p.Val
	}
	return has, nil
}

// Find takes a BIOS UUID, or vsphere://UUID. Some hardware versions show the guest, and so what
// writes the provider ID, the first three fields in the other order.
func (c *vcenter) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	uuid := strings.TrimPrefix(plug, "vsphere://")
	if !contract.SameUUID(uuid, uuid) {
		return nil, fmt.Errorf("%s is no virtual machine of vSphere, whose provider IDs are vsphere://UUID, or many machines have that UUID", plug)
	}
	var found []types.ManagedObjectReference
	for _, one := range []string{strings.ToLower(uuid), contract.Swapped(uuid)} {
		answer, err := given(methods.FindAllByUuid(ctx, c.way, &types.FindAllByUuid{This: *c.content.SearchIndex, Uuid: one, VmSearch: true}))
		if err != nil {
			return nil, fmt.Errorf("virtual machine %s at %s: %w", uuid, c.endpoint, err)
		}
		for _, ref := range answer.Returnval {
			if !slices.Contains(found, ref) {
				found = append(found, ref)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the user sees no virtual machine with the BIOS UUID %s at %s", uuid, c.endpoint)
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%d virtual machines at %s have the BIOS UUID %s: give all but one another", len(found), c.endpoint, uuid)
	}
	m, err := c.read(ctx, found[0])
	if err != nil {
		return nil, fmt.Errorf("virtual machine %s at %s: %w", uuid, c.endpoint, err)
	}
	if !contract.SameUUID(m.UUID, uuid) {
		return nil, fmt.Errorf("%s answers with the BIOS UUID %q where %s was asked for", c.endpoint, m.UUID, uuid)
	}
	return m, nil
}

// read asks for the machine first: a host that is lost between the two answers is seen.
func (c *vcenter) read(ctx context.Context, ref types.ManagedObjectReference) (*contract.Machine, error) {
	vm, err := c.get(ctx, ref, "name", "config.uuid", "runtime.powerState", "runtime.connectionState", "runtime.host")
	if err != nil {
		return nil, err
	}
	host := map[string]any{}
	if at, ok := vm["runtime.host"].(types.ManagedObjectReference); ok {
		if host, err = c.get(ctx, at, "runtime.connectionState"); err != nil {
			return nil, fmt.Errorf("its host: %w", err)
		}
	}
	m := &contract.Machine{ID: ref.Value}
	m.Name, _ = vm["name"].(string)
	m.UUID, _ = vm["config.uuid"].(string)
	power, connection, its := vm["runtime.powerState"], vm["runtime.connectionState"], host["runtime.connectionState"]
	m.Says = fmt.Sprintf("%v (the machine is %v, its host is %v)", power, connection, its)
	switch {
	case connection != types.VirtualMachineConnectionStateConnected || its != types.HostSystemConnectionStateConnected:
	case power == types.VirtualMachinePowerStatePoweredOn:
		m.State = contract.On
	case power == types.VirtualMachinePowerStatePoweredOff:
		m.State = contract.Off
	}
	return m, nil
}

// Off cuts the power, as the machine's host does it.
func (c *vcenter) Off(ctx context.Context, m *contract.Machine) error {
	answer, err := given(methods.PowerOffVM_Task(ctx, c.way, &types.PowerOffVM_Task{This: reference(m)}))
	if err != nil {
		return err
	}
	return c.wait(ctx, answer.Returnval)
}

func (c *vcenter) On(ctx context.Context, m *contract.Machine) error {
	answer, err := given(methods.PowerOnVM_Task(ctx, c.way, &types.PowerOnVM_Task{This: reference(m)}))
	if err != nil {
		return err
	}
	return c.wait(ctx, answer.Returnval)
}

func reference(m *contract.Machine) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "VirtualMachine", Value: m.ID}
}

// taskInterval is the time between two looks at a task.
const taskInterval = 200 * time.Millisecond

// wait until the task has ended well.
func (c *vcenter) wait(ctx context.Context, ref types.ManagedObjectReference) error {
	for {
		task, err := c.get(ctx, ref, "info.state", "info.error")
		if err != nil {
			return err
		}
		switch task["info.state"] {
		case types.TaskInfoStateSuccess:
			return nil
		case types.TaskInfoStateError:
			fault, _ := task["info.error"].(types.LocalizedMethodFault)
			return fmt.Errorf("%s ends with: %s (%T)", ref.Value, fault.LocalizedMessage, fault.Fault)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has not ended: %w", ref.Value, ctx.Err())
		case <-time.After(taskInterval):
		}
	}
}

func (c *vcenter) List(ctx context.Context) (all []*contract.Machine, err error) {
	view, err := given(methods.CreateContainerView(ctx, c.way, &types.CreateContainerView{
		This: *c.content.ViewManager, Container: c.content.RootFolder, Type: []string{"VirtualMachine"}, Recursive: true}))
	if err != nil {
		return nil, err
	}
	of, err := c.get(ctx, view.Returnval, "view")
	if err != nil {
		return nil, err
	}
	machines, _ := of["view"].(types.ArrayOfManagedObjectReference)
	for _, ref := range machines.ManagedObjectReference {
		vm, err := c.get(ctx, ref, "name")
		if err != nil {
			return nil, err
		}
		name, _ := vm["name"].(string)
		all = append(all, &contract.Machine{ID: ref.Value, Name: name})
	}
	return all, nil
}
