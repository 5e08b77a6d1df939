package bmc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options describe one BMC.
type Options struct {
	// GUID is the system GUID, a UUID whose bytes the BMC tells in the order in
	// which they are written here; dashes are ignored. Empty: all zeros, which
	// stand for none (without any, ipmi_sim lets nobody log in).
	GUID string
	// User and Password log in.
	User, Password string
	// Privilege is the user's limit: "user", "operator" or "admin" (the default).
	// ipmi_sim tells it, and yet lets the user raise a session past it.
	Privilege string
	// Power is what is switched; a Machine of its own, that is on, if nil.
	Power PowerSwitch
	// Port that it is to have, such as that of a BMC that was stopped; a free one if 0.
	Port int
}

// BMC is a running ipmi_sim.
type BMC struct {
	// Addr is host:port, UDP.
	Addr string

	dir     string
	chassis *chassis
	sim     *process
	once    sync.Once
}

// Start runs a BMC, with its files in a new folder inside dir, and returns once
// it answers. It ends with Stop, or with ctx.
func Start(ctx context.Context, dir string, options Options) (*BMC, error) {
	var err error
	for range 5 { // another process may take the port between its choice and its use
		var b *BMC
		if b, err = start(ctx, dir, options); err == nil {
			context.AfterFunc(ctx, b.Stop)
			return b, nil
		}
		if errors.Is(err, errNoProgram) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("start a BMC: %w", err)
}

func start(ctx context.Context, dir string, options Options) (_ *BMC, err error) {
	port := options.Port
	if port == 0 {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp(dir, "bmc-")
	if err != nil {
		return nil, err
	}
	b := &BMC{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: folder}
	defer func() {
		if err != nil {
			b.Stop()
		}
	}()
	if options.Power == nil {
		options.Power = NewMachine(true)
	}
	if b.chassis, err = newChassis(folder, options.Power); err != nil {
		return nil, err
	}
	if err := configure(folder, port, options); err != nil {
		return nil, err
	}
	b.sim, err = launch(folder, "ipmi_sim", "-c", "lan.conf", "-f", "sim.emu", "-s", "state", "-n")
	if err != nil {
		return nil, err
	}
	return b, b.answers(ctx)
}

// configure writes ipmi_sim's files.
func configure(folder string, port int, options Options) error {
	privilege := options.Privilege
	if privilege == "" {
		privilege = "admin"
	}
	guid, err := hex.DecodeString(strings.ReplaceAll(options.GUID, "-", ""))
	if len(guid) == 0 {
		guid = make([]byte, 16)
	}
	if err != nil || len(guid) != 16 {
		return fmt.Errorf("GUID %q is not a UUID", options.GUID)
	}
	var lan strings.Builder
	fmt.Fprintf(&lan, "name \"bmc\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 %d\npriv_limit admin\n", port)
	for _, level := range []string{"callback", "user", "operator", "admin"} {
		fmt.Fprintf(&lan, "allowed_auths_%s none md2 md5 straight\n", level)
	}
	fmt.Fprintf(&lan, "guid %x\nendlan\nchassis_control \"%s 0x20\"\n", guid, filepath.Join(folder, chassisProgram))
	fmt.Fprintf(&lan, "user 2 true %q %q %s 10 none md2 md5 straight\n", options.User, options.Password, privilege)

	const emulator = "mc_setbmc 0x20\n" +
		"mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n" +
		"mc_enable 0x20\n"
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "lan.conf"), []byte(lan.String()), 0o600),
		os.WriteFile(filepath.Join(folder, "sim.emu"), []byte(emulator), 0o600),
		os.Mkdir(filepath.Join(folder, "state"), 0o700))
}

func freePort() (int, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port, nil
}

// authCapabilities is Get Channel Authentication Capabilities, which needs no
// session (IPMI 2.0, 22.13).
var authCapabilities = []byte{
	0x06, 0x00, 0xff, 0x07,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09,
	0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5,
}

// answers waits for the first answer.
func (b *BMC) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		if asked(b.Addr) {
			return nil
		}
		select {
		case <-b.sim.ended:
			return fmt.Errorf("ipmi_sim ended: %s", b.sim.output())
		case <-ctx.Done():
			return fmt.Errorf("ipmi_sim does not answer on %s (%w): %s", b.Addr, ctx.Err(), b.sim.output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func asked(addr string) bool {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := conn.Write(authCapabilities); err != nil {
		return false
	}
	n, err := conn.Read(make([]byte, 256))
	return err == nil && n > 20
}

// Stop ends everything and removes the folder. It may be called again.
func (b *BMC) Stop() {
	b.once.Do(func() {
		b.ClosePort()
		if b.chassis != nil {
			b.chassis.close()
		}
		os.RemoveAll(b.dir)
	})
}

// ClosePort ends ipmi_sim: nothing listens on Addr any more. The machine is left
// as it is.
func (b *BMC) ClosePort() {
	if b.sim != nil {
		b.sim.kill()
	}
}

// Hang stops ipmi_sim in its tracks: it answers nothing, and its port stays
// open. What is sent meanwhile waits, and is done after Resume.
func (b *BMC) Hang() error { return b.sim.pause() }

// Resume ends Hang.
func (b *BMC) Resume() error { return b.sim.resume() }

// IgnorePower has the BMC accept power commands and do nothing.
func (b *BMC) IgnorePower(ignore bool) { b.chassis.set(func(f *faults) { f.ignore = ignore }) }

// SayOff has the BMC say that the machine is off, whatever it is.
func (b *BMC) SayOff(say bool) { b.chassis.set(func(f *faults) { f.sayOff = say }) }

// ReviveAfter has the BMC power the machine on by itself, so long after it was
// powered off through it; 0 ends that.
func (b *BMC) ReviveAfter(wait time.Duration) {
	b.chassis.set(func(f *faults) { f.reviveAfter = wait })
}
