package vsphere_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/vsphere"
)

const (
	uuid    = "4237e6c2-1111-4222-8333-444444444444"
	swapped = "c2e63742-1111-2242-8333-444444444444"
	another = "4237e6c2-1111-4222-8333-555555555555"
	missing = "4237e6c2-1111-4222-8333-666666666666"
)

// site is vcsim's vCenter, with two datacenters, which have a machine each.
type site struct {
	vc       *simulator.Service
	machine  *simulator.VirtualMachine
	other    *simulator.VirtualMachine
	host     *simulator.HostSystem
	power    *agenttest.Power
	sessions atomic.Int64
	// before is called with what is asked.
	before func(question string)
}

func newSite(t testing.TB) *site {
	model := simulator.VPX()
	model.Datacenter, model.Host, model.ClusterHost, model.Machine = 2, 0, 1, 1
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Remove)
	s := &site{vc: model.Service, power: &agenttest.Power{On: "poweredOn connected connected", Off: "poweredOff connected connected", Between: "poweredOn connected notResponding"}, before: func(string) {}}
	s.vc.Listen = &url.URL{User: url.UserPassword("fencing@vsphere.local", "password-of-fencing")}
	s.vc.RegisterSDK(model.Map())
	s.vc.ServeMux.HandleFunc("/sdk/vimServiceVersions.xml", s.vc.ServiceVersions)
	s.power.Set(s.power.On)
	all := model.Map().All("VirtualMachine")
	slices.SortFunc(all, func(a, b mo.Entity) int { return strings.Compare(a.Reference().Value, b.Reference().Value) })
	s.machine = all[0].(*simulator.VirtualMachine)
	s.host = model.Map().Get(*s.machine.Runtime.Host).(*simulator.HostSystem)
	s.set(s.machine, "config.uuid", uuid)
	s.set(s.machine, "name", "n1")
	s.other = all[1].(*simulator.VirtualMachine)
	s.set(s.other, "config.uuid", another)
	return s
}

func (s *site) set(of mo.Reference, property string, value any) {
	s.vc.Context.Map.AtomicUpdate(s.vc.Context, of, []types.PropertyChange{{Name: property, Val: value}})
}

// ServeHTTP has the simulator's machine be in the state of power, "POWER MACHINE HOST", whenever it
// is read, and tells power of the commands.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	question := string(text)
	s.before(question)
	switch {
	case strings.Contains(question, "runtime.powerState"):
		words := append(strings.Split(s.power.State(), " "), "", "")
		s.set(s.machine, "runtime.powerState", types.VirtualMachinePowerState(words[0]))
		s.set(s.machine, "runtime.connectionState", types.VirtualMachineConnectionState(words[1]))
		s.set(s.host, "runtime.connectionState", types.HostSystemConnectionState(words[2]))
	case strings.Contains(question, "PowerOffVM_Task"):
		s.power.Send(true, "PowerOffVM_Task")
	case strings.Contains(question, "PowerOnVM_Task"):
		s.power.Send(false, "PowerOnVM_Task")
	case strings.Contains(question, "<Login "):
		s.sessions.Add(1)
	case strings.Contains(question, "<Logout "):
		s.sessions.Add(-1)
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	s.vc.ServeMux.ServeHTTP(w, r)
}

func (s *site) world(t testing.TB) *agenttest.World {
	server := agenttest.NewServer(t, s)
	ip, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	return &agenttest.World{
		Agent: vsphere.Agent(), Server: server, Power: s.power,
		Parameters: map[string]string{"ip": ip, "ipport": port, "username": "fencing@vsphere.local", "password": "password-of-fencing",
			"fingerprint": server.Fingerprint(), "plug": "vsphere://" + uuid},
		Identities: []string{s.machine.Self.Value, uuid}, UUID: uuid,
		Names: "plug", Missing: missing, Secret: "password",
		SentOff: "PowerOffVM_Task", SentOn: "PowerOnVM_Task",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }),
	}
}

func TestVSphere(t *testing.T) {
	agenttest.Suite(t, func(t testing.TB) *agenttest.World { return newSite(t).world(t) }, map[string]int{
		"poweredOn connected connected": 0, "poweredOff connected connected": 2,
		"suspended connected connected": 1, " connected connected": 1, "standBy connected connected": 1,
		"poweredOff disconnected connected": 1, "poweredOff inaccessible connected": 1, "poweredOff orphaned connected": 1, "poweredOff invalid connected": 1, "poweredOff  connected": 1,
		"poweredOff connected notResponding": 1, "poweredOff connected disconnected": 1, "poweredOff connected ": 1, "poweredOff disconnected notResponding": 1,
		"poweredOn disconnected connected": 1, "poweredOn connected notResponding": 1, "poweredOn disconnected notResponding": 1,
	})
}

func TestAMachineIsNamedByItsBIOSUUIDInEitherOrder(t *testing.T) {
	s := newSite(t)
	w := s.world(t)
	s.set(s.machine, "config.instanceUuid", missing)
	for plug, want := range map[string]int{uuid: 0, "vsphere://" + uuid: 0, "vsphere://" + strings.ToUpper(uuid): 0, "vsphere://" + swapped: 0, another: 0,
		missing: 1, "n1": 1, "vsphere://n1": 1, "vsphere://": 1, "vsphere:///" + uuid: 1, "aws:///" + uuid: 1, s.machine.Self.Value: 1,
		"00000000-0000-0000-0000-000000000000": 1, "03000200-0400-0500-0006-000700080009": 1} {
		w.Parameters["plug"] = plug
		got := agenttest.Run(t, w.Agent, "status", w.Parameters)
		if got.Code != want || want == 1 && strings.Contains(got.Err, "is no virtual machine of vSphere") != (plug != missing) {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
	w.Parameters["plug"], w.Parameters["uuid"] = "vsphere://"+swapped, swapped
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 0 || !strings.Contains(got.Out, "Identity: "+swapped+"\n") {
		t.Errorf("as the guest has it: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || !strings.Contains(got.Out, s.machine.Self.Value+",n1\n") || strings.Count(got.Out, "\n") != 2 {
		t.Errorf("list: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
	if n := s.sessions.Load(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// A clone that kept its UUID, in another datacenter, or with the UUID in the other order.
func TestTwoMachinesWithOneUUIDAreNeitherReadNorCut(t *testing.T) {
	for _, twins := range []string{uuid, swapped} {
		s := newSite(t)
		w := s.world(t)
		s.set(s.other, "config.uuid", twins)
		for _, state := range []string{s.power.On, s.power.Off} {
			s.power.Set(state)
			for _, action := range []string{"status", "off", "on"} {
				if got := agenttest.Run(t, w.Agent, action, w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "2 virtual machines") {
					t.Errorf("%s of a machine that is %s: exit %d, %q, %s", action, state, got.Code, got.Out, got.Err)
				}
			}
		}
		if sent := s.power.Sent(); len(sent) > 0 {
			t.Errorf("sent %q", sent)
		}
	}
}

// The index of a vCenter is of what it heard before.
func TestAMachineThatHasAnotherUUIDByNowIsNotTaken(t *testing.T) {
	for _, by := range []string{another, ""} {
		s := newSite(t)
		w := s.world(t)
		s.before = func(question string) {
			if strings.Contains(question, "runtime.powerState") {
				s.set(s.machine, "config.uuid", by)
			}
		}
		s.power.Set(s.power.Off)
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "where "+uuid) {
			t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
		}
	}
}

// A host is lost between the answer about the machine and the one about the host.
func TestAHostThatIsLostMeanwhileTellsNothing(t *testing.T) {
	s := newSite(t)
	w := s.world(t)
	s.power.Set(s.power.Off)
	read := false
	s.before = func(question string) {
		if machine := strings.Contains(question, "runtime.powerState"); read && !machine && strings.Contains(question, "HostSystem") {
			s.set(s.host, "runtime.connectionState", types.HostSystemConnectionStateNotResponding)
		} else if machine {
			read = true
		}
	}
	if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || !read {
		t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

func TestAMachineWithoutAHostTellsNothing(t *testing.T) {
	s := newSite(t)
	w := s.world(t)
	s.power.Set(s.power.Off)
	for says, host := range map[string]*types.ManagedObjectReference{"its host is <nil>": nil, "its host: ": {Type: "HostSystem", Value: "host-4711"}} {
		s.vc.Context.Map.WithLock(s.vc.Context, s.machine, func() { s.machine.Runtime.Host = host })
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != 1 || got.Out != "" || !strings.Contains(got.Err, says) {
			t.Errorf("%s: exit %d, %q, %s", says, got.Code, got.Out, got.Err)
		}
	}
}

// The task of a command tells how it ended.
func TestAStopThatFailedIsSaid(t *testing.T) {
	s := newSite(t)
	w := s.world(t)
	s.before = func(question string) {
		if strings.Contains(question, "PowerOffVM_Task") { // it is off already, which the agent has not read
			s.set(s.machine, "runtime.powerState", types.VirtualMachinePowerStatePoweredOff)
		}
	}
	if got := agenttest.Run(t, w.Agent, "off", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "InvalidPowerState") {
		t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
	if n := s.sessions.Load(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestAVCenterIsAskedInAVersionThatItHas(t *testing.T) {
	for versions, want := range map[string]int{
		`<namespaces version="1.0"><namespace><name>urn:vim25</name><version>6.7.3</version></namespace><namespace><name>urn:vim2</name><version>2.0</version></namespace></namespaces>`: 0,
		`<namespaces version="1.0"><namespace><name>urn:vim2</name><version>2.0</version></namespace></namespaces>`:                                                                      1,
	} {
		s := newSite(t)
		w := s.world(t)
		w.Server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/sdk/vimServiceVersions.xml" {
				_, _ = io.WriteString(rw, versions)
				return
			}
			if as := r.Header.Get("SOAPAction"); want == 0 && as != "urn:vim25/6.7.3" {
				t.Errorf("asked as %s", as)
			}
			s.ServeHTTP(rw, r)
		})
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %s", versions, got.Code, got.Err)
		}
	}
}

func TestWhatIsNoVCenterIsAnError(t *testing.T) {
	const versions = `<namespaces version="1.0"><namespace><name>urn:vim25</name><version>8.0.3.0</version></namespace></namespaces>`
	for _, c := range []struct{ versions, text, want string }{
		{"", "", "vimServiceVersions.xml"}, {"<html>", "", "vimServiceVersions.xml"},
		{versions, "", "EOF"}, {versions, "{}", "EOF"}, {versions, "<html>no</html>", "html"}, {versions, `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body/></Envelope>`, "answers with nothing"},
		{versions, `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><RetrieveServiceContentResponse xmlns="urn:vim25"><returnval></returnval></RetrieveServiceContentResponse></Body></Envelope>`, "has no sessions"},
	} {
		server := agenttest.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := c.text
			if r.URL.Path == "/sdk/vimServiceVersions.xml" {
				text = c.versions
			}
			_, _ = io.WriteString(w, text)
		}))
		ip, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
		got := agenttest.Run(t, vsphere.Agent(), "status", map[string]string{"ip": ip, "ipport": port, "username": "u", "password": "password-of-u", "fingerprint": server.Fingerprint(), "plug": uuid})
		if got.Code != 1 || !strings.Contains(got.Err, "vCenter "+server.URL) || !strings.Contains(got.Err, c.want) {
			t.Errorf("%q: exit %d, %q, %s", c.text, got.Code, got.Out, got.Err)
		}
	}
}
