package program_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
)

// debian is an agent of Debian's package fence-agents.
func debian(t *testing.T, name string, o program.Options) *program.Program {
	t.Helper()
	need(t, filepath.Join("/usr/sbin", name))
	o.Name, o.Agent, o.Dirs = "real", name, nil
	return newProgram(t, o)
}

func need(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make deps", err)
	}
}

func perNode(parameters map[string]string) program.Options {
	return program.Options{Parameters: parameters}
}

func TestDebiansDummyIsReadSwitchedOffAndOn(t *testing.T) {
	dir := t.TempDir()
	p := debian(t, "fence_dummy", perNode(map[string]string{"type": "file", "status_file": dir + "/$(NODE)"}))
	write(t, filepath.Join(dir, "n1"), "on")
	write(t, filepath.Join(dir, "n2"), "on")
	ctx := within(t, 60*time.Second)
	if p.Proves() != fence.PowerReading {
		t.Errorf("proves %s", p.Proves())
	}
	for _, step := range []struct {
		do   func() (string, error)
		want agent.State
	}{
		{nil, agent.On},
		{func() (string, error) { return p.Off(ctx, n1) }, agent.Off},
		{func() (string, error) { return p.Off(ctx, n1) }, agent.Off}, // twice does no harm
		{func() (string, error) { return p.On(ctx, n1) }, agent.On},
	} {
		if step.do != nil {
			if detail, err := step.do(); err != nil || detail == "" {
				t.Errorf("%q, %v", detail, err)
			}
		}
		if r, err := p.Status(ctx, n1); err != nil || r.State != step.want {
			t.Errorf("read %v (%s), %v, want %v", r.State, r.Detail, err, step.want)
		}
	}
	if got := read(t, dir, "n2"); got != "on" {
		t.Errorf("another node's outlet is %s", got)
	}
	write(t, filepath.Join(dir, "n1"), "suspended")
	if r, err := p.Status(ctx, n1); err == nil || r.State != agent.Unclear {
		t.Errorf("suspended reads %v, %v", r.State, err)
	}
}

func TestDebiansMetadataAreUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		parameters map[string]string
		kind       fence.Kind
		want       string // of the faults; empty: the parameters pass
	}{
		"fence_aws": {map[string]string{"plug": "$(INSTANCE_ID)", "region": "eu-1", "acess_key": "x"}, fence.PowerReading,
			`no parameter "acess_key"; the nearest it knows: access_key`},
		"fence_apc_snmp":        {map[string]string{"ip": "pdu", "port": "$(NODE)", "plug": "3"}, fence.PowerReading, "are the same to it"},
		"fence_scsi":            {map[string]string{"key": "$(NODE)", "devises": "/dev/sdx"}, fence.StorageFence, `the nearest it knows: devices`},
		"fence_mpath":           {map[string]string{"key": "$(NODE)", "options": "x"}, fence.StorageFence, `no parameter "options"`},
		"fence_heuristics_ping": {map[string]string{"ping_targets": "$(NODE)"}, fence.PowerReading, "no action status"},
		"fence_brocade":         {map[string]string{"ip": "switch", "plug": "$(NODE)", "nope": "1"}, fence.StorageFence, `no parameter "nope"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := debian(t, name, perNode(c.parameters))
			if got := p.Proves(); got != c.kind {
				t.Errorf("proves %s, want %s", got, c.kind)
			}
			_, faults := p.Check(within(t, 60*time.Second), n1)
			wantError(t, errors.Join(faults...), c.want)
		})
	}
	for _, name := range []string{"fence_sbd", "fence_kdump", "fence_redfish", "fence_compute"} {
		need(t, filepath.Join("/usr/sbin", name))
		if _, err := program.New(program.Options{Name: "real", Agent: name, Parameters: map[string]string{"ip": "$(NODE)"}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestDebiansIPMIAgentFencesASimulatedBMC(t *testing.T) {
	need(t, "/usr/bin/ipmitool")
	dir, port := simulateBMC(t)
	o := perNode(map[string]string{"ip": "127.0.0.1", "lanplus": "1", "cipher": "3", "username": "admin",
		"power_timeout": "6", "verbose": "1"})
	o.NodeParameters = map[string]map[string]string{"ipport": {"n1": fmt.Sprint(port)}}
	o.ParameterFiles = map[string]string{"password": filepath.Join(dir, "password")}
	write(t, filepath.Join(dir, "password"), "bmc-secret\n")
	p := debian(t, "fence_ipmilan", o)
	ctx := within(t, 120*time.Second)
	var r agent.Reading
	var err error
	for range 20 { // until the BMC is up
		if r, err = p.Status(ctx, n1); err == nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err != nil || r.State != agent.On {
		t.Fatalf("read %v, %v", r, err)
	}
	if _, err := p.Off(ctx, n1); err != nil {
		t.Fatal(err)
	}
	if r, err = p.Status(ctx, n1); err != nil || r.State != agent.Off {
		t.Errorf("after off: read %v, %v", r, err)
	}
	if got := strings.TrimSpace(read(t, dir, "power")); got != "0" {
		t.Errorf("the machine's power is %s", got)
	}
	write(t, filepath.Join(dir, "password"), "wrong-secret\n")
	r, err = p.Status(ctx, n1)
	if err == nil || r.State != agent.Unclear {
		t.Errorf("with a wrong password: read %v, %v", r, err)
	}
	if shown := fmt.Sprint(r, err); strings.Contains(shown, "wrong-secret") {
		t.Errorf("the password is shown: %s", shown)
	}
}

// simulateBMC runs OpenIPMI's simulator, whose machine's power is a file.
func simulateBMC(t *testing.T) (dir string, port int) {
	t.Helper()
	sim, err := exec.LookPath("ipmi_sim")
	if err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	port = socket.LocalAddr().(*net.UDPAddr).Port
	socket.Close()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "power"), "1")
	write(t, filepath.Join(dir, "lan.conf"), fmt.Sprintf(`name "bmc1"
set_working_mc 0x20
startlan 1
addr 127.0.0.1 %d
priv_limit admin
allowed_auths_admin none md2 md5 straight
guid a123456789abcdefa123456789abcdef
endlan
chassis_control "%s/chassis.sh 0x20"
user 2 true "admin" "bmc-secret" admin 10 none md2 md5 straight
`, port, dir))
	write(t, filepath.Join(dir, "sim.emu"), "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n")
	chassis := "#!/bin/sh\nif [ $2 = get ]; then echo power:$(cat " + dir + "/power); else echo $4 >" + dir + "/power; fi\n"
	if err := os.WriteFile(filepath.Join(dir, "chassis.sh"), []byte(chassis), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), sim, "-c", dir+"/lan.conf", "-f", dir+"/sim.emu", "-s", dir+"/state", "-n")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return dir, port
}
