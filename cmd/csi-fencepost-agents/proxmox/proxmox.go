// Package proxmox fences virtual machines of Proxmox VE.
package proxmox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// Agent is fence_fencepost_proxmox.
func Agent() *contract.Agent {
	return &contract.Agent{
		Name:  "proxmox",
		Short: "Proxmox VE: a virtual machine's status and lock",
		Long: "Off is stopped without a lock, or with one that a backup or a snapshot left behind, in a cluster that has a quorum; on is running with QEMU running; stopped with another lock (suspended, migrate, rollback), paused, prelaunch and unknown are neither, and so is a virtual machine whose host does not answer, or whose stop ended with SIGKILL, until it has started. " +
			"off is stop. uuid is the one in smbios1. A token sees only what it may audit: give it VM.Audit and VM.PowerMgmt on /vms, and Sys.Audit on /. " +
			"A machine that qm remote-migrate leaves behind in its old cluster reads off there, with the same UUID: delete it, or change the configuration. " +
			"All is asked of the host ip: give an address that another host takes over, or a second level with another host.",
		Parameters: []contract.Parameter{
			{Name: "ip", Required: true, Help: "Address or name of a host of the cluster."},
			{Name: "ipport", Default: "8006", Help: "Its port."},
			{Name: "region", Help: "The cluster's region, where provider IDs name one (proxmox://REGION/100): those of other regions are refused."},
			{Name: "token_id", Required: true, Help: "The API token's ID, such as fencing@pve!csi."},
			{Name: "token", Required: true, Secret: true, Help: "The API token's secret."},
		},
		Open: open,
	}
}

type cluster struct {
	api              *rest.Client
	endpoint, region string
}

func open(_ context.Context, v contract.Values) (contract.Platform, error) {
	if !strings.Contains(v["token_id"], "!") {
		return nil, fmt.Errorf("parameter token_id: %q is no API token's ID, as fencing@pve!csi", v["token_id"])
	}
	api, err := rest.Open(v, "ip")
	if err != nil {
		return nil, err
	}
	c := &cluster{api, api.Base, v["region"]}
	api.Base += "/api2/json"
	api.Who = rest.As(http.Header{"Authorization": {"PVEAPIToken=" + v["token_id"] + "=" + v["token"]}})
	return c, nil
}

// get decodes the data of an answer. A host that cannot reach another one answers with none.
func get[T any](ctx context.Context, c *cluster, path string) (T, error) {
	var answer struct{ Data *T }
	err := c.api.Get(ctx, path, &answer)
	if err == nil && answer.Data == nil {
		err = fmt.Errorf("%s: the answer has no data", path)
	}
	if err != nil {
		return *new(T), err
	}
	return *answer.Data, nil
}

// entry of the cluster's list of guests. Only these fields are decoded: what another guest of the
// cluster has in others must not keep this one from being read.
type entry struct {
	Type, Node, Name string
	VMID             json.Number
}

// guest is a virtual machine as its host tells of it.
type guest struct {
	host, path              string
	VMID                    json.Number
	Status, QMPStatus, Lock string
}

// Find takes a VM's number, its name, or a provider ID, proxmox://REGION/100 or proxmox://100:
// other clusters have a machine 100, too. Off is read twice, after the list came from a host that
// is one of a majority: the list of one that has lost it is from before, and may have the machine
// on a host that it has left.
func (c *cluster) Find(ctx context.Context, plug string) (*contract.Machine, error) {
	match, err := c.named(plug)
	if err != nil {
		return nil, err
	}
	m, err := c.find(ctx, match)
	if err != nil || m.State != contract.Off {
		return m, err
	}
	if err := c.quorate(ctx); err != nil {
		return nil, fmt.Errorf("virtual machine %s reads off: %w", m.ID, err)
	}
	m, err = c.find(ctx, match)
	if g, ok := handle(m); ok && m.State == contract.Off {
		err = c.wasKilled(ctx, g)
	}
	return m, err
}

// named is how a machine is found in the list by what names it.
func (c *cluster) named(plug string) (func([]entry) (entry, error), error) {
	number := plug
	if scheme, rest, ok := strings.Cut(plug, "://"); ok {
		at := strings.LastIndex(rest, "/")
		if region := rest[:max(at, 0)]; scheme != "proxmox" || region != c.region {
			return nil, fmt.Errorf("%s is of the region %q, and the parameter region says %q of the cluster of %s", plug, region, c.region, c.endpoint)
		}
		number = rest[at+1:]
	}
	if _, err := strconv.ParseUint(number, 10, 64); err == nil {
		return func(all []entry) (entry, error) {
			return c.only(all, plug, func(e entry) bool { return e.VMID.String() == number })
		}, nil
	}
	if number != plug {
		return nil, fmt.Errorf("%s does not end with the number of a virtual machine", plug)
	}
	return func(all []entry) (entry, error) {
		// A host whose statistics hang lists its guests without names.
		if at := slices.IndexFunc(all, func(e entry) bool { return e.Name == "" }); at >= 0 {
			return entry{}, fmt.Errorf("guest %s of host %s is listed without a name, so none is found by name in the cluster of %s: name the number", all[at].VMID, all[at].Node, c.endpoint)
		}
		return c.only(all, plug, func(e entry) bool { return e.Name == plug })
	}, nil
}

func (c *cluster) only(all []entry, plug string, match func(entry) bool) (entry, error) {
	all = slices.DeleteFunc(all, func(e entry) bool { return !match(e) })
	switch {
	case len(all) == 0:
		return entry{}, fmt.Errorf("the token sees no virtual machine %s in the cluster of %s", plug, c.endpoint)
	case len(all) > 1:
		return entry{}, fmt.Errorf("%d guests of the cluster of %s are called %s: name the number", len(all), c.endpoint, plug)
	case all[0].Type != "qemu":
		return entry{}, fmt.Errorf("%s is no virtual machine but %s", plug, all[0].Type)
	}
	return all[0], nil
}

func (c *cluster) guests(ctx context.Context) ([]entry, error) {
	return get[[]entry](ctx, c, "/cluster/resources?type=vm")
}

func (c *cluster) find(ctx context.Context, match func([]entry) (entry, error)) (*contract.Machine, error) {
	all, err := c.guests(ctx)
	if err != nil {
		return nil, err
	}
	e, err := match(all)
	if err != nil {
		return nil, err
	}
	host := "/nodes/" + url.PathEscape(e.Node)
	path := host + "/qemu/" + e.VMID.String()
	g, err := get[guest](ctx, c, path+"/status/current")
	if err != nil {
		return nil, fmt.Errorf("virtual machine %s on host %s: %w", e.VMID, e.Node, err)
	}
	if g.VMID != e.VMID {
		return nil, fmt.Errorf("host %s does not answer with virtual machine %s", e.Node, e.VMID)
	}
	config, err := get[struct{ SMBIOS1, Lock string }](ctx, c, path+"/config?current=1")
	if err != nil {
		return nil, fmt.Errorf("virtual machine %s on host %s: %w", e.VMID, e.Node, err)
	}
	g.host, g.path, g.Lock = host, path, cmp.Or(g.Lock, config.Lock)
	m := &contract.Machine{ID: e.VMID.String(), UUID: smbiosUUID(config.SMBIOS1), Name: e.Name, Handle: &g}
	m.State, m.Says = g.state()
	return m, nil
}

// quorate tells whether the host that answers is one of a majority of its cluster. A host that is
// alone by itself has no cluster.
func (c *cluster) quorate(ctx context.Context) error {
	all, err := get[[]struct {
		Type    string
		Quorate json.Number
	}](ctx, c, "/cluster/status")
	if err != nil {
		return fmt.Errorf("whether the cluster has a quorum (needs Sys.Audit on /): %w", err)
	}
	if len(all) == 0 {
		return fmt.Errorf("the cluster of %s names no host", c.endpoint)
	}
	for _, one := range all {
		if one.Type == "cluster" && one.Quorate != "1" {
			return fmt.Errorf("the host %s is in no majority of its cluster (quorate is %q): what it lists may be from before", c.endpoint, one.Quorate)
		}
	}
	return nil
}

func smbiosUUID(smbios string) string {
	for field := range strings.SplitSeq(smbios, ",") {
		if value, ok := strings.CutPrefix(field, "uuid="); ok {
			return value
		}
	}
	return ""
}

// stale locks stay behind when a host dies in the middle. They keep nothing of a memory; those of
// other names (suspended, suspending, migrate, create, rollback, clone) may, or the machine may run
// elsewhere.
var stale = []string{"", "backup", "snapshot", "snapshot-delete"}

func (g *guest) state() (contract.State, string) {
	says := g.Status
	if g.Lock != "" {
		says += " with the lock " + g.Lock
	}
	switch {
	case g.Status == "running" && g.QMPStatus == "running" && !strings.HasPrefix(g.Lock, "suspend"):
		return contract.On, says
	case g.Status == "stopped" && slices.Contains(stale, g.Lock):
		return contract.Off, says
	}
	return contract.Neither, fmt.Sprintf("%s (QEMU: %q)", says, g.QMPStatus)
}

func (c *cluster) Off(ctx context.Context, m *contract.Machine) error {
	// A shutdown that hangs holds the lock that stop needs. Before Proxmox VE 8.2 the
	// parameter is refused, and there is no way around that lock.
	err := c.send(ctx, m, "stop", url.Values{"overrule-shutdown": {"1"}})
	if rest.Refused(err, http.StatusBadRequest) {
		return c.send(ctx, m, "stop", nil)
	}
	return err
}

func (c *cluster) On(ctx context.Context, m *contract.Machine) error {
	return c.send(ctx, m, "start", nil)
}

func handle(m *contract.Machine) (*guest, bool) {
	if m == nil {
		return nil, false
	}
	g, ok := m.Handle.(*guest)
	return g, ok
}

// send commands, and waits until the task that does it has ended well.
func (c *cluster) send(ctx context.Context, m *contract.Machine, command string, form url.Values) error {
	g, ok := handle(m)
	if !ok {
		return errors.New("it is no virtual machine")
	}
	var taken struct{ Data string }
	if err := c.api.PostForm(ctx, g.path+"/status/"+command, form, &taken); err != nil {
		return err
	}
	for {
		t, err := get[task](ctx, c, g.host+"/tasks/"+url.PathEscape(taken.Data)+"/status")
		switch {
		case err != nil:
			return fmt.Errorf("task %q: %w", taken.Data, err)
		case t.Status == "stopped" && t.ExitStatus == "OK":
			return nil
		case t.Status == "stopped":
			return fmt.Errorf("task %s ends with: %s", taken.Data, t.ExitStatus)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("task %s has not ended: %w", taken.Data, ctx.Err())
		case <-time.After(taskInterval):
		}
	}
}

// taskInterval is the time between two looks at a task.
const taskInterval = 200 * time.Millisecond

// task of a host. In a list, Status is how it ended.
type task struct {
	UPID, Type, Status, ExitStatus string
	StartTime                      int64
}

// wasKilled is an error if a stop of a machine ended with SIGKILL, and no start has succeeded since:
// a second stop finds nothing to do. Proxmox VE calls it stopped a second later, whether or not QEMU has died: one that waits
// for a storage that hangs dies when that is back, and what it had under way is written then.
func (c *cluster) wasKilled(ctx context.Context, g *guest) error {
	all, err := get[[]task](ctx, c, g.host+"/tasks?source=all&limit=100&vmid="+g.VMID.String())
	if err != nil {
		return fmt.Errorf("the tasks of virtual machine %s: %w", g.VMID, err)
	}
	started := int64(0)
	for _, t := range all {
		if t.Type == "qmstart" && (t.Status == "OK" || strings.HasPrefix(t.Status, "WARNINGS")) {
			started = max(started, t.StartTime)
		}
	}
	for _, t := range all {
		if t.Type != "qmstop" && t.Type != "qmshutdown" || t.StartTime < started {
			continue
		}
		log, err := get[[]struct{ T string }](ctx, c, g.host+"/tasks/"+url.PathEscape(t.UPID)+"/log?limit=10000")
		if err != nil {
			return fmt.Errorf("the log of task %s: %w", t.UPID, err)
		}
		for _, line := range log {
			if strings.Contains(line.T, "SIGKILL") {
				return fmt.Errorf("virtual machine %s is stopped, and its QEMU may live: task %s says %q. See on the host whether its process is gone", g.VMID, t.UPID, line.T)
			}
		}
	}
	return nil
}

func (c *cluster) List(ctx context.Context) (list []*contract.Machine, err error) {
	all, err := c.guests(ctx)
	for _, e := range all {
		if e.Type == "qemu" {
			list = append(list, &contract.Machine{ID: e.VMID.String(), Name: e.Name})
		}
	}
	return list, err
}
