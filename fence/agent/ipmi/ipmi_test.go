package ipmi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	good := func() Options {
		return Options{Name: "bmc", UsernameFile: "/u", PasswordFile: "/p", Nodes: map[string]string{"n1": "10.0.0.1"}}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for words, change := range map[string]func(*Options){
		"no name":       func(o *Options) { o.Name = "" },
		"user's name":   func(o *Options) { o.UsernameFile = "" },
		"the password":  func(o *Options) { o.PasswordFile = "" },
		"no node":       func(o *Options) { o.Nodes = nil },
		"node n1":       func(o *Options) { o.Nodes["n1"] = "" },
		"between 1 and": func(o *Options) { o.Nodes["n1"] = "bmc:70000" },
		"not a host":    func(o *Options) { o.Nodes["n1"] = "a:b:c" },
	} {
		options := good()
		change(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not in %v", words, err)
		}
	}
}

func TestThePortIs623WhereNoneIsGiven(t *testing.T) {
	for bmc, address := range map[string]string{
		"10.0.0.1":        "10.0.0.1:623",
		"10.0.0.1:6230":   "10.0.0.1:6230",
		"bmc-1.example":   "bmc-1.example:623",
		"bmc-1.example:1": "bmc-1.example:1",
		"fd00::1":         "[fd00::1]:623",
		"[fd00::1]":       "[fd00::1]:623",
		"[fd00::1]:6230":  "[fd00::1]:6230",
	} {
		if got, err := withPort(bmc); err != nil || got != address {
			t.Errorf("%q is %q, %v; expected %q", bmc, got, err, address)
		}
	}
}

func TestCredentialsAreReadAtEachUseAndNamedWhenMissing(t *testing.T) {
	l := newLAN(t)
	a := newAgent(t, user, "wrong", l.addr)
	ctx := within(t, 20*time.Second)
	_, err := a.Status(ctx, node)
	refused(t, err, "wrong password", a.options.PasswordFile)

	write(t, a.options.PasswordFile, password) // rotated, and without a newline
	if _, err := a.Status(ctx, node); err != nil {
		t.Error(err)
	}
	for file, content := range map[string]string{
		a.options.UsernameFile: "\n",
		a.options.PasswordFile: strings.Repeat(password, 2),
	} {
		before, _ := os.ReadFile(file)
		write(t, file, content)
		_, err = a.Status(ctx, node)
		refused(t, err, file)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		_, err = a.Status(ctx, node)
		refused(t, err, filepath.Base(file), "no such file")
		if _, faults := a.Check(ctx, node); len(faults) != 1 {
			t.Errorf("Check without %s: %v", file, faults)
		}
		write(t, file, string(before))
	}
}

// A kubelet puts a rotated Secret into place by turning one link over.
func secretVolume(t *testing.T, folder string, keys map[string]string) {
	t.Helper()
	data, err := os.MkdirTemp(folder, "..")
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range keys {
		write(t, filepath.Join(data, key), value)
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(folder, key)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	next := filepath.Join(folder, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(folder, "..data")); err != nil {
		t.Fatal(err)
	}
}

func TestEachNodeHasItsOwnCredentials(t *testing.T) {
	one, two := newLAN(t), newLANOf(t, "another", "0ther-Pa55")
	secrets := t.TempDir()
	secretVolume(t, secrets, map[string]string{"n1.user": user, "n1.password": password, "n2.user": "another", "n2.password": password})
	a, err := New(Options{Name: "bmc", UsernameFile: secrets + "/$(NODE).user", PasswordFile: secrets + "/$(NODE).password",
		Nodes: map[string]string{"n1": one.addr, "n2": two.addr, "n3": one.addr}})
	if err != nil {
		t.Fatal(err)
	}
	n2 := agent.Machine{Node: "n2", SystemUUID: nodeUUID}
	if got := read(t, a); got.State != agent.On {
		t.Errorf("n1: %v", got)
	}
	_, err = a.Status(within(t, 10*time.Second), n2)
	refused(t, err, "wrong password in "+secrets+"/n2.password", "n2.user")

	secretVolume(t, secrets, map[string]string{"n1.user": user, "n1.password": password, "n2.user": "another", "n2.password": "0ther-Pa55"})
	for range 2 {
		if got, err := a.Status(within(t, 10*time.Second), n2); err != nil || got.State != agent.On {
			t.Errorf("n2, once its Secret is right: %v, %v", got, err)
		}
	}
	_, err = a.Status(within(t, 10*time.Second), agent.Machine{Node: "n3"})
	refused(t, err, "n3.user", "no such file")
}

func TestANodeWithoutABMCIsAnError(t *testing.T) {
	a := newAgent(t, user, password, "127.0.0.1:1")
	stranger := agent.Machine{Node: "stranger"}
	_, err := a.Off(t.Context(), stranger)
	refused(t, err, "stranger", "has no BMC")
	device, faults := a.Check(t.Context(), stranger)
	if device != "" || len(faults) != 1 {
		t.Errorf("Check: %q, %v", device, faults)
	}
}
