package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/sanity/bench/blackout"
)

func TestASpreadIsTheMedianWithItsExtremes(t *testing.T) {
	for _, c := range []struct {
		figures   []float64
		want      spread
		worthless bool
	}{
		{[]float64{3}, spread{3, 3, 3, 3, 3}, false},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 1, 4, 4}, true},
		// One round that stood still says nothing about the others.
		{[]float64{10, 11, 1, 99, 10}, spread{10, 1, 10, 11, 99}, false},
		{[]float64{10, 20, 1, 99, 10}, spread{10, 1, 10, 20, 99}, true},
	} {
		got := spreadOf(c.figures)
		if got != c.want || got.worthless() != c.worthless {
			t.Errorf("%v: got %+v, worthless %v; want %+v, %v", c.figures, got, got.worthless(), c.want, c.worthless)
		}
	}
	if text := spreadOf([]float64{10, 20, 1, 99, 10}).text(0); text != "10 (1–99) ⚠" {
		t.Errorf("a worthless figure reads %q", text)
	}
}

func TestEveryRoundTakesEachPathOnceAndBeginsWithAnother(t *testing.T) {
	var order []string
	found, err := alternate(3, []string{"a", "b", "c"}, func(p string) (string, error) {
		order = append(order, p)
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abcbcacab" {
		t.Errorf("order %s", got)
	}
	if want := [][]string{{"a", "a", "a"}, {"b", "b", "b"}, {"c", "c", "c"}}; !reflect.DeepEqual(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestRatiosAndDifferencesAreOfTheSameRound(t *testing.T) {
	own, base := []float64{20, 300, 4}, []float64{10, 100, 1}
	same := func(f float64) float64 { return f }
	if got := ratios(own, base, same); got.median != 3 || got.least != 2 || got.most != 4 {
		t.Errorf("ratios %+v, want 3 (2–4)", got)
	}
	if got := differences(own, base, same); got.median != 10 || got.least != 3 || got.most != 200 {
		t.Errorf("differences %+v, want 10 (3–200)", got)
	}
}

func TestTheFirstErrorEndsAMeasurement(t *testing.T) {
	broken := errors.New("broken")
	_, err := callFor(t.Context(), 3, time.Hour, func(_ context.Context, caller int) error {
		if caller == 1 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the caller's", err)
	}
}

func TestTheSpliceCopiesBothWaysAndEndsWithEitherSide(t *testing.T) {
	folder := t.TempDir()
	target, listen := filepath.Join(folder, "t"), filepath.Join(folder, "l")
	driver, err := net.Listen("unix", target)
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- serveSplice(ctx, listen, target) }()

	caller := dialSoon(t, listen)
	far, err := driver.Accept()
	if err != nil {
		t.Fatal(err)
	}
	there, back := bytes.Repeat([]byte("request "), 20_000), bytes.Repeat([]byte("answer "), 30_000)
	for _, way := range []struct {
		from, to net.Conn
		text     []byte
	}{{caller, far, there}, {far, caller, back}} {
		go way.from.Write(way.text)
		got := make([]byte, len(way.text))
		if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, way.text) {
			t.Fatalf("%d bytes came out changed or not at all: %v", len(way.text), err)
		}
	}
	far.Close()
	if _, err := caller.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the driver has hung up the caller reads %v, want EOF", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the splice ended with %v", err)
	}
}

func dialSoon(t *testing.T, socket string) net.Conn {
	t.Helper()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTheAuditLogIsCountedByNamespaceAndOnlyOnce(t *testing.T) {
	log := &auditLog{path: filepath.Join(t.TempDir(), "audit.log")}
	line := func(verb, user, resource, sub string) string {
		return `{"verb":"` + verb + `","user":{"username":"system:serviceaccount:` + user + `"},"objectRef":{"resource":"` + resource + `","subresource":"` + sub + `"}}` + "\n"
	}
	if got, err := log.next("guard"); err != nil || len(got) != 0 {
		t.Fatalf("a log that is not there yet: %v, %v", got, err)
	}
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(log.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	half := line("patch", "guard:x", "persistentvolumes", "")
	write(line("get", "guard:x", "nodes", "") + line("get", "guard:x", "nodes", "") + line("watch", "guard:x", "nodes", "") +
		line("get", "guarded:x", "nodes", "") + line("patch", "guard:x", "nodes", "status") + half[:20])
	got, err := log.next("guard")
	if want := (tally{"get nodes": 2, "watch nodes": 1, "patch nodes/status": 1}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("counted %v, %v; want %v", got, err, want)
	}
	if reads, writes, kinds := got.of(2); reads != 1 || writes != .5 || kinds != "get nodes × 1, patch nodes/status × 0.5" {
		t.Errorf("each of two cycles: %v reads, %v writes (%s)", reads, writes, kinds)
	}
	write(half[20:])
	if got, err := log.next("guard"); err != nil || !reflect.DeepEqual(got, tally{"patch persistentvolumes": 1}) {
		t.Errorf("counted then %v, %v; want the line that was half written before", got, err)
	}
}

func TestTheCPUTimeOfAProcessGrowsWithItsWork(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
	}
	after, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown <= 0 || grown > 10*time.Second {
		t.Errorf("20 ms of work took %s of CPU time", grown)
	}
}

func TestACommandLineThatIsWrongIsNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-only=pass,nonsense": `no section "nonsense"`,
		"-also=path":          "not name=path",
		"-rounds=0":           "more than 0",
		"-failovers=0":        "more than 0",
		"-volumes=101":        "1 to 100",
		"-kinds=slower":       `no kind "slower"`,
		"-manager=qps=100":    "begin with --",
		"extra":               `"extra" is not a flag`,
	} {
		if _, err := parse([]string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
	o, err := parse([]string{"-only=pass,guard"})
	if err != nil || !o.wants("guard") || o.wants("list") {
		t.Errorf("-only=pass,guard wants %+v, %v", o, err)
	}
}

func TestAFailoverIsTimedFromItsProofAndFromThePowersEnd(t *testing.T) {
	off := time.Now()
	at := func(seconds ...float64) (list []time.Time) {
		for _, s := range seconds {
			list = append(list, off.Add(time.Duration(s*float64(time.Second))))
		}
		return list
	}
	m := blackout.Moments{PowerOff: off, Tainted: at(16)[0], NotReady: at(48)[0], Published: at(17, 19), Running: at(18, 21)}
	want := failoverSample{notReady: 48, proof: 16, first: 1, all: 3, total: 19, running: 21, violations: 2}
	if got := sampleOf(m, 2); got != want {
		t.Errorf("where an operator taints: %+v, want %+v", got, want)
	}
	m.Proven = at(15)[0]
	want.proof, want.first, want.all = 15, 2, 4
	if got := sampleOf(m, 2); got != want {
		t.Errorf("where it was proven before the taint: %+v, want %+v", got, want)
	}
}

func TestWhatAFailoverNeedsIsMissedBeforeAnythingIsMeasured(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := (&options{}).present(); err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("without ipmi_sim: error %v", err)
	}
	if err := (&options{only: []string{"pass"}}).present(); err != nil {
		t.Errorf("a section that needs nothing: %v", err)
	}
}

// What is measured as deployed is what is deployed.
func TestTheFlagsAsDeployedAreThoseOfTheSidecar(t *testing.T) {
	patch, err := deploy.Files.ReadFile("sidecar/patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range slices.Concat(deployed, advised) {
		if !strings.Contains(string(patch), "- "+flag+"\n") {
			t.Errorf("deploy/sidecar/patch.yaml has no %s", flag)
		}
	}
}
