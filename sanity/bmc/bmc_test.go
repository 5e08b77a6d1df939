package bmc

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const guid = "4c4c4544-004b-4a10-8056-b8c04f4d3533"

// ipmitool is a second opinion that nobody here wrote.
func ipmitool(t *testing.T, b *BMC, args ...string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(b.Addr)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	args = append([]string{"-I", "lanplus", "-C", "3", "-H", host, "-p", port, "-U", "admin", "-P", "secret", "-R", "1"}, args...)
	out, err := exec.CommandContext(ctx, "ipmitool", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%v: run make deps", err)
	}
	return string(out)
}

func started(t *testing.T, ctx context.Context, dir string, options Options) *BMC {
	t.Helper()
	options.User, options.Password = "admin", "secret"
	b, err := Start(ctx, dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

func says(t *testing.T, what, out, words string) {
	t.Helper()
	if !strings.Contains(out, words) {
		t.Errorf("%s: %q does not say %q", what, out, words)
	}
}

func TestIpmitoolSwitchesAndReadsThePower(t *testing.T) {
	machine := NewMachine(true)
	b := started(t, t.Context(), t.TempDir(), Options{GUID: guid, Power: machine})
	says(t, "status", ipmitool(t, b, "chassis", "power", "status"), "is on")
	says(t, "GUID", ipmitool(t, b, "raw", "6", "0x37"), "4c 4c 45 44 00 4b 4a 10 80 56 b8 c0 4f 4d 35 33")
	says(t, "off", ipmitool(t, b, "chassis", "power", "off"), "Down/Off")
	says(t, "status", ipmitool(t, b, "chassis", "power", "status"), "is off")
	if machine.On() {
		t.Error("the machine is on")
	}
	says(t, "on", ipmitool(t, b, "chassis", "power", "on"), "Up/On")
	if !machine.On() {
		t.Error("the machine is off")
	}
}

func TestMisbehavioursAreWhatIpmitoolSees(t *testing.T) {
	machine := NewMachine(true)
	b := started(t, t.Context(), t.TempDir(), Options{Power: machine})

	b.IgnorePower(true)
	says(t, "off, ignored", ipmitool(t, b, "chassis", "power", "off"), "Down/Off")
	says(t, "status", ipmitool(t, b, "chassis", "power", "status"), "is on")
	b.IgnorePower(false)

	b.SayOff(true)
	says(t, "a lie", ipmitool(t, b, "chassis", "power", "status"), "is off")
	b.SayOff(false)
	if got := machine.Commands(); len(got) != 0 || !machine.On() {
		t.Errorf("the machine was switched: %v", got)
	}

	b.ReviveAfter(time.Second)
	ipmitool(t, b, "chassis", "power", "off")
	if machine.On() {
		t.Error("the machine is on right after off")
	}
	for deadline := time.Now().Add(10 * time.Second); !machine.On(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the machine did not come back by itself")
		}
	}

	if err := b.Hang(); err != nil {
		t.Fatal(err)
	}
	says(t, "hung", ipmitool(t, b, "chassis", "power", "status"), "Unable to establish")
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	says(t, "resumed", ipmitool(t, b, "chassis", "power", "status"), "is on")

	b.ClosePort()
	if asked(b.Addr) {
		t.Error("the closed port answers")
	}
}

// Stop in the middle of a hang and of a switch that never returns.
func TestStopLeavesNoProcessAndNoFile(t *testing.T) {
	for _, end := range []string{"stop", "ctx"} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		b := started(t, ctx, dir, Options{})
		group := b.sim.group
		b.ReviveAfter(time.Hour)
		ipmitool(t, b, "chassis", "power", "off")
		if err := b.Hang(); err != nil {
			t.Fatal(err)
		}
		if end == "ctx" {
			cancel()
			for deadline := time.Now().Add(10 * time.Second); asked(b.Addr) || exists(b.dir); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it did not end with its ctx")
				}
			}
		}
		b.Stop()
		cancel()
		if err := syscall.Kill(-group, 0); err != syscall.ESRCH {
			t.Errorf("%s: its process group is still there (%v)", end, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left behind: %v, %v", end, left, err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestAMissingIpmiSimSaysWhatToRun(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	b, err := Start(t.Context(), dir, Options{User: "admin", Password: "secret"})
	if err == nil {
		b.Stop()
		t.Fatal("it started without ipmi_sim")
	}
	says(t, "the error", err.Error(), "run make deps")
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
