package ipmi

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	server "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	ipmiserver "github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// The tests of this file ask go-ipmi's own server, inside this process, whose
// answers can be chosen, and put a network between that loses, delays and forges.

// lan is a BMC and the network before it.
type lan struct {
	addr string
	mu   sync.Mutex
	// guid is the answer to Get System GUID; nil: no such command.
	guid []byte
	// status changes the answer to Get Chassis Status.
	status func(*chassis.GetChassisStatusResponse)
	// control answers Chassis Control; nil: the power is switched.
	control func() types.CompletionCode
	// limit is what Get User Access says; 0: no such command.
	limit types.PrivilegeLevel
	// level is what Set Session Privilege Level refuses with, if not CodeOK.
	level types.CompletionCode
	on    bool
	// controls are the chassis control commands that arrived.
	controls []chassis.ChassisControl

	// toBMC and toUs see each packet, and return those to pass on.
	toBMC, toUs func(packet []byte) [][]byte
}

func newLAN(t *testing.T, options ...ipmiserver.ServerOption) *lan {
	t.Helper()
	return newLANFor(t, server.PrivilegeLevelAdministrator, options...)
}

// newLANFor has a user with that limit.
func newLANFor(t *testing.T, privilege server.PrivilegeLevel, options ...ipmiserver.ServerOption) *lan {
	t.Helper()
	return newLANWith(t, user, password, privilege, options...)
}

// newLANOf has another user.
func newLANOf(t *testing.T, user, password string) *lan {
	t.Helper()
	return newLANWith(t, user, password, server.PrivilegeLevelAdministrator)
}

func newLANWith(t *testing.T, user, password string, privilege server.PrivilegeLevel, options ...ipmiserver.ServerOption) *lan {
	t.Helper()
	guid, _ := parse(nodeUUID)
	l := &lan{on: true, guid: guid[:], limit: types.PrivilegeLevelAdministrator}
	machine := server.New(server.DeviceInfo{IPMIVersion: 0x20}, guid, mock.New())
	account, err := machine.Users.Add(2, user)
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.Users.Update(account.ID, func(u *server.User) error {
		copy(u.Password[:], password)
		u.Enabled = true
		u.ChannelAccess = map[uint8]server.UserChannelAccess{1: {MaxPrivilege: privilege, Enabled: true}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := ipmiserver.NewServer(machine, conn, append([]ipmiserver.ServerOption{ipmiserver.WithHandlerRegistry(l.registry())}, options...)...)
	go s.Serve(t.Context())
	t.Cleanup(func() { s.Close() })
	l.addr = l.relay(t, conn.LocalAddr().String())
	return l
}

func (l *lan) registry() *handlers.Registry {
	r := handlers.NewRegistry()
	handlers.RegisterAllHandlers(r)
	answer := func(c types.Command, reply func(request []byte) ([]byte, types.CompletionCode)) {
		r.RegisterFunc(c, func(_ context.Context, _ *handlers.HandlerContext, request []byte) ([]byte, types.CompletionCode, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			data, code := reply(request)
			return data, code, nil
		})
	}
	answer(types.CommandGetSystemGUID, func([]byte) ([]byte, types.CompletionCode) {
		if l.guid == nil {
			return nil, types.CodeInvalidCommand
		}
		return l.guid, types.CodeOK
	})
	answer(types.CommandGetChassisStatus, func([]byte) ([]byte, types.CompletionCode) {
		status := &chassis.GetChassisStatusResponse{PowerIsOn: l.on}
		if l.status != nil {
			l.status(status)
		}
		return status.Pack(), types.CodeOK
	})
	answer(types.CommandChassisControl, func(request []byte) ([]byte, types.CompletionCode) {
		l.controls = append(l.controls, chassis.ChassisControl(request[0]))
		if l.control != nil {
			return nil, l.control()
		}
		l.on = request[0] == byte(chassis.ChassisControlPowerUp)
		return nil, types.CodeOK
	})
	answer(types.CommandSetSessionPrivilegeLevel, func(request []byte) ([]byte, types.CompletionCode) {
		return request, l.level
	})
	answer(types.CommandGetUserAccess, func([]byte) ([]byte, types.CompletionCode) {
		if l.limit == 0 {
			return nil, types.CodeInvalidCommand
		}
		return []byte{10, 1, 0, 0x10 | byte(l.limit)}, types.CodeOK
	})
	return r
}

// relay is the network: one console at a time is enough for these tests, but
// each has a port of its own, as in life.
func (l *lan) relay(t *testing.T, bmc string) string {
	t.Helper()
	near, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	far := map[string]net.Conn{}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, console, err := near.ReadFrom(buffer)
			if err != nil {
				for _, c := range far {
					c.Close()
				}
				return
			}
			conn := far[console.String()]
			if conn == nil {
				if conn, err = net.Dial("udp", bmc); err != nil {
					return
				}
				far[console.String()] = conn
				go l.back(near, console, conn)
			}
			for _, packet := range l.passed(l.filter(true), buffer[:n]) {
				conn.Write(packet)
			}
		}
	}()
	return near.LocalAddr().String()
}

func (l *lan) back(near net.PacketConn, console net.Addr, far net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := far.Read(buffer)
		if err != nil {
			return
		}
		for _, packet := range l.passed(l.filter(false), buffer[:n]) {
			near.WriteTo(packet, console)
		}
	}
}

func (l *lan) filter(toBMC bool) func([]byte) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if toBMC {
		return l.toBMC
	}
	return l.toUs
}

func (l *lan) passed(filter func([]byte) [][]byte, packet []byte) [][]byte {
	packet = bytes.Clone(packet)
	if filter == nil {
		return [][]byte{packet}
	}
	return filter(packet)
}

// set changes the BMC or the network while they run.
func (l *lan) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *lan) commands() []chassis.ChassisControl {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.controls)
}

func TestEachKnownByteOrderOfTheGUIDIsTheNodes(t *testing.T) {
	l := newLAN(t)
	a := newAgent(t, user, password, l.addr)
	devices := map[string]bool{}
	for order, wire := range map[string]string{
		"as written": "4c4c4544004b4a108056b8c04f4d3533",
		"SMBIOS":     "44454c4c4b00104a8056b8c04f4d3533",
		"IPMI":       "33354d4fc0b85680104a4b0044454c4c",
	} {
		raw, err := hex.DecodeString(wire)
		if err != nil {
			t.Fatal(err)
		}
		l.set(func() { l.guid = raw })
		reading, err := a.Status(within(t, 10*time.Second), node)
		if err != nil || reading.State != agent.On || !reading.Checked || !strings.Contains(reading.Detail, "is the node's") {
			t.Errorf("%s: %v, %v", order, reading, err)
		}
		device, faults := a.Check(within(t, 10*time.Second), node)
		if len(faults) != 0 {
			t.Errorf("%s: %v", order, faults)
		}
		devices[device] = true
	}
	doubted := node
	doubted.Doubts = map[string]agent.Doubt{agent.VarSystemUUID: {Why: "another Node says it"}}
	if reading, err := a.Status(within(t, 10*time.Second), doubted); err != nil || reading.State != agent.On || reading.Checked {
		t.Errorf("of a UUID in doubt: %v, %v", reading, err)
	}
	if len(devices) != 1 || !devices[nodeUUID] {
		t.Errorf("devices %v, expected one, %s", devices, nodeUUID)
	}
	// A kernel that prints SMBIOS's swapped fields as they are.
	l.set(func() { l.guid, _ = hex.DecodeString("4c4c4544004b4a108056b8c04f4d3533") })
	swapped := agent.Machine{Node: "n1", SystemUUID: "44454C4C-4B00-104A-8056-B8C04F4D3533"}
	if _, err := a.Status(within(t, 10*time.Second), swapped); err != nil {
		t.Error(err)
	}
}

func TestAnotherMachinesGUIDIsAnErrorAndNoPowerCommandIsSent(t *testing.T) {
	l := newLAN(t)
	a := newAgent(t, user, password, l.addr)
	other := agent.Machine{Node: "n1", SystemUUID: otherUUID}
	_, err := a.Off(within(t, 10*time.Second), other)
	refused(t, err, nodeUUID, otherUUID)
	_, err = a.On(within(t, 10*time.Second), other)
	refused(t, err, nodeUUID, otherUUID)
	_, err = a.Status(within(t, 10*time.Second), other)
	refused(t, err, nodeUUID, otherUUID)
	if got := l.commands(); len(got) != 0 {
		t.Errorf("power commands %v", got)
	}
}

func TestWhereIdentityCannotBeToldItGoesOnAndSaysSo(t *testing.T) {
	placeholder, _ := parse("03000200-0400-0500-0006-000700080009")
	dells, _ := parse("4c4c4544-0000-2010-8020-80c04f202020")
	dells = dells.reversed()
	whole, _ := parse(nodeUUID)
	for _, test := range []struct {
		what, uuid string
		guid       []byte
		words      string
		device     string
	}{
		{"no such command", nodeUUID, nil, "does not tell a system GUID", ""},
		{"zeros", nodeUUID, make([]byte, 16), "placeholder", ""},
		{"all ones", nodeUUID, bytes.Repeat([]byte{0xff}, 16), "placeholder", ""},
		{"a vendor's placeholder", nodeUUID, placeholder[:], "placeholder", ""},
		{"Dell's, in IPMI's order", nodeUUID, dells[:], "placeholder", ""},
		{"the node's own is one", "12345678-1234-5678-90AB-CDDEEFAABBCC", whole[:], "names no machine", nodeUUID},
		{"no system UUID", "", whole[:], "reports no system UUID", nodeUUID},
		{"not a UUID", "serial-17", whole[:], "names no machine", nodeUUID},
	} {
		l := newLAN(t)
		l.set(func() { l.guid = test.guid })
		a := newAgent(t, user, password, l.addr)
		m := agent.Machine{Node: "n1", SystemUUID: test.uuid}
		if test.device == "" {
			test.device = l.addr
		}
		reading, err := a.Status(within(t, 10*time.Second), m)
		if err != nil || reading.State != agent.On || reading.Checked || !strings.Contains(reading.Detail, "was not checked") || !strings.Contains(reading.Detail, test.words) {
			t.Errorf("%s: %v, %v", test.what, reading, err)
		}
		detail, err := a.Off(within(t, 10*time.Second), m)
		if err != nil || !strings.Contains(detail, "was not checked") || !slices.Equal(l.commands(), []chassis.ChassisControl{chassis.ChassisControlPowerDown}) {
			t.Errorf("%s: Off: %q, %v, commands %v", test.what, detail, err, l.commands())
		}
		if device, faults := a.Check(within(t, 10*time.Second), m); device != test.device || len(faults) != 0 {
			t.Errorf("%s: Check: %q, %v", test.what, device, faults)
		}
	}
}

func TestOffWithAFaultOfThePowerIsUnclear(t *testing.T) {
	l := newLAN(t)
	a := newAgent(t, user, password, l.addr)
	for _, test := range []struct {
		status chassis.GetChassisStatusResponse
		state  agent.State
	}{
		{chassis.GetChassisStatusResponse{PowerIsOn: true}, agent.On},
		{chassis.GetChassisStatusResponse{}, agent.Off},
		{chassis.GetChassisStatusResponse{PowerControlFault: true}, agent.Unclear},
		{chassis.GetChassisStatusResponse{PowerFault: true}, agent.Unclear},
		{chassis.GetChassisStatusResponse{PowerFault: true, PowerIsOn: true}, agent.On},
		{chassis.GetChassisStatusResponse{InterLock: true}, agent.Off},
		{chassis.GetChassisStatusResponse{InterLock: true, PowerIsOn: true}, agent.Unclear},
		{chassis.GetChassisStatusResponse{PowerOverload: true}, agent.Off},
		{chassis.GetChassisStatusResponse{PowerOverload: true, PowerIsOn: true}, agent.Unclear},
	} {
		l.set(func() { l.status = func(s *chassis.GetChassisStatusResponse) { *s = test.status } })
		if got := read(t, a); got.State != test.state {
			t.Errorf("%+v reads %v %q, expected %v", test.status, got.State, got.Detail, test.state)
		}
	}
}

func TestOffOfAMachineThatIsOffDoesNoHarm(t *testing.T) {
	l := newLAN(t)
	l.set(func() { l.control = func() types.CompletionCode { return types.CodeNotSupported } })
	a := newAgent(t, user, password, l.addr)
	_, err := a.Off(within(t, 10*time.Second), node)
	refused(t, err, "power off") // it is on: then the refusal is one
	l.set(func() { l.on = false })
	detail, err := a.Off(within(t, 10*time.Second), node)
	if err != nil || !strings.Contains(detail, "already") {
		t.Errorf("%q, %v", detail, err)
	}
}

func TestAUserWithoutPrivilegeIsRefusedAtLogin(t *testing.T) {
	atLogin := newLANFor(t, server.PrivilegeLevelUser)
	afterLogin := newLAN(t)
	afterLogin.set(func() { afterLogin.level = types.CodeSetSessionPrivilegeLevelExceedsLimit })
	for _, l := range []*lan{atLogin, afterLogin} {
		a := newAgent(t, user, password, l.addr)
		if got := read(t, a); got.State != agent.On {
			t.Errorf("read %v", got)
		}
		_, err := a.Off(within(t, 10*time.Second), node)
		refused(t, err, "no privilege", "OPERATOR")
		device, faults := a.Check(within(t, 10*time.Second), node)
		if device != nodeUUID || len(faults) != 1 {
			t.Fatalf("Check: %q, %v", device, faults)
		}
		refused(t, faults[0], "no privilege", "OPERATOR")
		if got := l.commands(); len(got) != 0 {
			t.Errorf("power commands %v", got)
		}
	}
}

func TestALimitThatOnlyTheUsersRightsShowIsFound(t *testing.T) {
	l := newLAN(t)
	a := newAgent(t, user, password, l.addr)
	l.set(func() { l.limit = types.PrivilegeLevelUser })
	_, faults := a.Check(within(t, 10*time.Second), node)
	if len(faults) != 1 {
		t.Fatalf("faults %v", faults)
	}
	refused(t, faults[0], "no privilege", "OPERATOR")
	l.set(func() { l.limit = 0 }) // the BMC does not tell
	if _, faults := a.Check(within(t, 10*time.Second), node); len(faults) != 0 {
		t.Errorf("faults %v", faults)
	}
	if got := l.commands(); len(got) != 0 {
		t.Errorf("power commands %v", got)
	}
}

func TestLostPacketsAreSentAgain(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	a := newAgent(t, user, password, l.addr)
	// Both directions lose each packet once.
	lossy := func() func([]byte) [][]byte {
		seen := map[string]bool{}
		return func(packet []byte) [][]byte {
			if key := string(packet[:16]); !seen[key] {
				seen[key] = true
				return nil
			}
			return [][]byte{packet}
		}
	}
	l.set(func() { l.toBMC = lossy() })
	if _, err := a.Off(within(t, 30*time.Second), node); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(l.commands(), chassis.ChassisControlPowerDown) {
		t.Error("the power command did not arrive")
	}
	l.set(func() { l.toBMC, l.toUs = nil, func(packet []byte) [][]byte { return [][]byte{packet, packet} } })
	if got := read(t, a); got.State != agent.Off {
		t.Errorf("with each answer twice: %v", got)
	}
}

// A late answer to the first of two requests comes when the next is under way.
func TestAnswersSlowerThanTheResendAreTold(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	a := newAgent(t, user, password, l.addr)
	l.set(func() {
		l.toBMC = func(packet []byte) [][]byte {
			time.Sleep(resendAfter + 200*time.Millisecond)
			return [][]byte{packet}
		}
	})
	if got, err := a.Status(within(t, 60*time.Second), node); err != nil || got.State != agent.On {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNothingIsSentAfterTheContext(t *testing.T) {
	t.Parallel()
	// In a session for Off: privilege level, GUID, power down.
	const powerCommand = 3
	for _, end := range []string{"deadline", "cancel"} {
		l := newLAN(t)
		a := newAgent(t, user, password, l.addr)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if end == "deadline" {
			ctx, cancel = context.WithTimeout(t.Context(), 1500*time.Millisecond)
		}
		defer cancel()
		// The network swallows the power command, so that it is sent again.
		var late []time.Time
		var swallowed int
		swallow := func(packet []byte) [][]byte {
			l.mu.Lock()
			defer l.mu.Unlock()
			if ctx.Err() != nil {
				late = append(late, time.Now())
			}
			if kind, _ := open20(packet); kind == types.PayloadTypeIPMI && packet[10] >= powerCommand {
				if swallowed++; swallowed == 1 && end == "cancel" {
					time.AfterFunc(100*time.Millisecond, cancel)
				}
				return nil
			}
			return [][]byte{packet}
		}
		l.set(func() { l.toBMC = swallow })
		began := time.Now()
		_, err := a.Off(ctx, node)
		refused(t, err, "did not answer in time")
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: Off took %s", end, took)
		}
		time.Sleep(2*resendAfter + 200*time.Millisecond)
		l.set(func() {
			if swallowed == 0 || len(late) > 0 || len(l.controls) > 0 {
				t.Errorf("%s: %d packets swallowed, %d sent after the ctx, controls %v", end, swallowed, len(late), l.controls)
			}
		})
	}
}

func TestAnAnswerWithoutTheSessionsCodeIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func([]byte) []byte{
		"not encrypted, not authenticated": func(packet []byte) []byte {
			// What the client would take for power off, were it genuine.
			message := []byte{0x81, 0x04, 0x7b, 0x20, 0, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00}
			header := bytes.Clone(packet[:16])
			header[5], header[14], header[15] = 0, byte(len(message)), 0
			return append(header, message...)
		},
		"one bit of the ciphertext": func(packet []byte) []byte { packet[16+15] ^= 1; return packet },
		"one bit of the code":       func(packet []byte) []byte { packet[len(packet)-1] ^= 1; return packet },
		"not authenticated":         func(packet []byte) []byte { packet[5] &^= 0x40; return packet },
		"shortened":                 func(packet []byte) []byte { return packet[:len(packet)-12] },
	} {
		l := newLAN(t)
		a := newAgent(t, user, password, l.addr)
		l.set(func() {
			l.toUs = func(packet []byte) [][]byte {
				if kind, payload := open20(packet); kind != types.PayloadTypeIPMI || payload == nil {
					return [][]byte{packet}
				}
				return [][]byte{forge(packet)}
			}
		})
		got, err := a.Status(within(t, 1500*time.Millisecond), node)
		if err == nil || got.State != agent.Unclear {
			t.Errorf("%s: read %v, %v", name, got, err)
		}
		// The genuine answer behind a forged one counts.
		l.set(func() {
			l.toUs = func(packet []byte) [][]byte {
				if kind, payload := open20(packet); kind != types.PayloadTypeIPMI || payload == nil {
					return [][]byte{packet}
				}
				return [][]byte{forge(bytes.Clone(packet)), packet}
			}
		})
		if got := read(t, a); got.State != agent.On {
			t.Errorf("%s: read %v behind a forged answer", name, got)
		}
	}
}
