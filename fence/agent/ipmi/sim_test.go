package ipmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

// The tests of this file ask Debian's ipmi_sim, which nobody here wrote.

const (
	nodeUUID  = "4c4c4544-004b-4a10-8056-b8c04f4d3533"
	otherUUID = "11111111-2222-4333-8444-555555555555"
	user      = "fencer"
	password  = "s3cret-Pa55"
)

var node = agent.Machine{Node: "n1", SystemUUID: nodeUUID}

func simulate(t *testing.T, options bmc.Options) (*bmc.BMC, *bmc.Machine) {
	t.Helper()
	machine := bmc.NewMachine(true)
	options.Power = machine
	if options.User == "" {
		options.User, options.Password = user, password
	}
	if options.GUID == "" {
		options.GUID = nodeUUID
	}
	b, err := bmc.Start(t.Context(), t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b, machine
}

// newAgent returns an agent for n1 (and n2, if there are two addresses).
func newAgent(t *testing.T, name, pass string, addrs ...string) *IPMI {
	t.Helper()
	nodes := map[string]string{}
	for i, addr := range addrs {
		nodes[fmt.Sprintf("n%d", i+1)] = addr
	}
	dir := t.TempDir()
	options := Options{Name: "bmc", UsernameFile: filepath.Join(dir, "user"), PasswordFile: filepath.Join(dir, "password"), Nodes: nodes}
	write(t, options.UsernameFile, name+"\n")
	write(t, options.PasswordFile, pass+"\n")
	a, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func read(t *testing.T, a *IPMI) agent.Reading {
	t.Helper()
	reading, err := a.Status(within(t, 10*time.Second), node)
	if err != nil {
		t.Fatal(err)
	}
	return reading
}

// refused checks an error: what it says, and that it says no secret.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, expected one that says %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("error shows the password: %q", err)
	}
}

func TestOffAndOnSwitchThePowerAndStatusReadsIt(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	a := newAgent(t, user, password, b.Addr)
	if a.Name() != "bmc" || a.Proves() != fence.PowerReading || !a.Covers("n1") || a.Covers("n2") {
		t.Errorf("name %q, proves %q, covers n1 %v, n2 %v", a.Name(), a.Proves(), a.Covers("n1"), a.Covers("n2"))
	}
	if got := read(t, a); got.State != agent.On || !strings.Contains(got.Detail, nodeUUID) {
		t.Errorf("at first: %v %q", got.State, got.Detail)
	}
	for range 2 { // twice does no harm
		if _, err := a.Off(within(t, 10*time.Second), node); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, a); got.State != agent.Off || machine.On() {
		t.Errorf("after Off: %v %q, machine on: %v", got.State, got.Detail, machine.On())
	}
	if _, err := a.On(within(t, 10*time.Second), node); err != nil {
		t.Fatal(err)
	}
	if got := read(t, a); got.State != agent.On || !machine.On() {
		t.Errorf("after On: %v %q, machine on: %v", got.State, got.Detail, machine.On())
	}
	if got := machine.Commands(); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("power commands %v", got)
	}
}

func TestFenceIpmilanReadsTheSameState(t *testing.T) {
	program := "/usr/sbin/fence_ipmilan"
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	b, machine := simulate(t, bmc.Options{})
	a := newAgent(t, user, password, b.Addr)
	_, port, _ := strings.Cut(b.Addr, ":")
	for _, on := range []bool{true, false, true} {
		machine.Set(on)
		status := exec.CommandContext(within(t, 60*time.Second), program)
		status.Stdin = strings.NewReader(fmt.Sprintf("action=status\nip=127.0.0.1\nipport=%s\nlanplus=1\ncipher=3\nusername=%s\npassword=%s\n", port, user, password))
		out, err := status.CombinedOutput()
		theirs := map[int]agent.State{0: agent.On, 2: agent.Off}[status.ProcessState.ExitCode()]
		if ours := read(t, a); ours.State == agent.Unclear || ours.State != theirs {
			t.Errorf("machine on: %v; we read %v %q, fence_ipmilan %v (%v): %s", on, ours.State, ours.Detail, theirs, err, out)
		}
	}
}

func TestABMCThatAcceptsOffAndStaysOnReadsOn(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	b.IgnorePower(true)
	a := newAgent(t, user, password, b.Addr)
	if _, err := a.Off(within(t, 10*time.Second), node); err != nil {
		t.Fatal(err)
	}
	if got := read(t, a); got.State != agent.On || !machine.On() {
		t.Errorf("read %v, machine on: %v", got.State, machine.On())
	}
}

func TestABMCThatFailsToSwitchIsAnError(t *testing.T) {
	machine := bmc.NewMachine(true)
	machine.Changed = func(bool) error { return errors.New("relay stuck") }
	b, err := bmc.Start(t.Context(), t.TempDir(), bmc.Options{User: user, Password: password, GUID: nodeUUID, Power: machine})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAgent(t, user, password, b.Addr)
	_, err = a.Off(within(t, 10*time.Second), node)
	refused(t, err, "power off", b.Addr)
}

// The device's word is all that there is: package agent says so.
func TestABMCThatSaysOffIsBelieved(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	b.SayOff(true)
	if got := read(t, newAgent(t, user, password, b.Addr)); got.State != agent.Off || !machine.On() {
		t.Errorf("read %v, machine on: %v", got.State, machine.On())
	}
}

func TestAMachineThatComesBackByItselfReadsOnAgain(t *testing.T) {
	b, _ := simulate(t, bmc.Options{})
	b.ReviveAfter(500 * time.Millisecond)
	a := newAgent(t, user, password, b.Addr)
	if _, err := a.Off(within(t, 10*time.Second), node); err != nil {
		t.Fatal(err)
	}
	if got := read(t, a); got.State != agent.Off {
		t.Errorf("read %v right after Off", got.State)
	}
	for deadline := time.Now().Add(5 * time.Second); read(t, a).State != agent.On; {
		if time.Now().After(deadline) {
			t.Fatal("it never read on")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestAHungBMCEndsWithTheContextAndGetsNoPowerCommandLater(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	a := newAgent(t, user, password, b.Addr)
	if err := b.Hang(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := a.Off(within(t, 2500*time.Millisecond), node)
	refused(t, err, "did not answer in time", b.Addr)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not a deadline", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Off took %s", took)
	}
	if got, err := a.Status(within(t, time.Second), node); err == nil || got.State != agent.Unclear {
		t.Errorf("Status of a hung BMC: %v, %v", got.State, err)
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, a); got.State != agent.On { // it has worked off what waited
		t.Errorf("after its hang: %v", got.State)
	}
	if got := machine.Commands(); len(got) != 0 {
		t.Errorf("a hung BMC did %v after its hang", got)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	gone, _ := simulate(t, bmc.Options{})
	gone.ClosePort()
	for _, test := range []struct {
		what  string
		agent *IPMI
		words []string
	}{
		{"wrong password", newAgent(t, user, "wrong", b.Addr), []string{"wrong password", "/password"}},
		{"no such user", newAgent(t, "nobody", password, b.Addr), []string{"no such user", "/user"}},
		{"closed port", newAgent(t, user, password, gone.Addr), []string{"connection refused"}},
		{"wrong host", newAgent(t, user, password, "bmc-n1.invalid"), []string{"bmc-n1.invalid", "DNS"}},
	} {
		_, err := test.agent.Off(within(t, 10*time.Second), node)
		t.Logf("%s: %v", test.what, err)
		refused(t, err, append(test.words, "n1")...)
		_, faults := test.agent.Check(within(t, 10*time.Second), node)
		if len(faults) != 1 {
			t.Errorf("%s: Check found %v", test.what, faults)
			continue
		}
		refused(t, faults[0], test.words...)
	}
	if got := machine.Commands(); len(got) != 0 {
		t.Errorf("power commands %v", got)
	}
}

func TestAUserWithoutPrivilegeReadsAndIsFoundWithoutTouchingPower(t *testing.T) {
	b, machine := simulate(t, bmc.Options{User: user, Password: password, Privilege: "user"})
	a := newAgent(t, user, password, b.Addr)
	if got := read(t, a); got.State != agent.On {
		t.Errorf("read %v", got.State)
	}
	device, faults := a.Check(within(t, 10*time.Second), node)
	if device != nodeUUID || len(faults) != 1 {
		t.Fatalf("Check: %q, %v", device, faults)
	}
	refused(t, faults[0], "no privilege", "OPERATOR")
	if got := machine.Commands(); len(got) != 0 {
		t.Errorf("power commands %v", got)
	}
}

func TestAnOperatorIsEnough(t *testing.T) {
	b, machine := simulate(t, bmc.Options{User: user, Password: password, Privilege: "operator"})
	a := newAgent(t, user, password, b.Addr)
	if device, faults := a.Check(within(t, 10*time.Second), node); device != nodeUUID || len(faults) != 0 {
		t.Errorf("Check: %q, %v", device, faults)
	}
	if got := machine.Commands(); len(got) != 0 {
		t.Errorf("Check sent power commands %v", got)
	}
	if _, err := a.Off(within(t, 10*time.Second), node); err != nil || machine.On() {
		t.Errorf("Off: %v, machine on: %v", err, machine.On())
	}
}

func TestTwoNodesWithOneBMCAreFound(t *testing.T) {
	b, machine := simulate(t, bmc.Options{})
	a := newAgent(t, user, password, b.Addr, b.Addr)
	n2 := agent.Machine{Node: "n2", SystemUUID: otherUUID}
	one, faults := a.Check(within(t, 10*time.Second), node)
	if len(faults) != 0 {
		t.Error(faults)
	}
	two, faults := a.Check(within(t, 10*time.Second), n2)
	if one == "" || one != two {
		t.Errorf("one BMC is two devices, %q and %q", one, two)
	}
	if len(faults) != 1 {
		t.Fatalf("Check of n2: %v", faults)
	}
	refused(t, faults[0], nodeUUID, otherUUID, "n2")

	_, err := a.Off(within(t, 10*time.Second), n2)
	refused(t, err, nodeUUID, otherUUID, "n2", "another machine")
	_, err = a.On(within(t, 10*time.Second), n2)
	refused(t, err, nodeUUID, otherUUID)
	if got, err := a.Status(within(t, 10*time.Second), n2); err == nil || got.State != agent.Unclear {
		t.Errorf("Status of another's machine: %v, %v", got.State, err)
	}
	if got := machine.Commands(); len(got) != 0 {
		t.Errorf("another's machine got power commands %v", got)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	b, _ := simulate(t, bmc.Options{})
	a := newAgent(t, user, password, b.Addr)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 5 { // more logins than ipmi_sim has sessions
				if got, err := a.Status(within(t, 20*time.Second), node); err != nil || got.State != agent.On {
					t.Errorf("%v, %v", got.State, err)
				}
			}
		})
	}
	wait.Wait()
}
