package observe

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// said is a log that is read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

// take returns what was written since the last time.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

// A start in a large cluster takes long: the log tells how far it has come, at once
// when it waits for something else, and otherwise every few seconds.
func TestTheLogTellsHowFarTheListingsHaveCome(t *testing.T) {
	w := newRig(t, anyDriver, 1, false).watch
	synctest.Test(t, func(t *testing.T) {
		var log said
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		lines := func() []string {
			return strings.Split(strings.TrimSuffix(log.take(), "\n"), "\n")
		}
		says := func(when, line string, parts ...string) {
			for _, part := range parts {
				if !strings.Contains(line, part) {
					t.Errorf("%s: %q does not say %q", when, line, part)
				}
			}
		}
		const waiting = "Waiting for the Kubernetes objects"
		vs, as := w.feeds[volumes], w.feeds[attachments]
		for _, f := range []*feed{vs, as} {
			f.synced.Store(false)
			f.listed.Store(0)
		}
		w.feeds[nodes].listed.Store(17)

		ended := make(chan error, 1)
		go func() { ended <- w.WaitReady(ctx) }()
		synctest.Wait()
		got := lines()
		if len(got) != 1 {
			t.Fatalf("at first it says %q, want one line", got)
		}
		says("at first", got[0], waiting, `missing="persistentvolumes: not listed yet; volumeattachments: not listed yet"`, "nodes=17", "persistentVolumes=0", "volumeAttachments=0")

		vs.listed.Store(40_000)
		time.Sleep(sayEvery - time.Second)
		synctest.Wait()
		if early := log.take(); early != "" {
			t.Errorf("before %s are over it says %q", sayEvery, early)
		}
		time.Sleep(time.Second + 100*time.Millisecond)
		synctest.Wait()
		if got = lines(); len(got) != 1 {
			t.Fatalf("after %s it says %q, want one line", sayEvery, got)
		}
		says("later", got[0], waiting, "persistentVolumes=40000", "volumeAttachments=0")

		vs.synced.Store(true)
		vs.listed.Store(100_000)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got = lines(); len(got) != 1 {
			t.Fatalf("when it waits for less it says %q, want one line at once", got)
		}
		says("when it waits for less", got[0], waiting, `missing="volumeattachments: not listed yet"`, "persistentVolumes=100000")

		as.listed.Store(99_000)
		time.Sleep(4*sayEvery + time.Second)
		synctest.Wait()
		if got = lines(); len(got) != 4 {
			t.Errorf("in %s more it says %q, want 4 lines", 4*sayEvery+time.Second, got)
		}
		says("then", got[0], waiting, "volumeAttachments=99000")

		as.synced.Store(true)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got = lines(); len(got) != 1 {
			t.Fatalf("in the end it says %q, want one line", got)
		}
		says("in the end", got[0], "Watching the Kubernetes objects", "persistentVolumes=100000", "volumeAttachments=99000", `took="26.`)

		as.synced.Store(false)
		ended = make(chan error, 1)
		ctx, cancel := context.WithCancel(ctx)
		go func() { ended <- w.WaitReady(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil || err.Error() != "volumeattachments: not listed yet" {
			t.Errorf("where it cannot wait any longer it returns %v", err)
		}
	})
}
