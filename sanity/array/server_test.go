package array

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestADriverRestartLosesNothing(t *testing.T) {
	for name, end := range map[string]func(*Array){"stop": (*Array).Stop, "kill": (*Array).Kill} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.volume("v")
			r.use("v", "n1", single)
			end(r.Array)
			end(r.Array)
			must(t, r.WaitWrites(r.ctx(), "v", "n1", 3)) // the container does not notice
			_, err := os.Lstat(r.socket())
			if left := err == nil; left != (name == "kill") {
				t.Errorf("socket file left: %v", left)
			}
			r.serve()
			wantCode(t, r.publish("v", "n2"), codes.FailedPrecondition)
			must(t, r.unpublish("v", "n1"))
		})
	}
}

func TestStopWaitsForRunningCallsAndKillDoesNot(t *testing.T) {
	for name, want := range map[string]codes.Code{"stop": codes.OK, "kill": codes.Unavailable} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.volume("v")
			fault := r.Inject(Fault{Method: Publish, Do: Hang})
			answer := make(chan error, 1)
			go func() { answer <- r.publish("v", "n1") }()
			must(t, r.WaitFor(r.ctx(), "the call to hang", func() bool { return fault.Hits() == 1 }))
			if name == "kill" {
				r.Kill()
			} else {
				time.AfterFunc(50*time.Millisecond, fault.Clear)
				r.Stop()
			}
			wantCode(t, <-answer, want)
			if attached := len(r.Attached("v")) > 0; attached != (name == "stop") {
				t.Errorf("attached: %v", attached)
			}
		})
	}
}

func TestTheDriverEndsWithItsContext(t *testing.T) {
	r := newRig(t, Options{})
	r.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	must(t, r.Serve(ctx, r.socket()))
	n, err := r.ServeNode(ctx, r.nodeOptions("n3"))
	must(t, err)
	cancel()
	served := func() bool {
		for _, socket := range []string{r.socket(), n.Socket()} {
			short, done := context.WithTimeout(r.ctx(), time.Second)
			_, err := spec.NewIdentityClient(dial(t, socket)).Probe(short, &spec.ProbeRequest{})
			done()
			if err == nil {
				return true
			}
		}
		return false
	}
	must(t, r.WaitFor(r.ctx(), "both to end", func() bool { return !served() }))
	r.serve()
	r.addNode("n3")
}

func TestTheWriterOutlivesTheNodeService(t *testing.T) {
	for name, end := range map[string]func(*Node){"stop": (*Node).Stop, "kill": (*Node).Kill} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.volume("v")
			r.use("v", "n1", single)
			end(r.served["n1"])
			must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
			registrationSocket := filepath.Join(r.nodeOptions("n1").RegistrationDir, r.DriverName()+"-reg.sock")
			for _, socket := range []string{r.served["n1"].Socket(), registrationSocket} {
				_, err := os.Lstat(socket)
				if gone := errors.Is(err, fs.ErrNotExist); gone != (name == "stop") {
					t.Errorf("%s: gone %v", socket, gone)
				}
			}
			r.addNode("n1")
			r.letGo("v", "n1")
			r.wantViolations()
		})
	}
}

func TestASocketThatCannotBeServedIsNamed(t *testing.T) {
	r := newRig(t, Options{})
	other := New(Options{})
	defer other.Close()
	file := filepath.Join(r.dir, "file")
	must(t, os.WriteFile(file, []byte("precious"), 0o600))
	for _, path := range []string{r.socket(), file, r.dir, filepath.Join(r.dir, strings.Repeat("x", 120))} {
		if err := other.Serve(r.ctx(), path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != "precious" {
		t.Errorf("a file was lost: %q, %v", kept, err)
	}
	if err := r.Serve(r.ctx(), filepath.Join(r.dir, "second")); err == nil {
		t.Error("one driver serves twice")
	}
	if _, err := r.ServeNode(r.ctx(), r.nodeOptions("n1")); err == nil {
		t.Error("one node socket is served twice")
	}
	must(t, r.publishNothing())
}

// publishNothing shows that the first server is still well.
func (r *rig) publishNothing() error {
	_, err := r.identity.Probe(r.ctx(), &spec.ProbeRequest{})
	return err
}

func TestAClosedArrayServesNoMoreButCanBeRead(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	r.Close()
	if r.Serve(context.Background(), r.socket()) == nil {
		t.Error("a closed array serves")
	}
	if _, err := r.ServeNode(context.Background(), r.nodeOptions("n3")); err == nil {
		t.Error("a closed array serves a node")
	}
	w := r.Writes("v")
	if len(w) != 1 || w[0].Accepted < 3 || w[0].First.After(w[0].Last) || len(r.Timeline()) == 0 {
		t.Errorf("writes %+v, timeline %v", w, r.Timeline())
	}
}

func TestTheTimelineTellsTheStory(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.unpublish("v", "n1"))
	must(t, r.WaitFor(r.ctx(), "a rejected write", func() bool { return r.Writes("v")[0].Rejected > 0 }))
	var story strings.Builder
	for _, e := range r.Timeline() {
		if e.Volume == "v" {
			story.WriteString(e.Node + " " + e.Text + "\n")
		}
	}
	want := strings.Join([]string{
		"n1 attached by ControllerPublishVolume",
		"n1 staged",
		"n1 published to a container",
		"n1 writes",
		"n1 detached by ControllerUnpublishVolume",
		" VIOLATION TakenInUse: detached by ControllerUnpublishVolume from n1, which has power and the volume published",
		"n1 a write was rejected: the array grants no access",
		"",
	}, "\n")
	if story.String() != want {
		t.Errorf("got\n%s\nwant\n%s", story.String(), want)
	}
}
