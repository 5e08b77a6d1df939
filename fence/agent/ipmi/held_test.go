package ipmi

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

func holding(t *testing.T, addr string) *IPMI {
	t.Helper()
	a := newAgent(t, user, password, addr)
	a.options.Hold = true
	return a
}

func TestASessionLastsFromOnToOff(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	a := holding(t, b.Addr)
	if r := read(t, a); r.State != agent.On || r.Session != agent.Fresh {
		t.Fatalf("first: %+v", r)
	}
	first := a.held.byNode["n1"]
	machine.Set(false)
	for range 2 {
		if r := read(t, a); r.State != agent.Off || r.Session != agent.Held {
			t.Fatalf("off: %+v", r)
		}
	}
	if a.held.byNode["n1"] != first {
		t.Error("another session was opened")
	}
}

// What it reads right after its start says nothing of the machine.
func TestABMCThatStartsAnewIsReadInAFreshSession(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	a := holding(t, b.Addr)
	read(t, a)
	_, port, _ := net.SplitHostPort(b.Addr)
	number, _ := strconv.Atoi(port)
	b.Stop()
	machine.Set(false)
	again, err := bmc.Start(t.Context(), t.TempDir(), bmc.Options{GUID: nodeUUID, User: user, Password: password, Power: machine, Port: number})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	for range 2 {
		if r := read(t, a); r.State != agent.Off || r.Session != agent.Fresh {
			t.Fatalf("after its start: %+v", r)
		}
	}
}

func TestAChangedPasswordOpensAnotherSession(t *testing.T) {
	b, _ := simulate(t, bmc.Options{})
	a := holding(t, b.Addr)
	read(t, a)
	write(t, a.options.PasswordFile, "wrong")
	if r, err := a.Status(within(t, 5*time.Second), node); err == nil {
		t.Errorf("it was read by the password of before: %+v", r)
	}
}

func TestAHeldSessionChecksEachTimeWhoseBMCItIs(t *testing.T) {
	b, _ := simulate(t, bmc.Options{})
	a := holding(t, b.Addr)
	read(t, a)
	_, err := a.Status(within(t, 5*time.Second), agent.Machine{Node: "n1", SystemUUID: otherUUID})
	refused(t, err, "it belongs to another machine")
}

func TestNothingIsSentBetweenTwoReadings(t *testing.T) {
	b, _ := simulate(t, bmc.Options{})
	a := holding(t, b.Addr)
	read(t, a)
	w := a.held.byNode["n1"].wire
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("it was")
	}
}
