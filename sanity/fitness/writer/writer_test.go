package writer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain makes this binary the writer that Exec runs.
func TestMain(m *testing.M) {
	if path := os.Getenv("WRITER_TEST_PATH"); path != "" {
		o := &Options{Path: path}
		if err := o.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// disk is a Target whose owner can take it away.
type disk struct {
	fails, hangs atomic.Bool
	mu           sync.Mutex
	began, good  []uint64
	closed       atomic.Bool
}

func (d *disk) Write(n uint64) error {
	d.mu.Lock()
	d.began = append(d.began, n)
	d.mu.Unlock()
	for d.hangs.Load() {
		time.Sleep(time.Millisecond)
	}
	if d.fails.Load() {
		return errors.New("input/output\nerror")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good = append(d.good, n)
	return nil
}

func (d *disk) Close() error {
	d.closed.Store(true)
	return nil
}

func (d *disk) open(Start) (Target, string, error) { return d, "direct", nil }

// serve returns a suite's end of a writer.
func serve(t *testing.T, open Open) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Listen(ctx, listener, open) }()
	c, err := Dial(t.Context(), listener.Addr().String())
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Listen: %v", err)
		}
	})
	return c
}

func start(t *testing.T, c *Client) {
	t.Helper()
	if how, err := c.Start(t.Context(), Start{VolumeID: "v", NodeID: "n"}); err != nil || how != "direct" {
		t.Fatalf("%q, %v", how, err)
	}
	until(t, c, func(p Progress) bool { return p.Wrote > 0 })
}

func until(t *testing.T, c *Client, wanted func(Progress) bool) Progress {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	p, err := c.Until(ctx, wanted)
	if err != nil {
		t.Fatalf("%v: %+v", err, p)
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMarkTellsTheWritesAfterItFromThoseBefore(t *testing.T) {
	d := &disk{}
	c := serve(t, d.open)
	start(t, c)
	for range 20 {
		d.mu.Lock()
		before := d.began[len(d.began)-1] // began before the mark is asked for
		d.mu.Unlock()
		mark, err := c.Mark(t.Context())
		must(t, err)
		if mark < before {
			t.Fatalf("write %d began before the mark, which is %d", before, mark)
		}
	}
}

// One write that got through before the first that fails is the answer "no".
func TestTheLastWriteThatSucceededIsToldBeforeTheFirstThatFails(t *testing.T) {
	for range 20 {
		d := &disk{}
		c := serve(t, d.open)
		start(t, c)
		d.fails.Store(true)
		p := until(t, c, func(p Progress) bool { return p.Failed > 0 })
		d.mu.Lock()
		last := d.good[len(d.good)-1]
		d.mu.Unlock()
		if p.Wrote != last || p.Why != "input/output error" {
			t.Fatalf("told %+v, and write %d was the last that succeeded", p, last)
		}
	}
}

func TestAWriterThatIsLetInAgainSaysSo(t *testing.T) {
	d := &disk{}
	c := serve(t, d.open)
	start(t, c)
	d.fails.Store(true)
	failed := until(t, c, func(p Progress) bool { return p.Failed > 0 })
	d.fails.Store(false)
	until(t, c, func(p Progress) bool { return p.Wrote > failed.Failed })
}

func TestAWriteThatHangsIsNeitherGoodNorBad(t *testing.T) {
	d := &disk{}
	c := serve(t, d.open)
	start(t, c)
	d.hangs.Store(true)
	p := until(t, c, func(p Progress) bool { return p.Pending > 0 })
	if p.Pending <= p.Wrote || p.Failed > 0 {
		t.Errorf("%+v", p)
	}
	d.hangs.Store(false)
	if p = until(t, c, func(q Progress) bool { return q.Wrote > p.Pending }); p.Pending != 0 {
		t.Errorf("what hung once hangs for ever: %+v", p)
	}
}

func TestStopLetsGoAndStartBeginsAgain(t *testing.T) {
	d := &disk{}
	c := serve(t, d.open)
	start(t, c)
	if _, err := c.Start(t.Context(), Start{}); err == nil || !strings.Contains(err.Error(), "writing already") {
		t.Errorf("a second start: %v", err)
	}
	must(t, c.Stop(t.Context()))
	if !d.closed.Load() {
		t.Error("it is not closed")
	}
	start(t, c)
}

func TestTheEndOfTheSuiteLetsGo(t *testing.T) {
	d := &disk{}
	in, suite := io.Pipe()
	done := make(chan error)
	go func() { done <- Serve(t.Context(), in, io.Discard, d.open) }()
	_, err := io.WriteString(suite, "start {}\n")
	must(t, err)
	suite.Close()
	must(t, <-done)
	if !d.closed.Load() {
		t.Error("it is not closed")
	}
}

func TestWhatCannotBeDoneIsSaid(t *testing.T) {
	c := serve(t, func(Start) (Target, string, error) { return nil, "", errors.New("no such device") })
	if _, err := c.Start(t.Context(), Start{}); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("%v", err)
	}
	if _, err := c.ask(t.Context(), "begin", "started"); err == nil || !strings.Contains(err.Error(), `unknown word "begin"`) {
		t.Errorf("%v", err)
	}
	if _, err := c.ask(t.Context(), "start x", "started"); err == nil || !strings.Contains(err.Error(), "invalid character") {
		t.Errorf("%v", err)
	}
	if _, err := Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "no writer answers at 127.0.0.1:1") {
		t.Errorf("%v", err)
	}
}

func TestAProgramIsAWriterOnItsStandardInputAndOutput(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	path := filepath.Join(t.TempDir(), "$(VOLUME_ID)")
	var log bytes.Buffer
	c, err := Exec(self, []string{"WRITER_TEST_PATH=" + path}, &log)
	must(t, err)
	how, err := c.Start(t.Context(), Start{VolumeID: "vol-1"})
	if err != nil || (how != "direct" && how != "sync") {
		t.Fatalf("%q, %v, %s", how, err, log.String())
	}
	until(t, c, func(p Progress) bool { return p.Wrote > 3 })
	c.Close()
	if _, err := c.Progress(); err == nil {
		t.Error("it has not ended")
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "vol-1"))
	must(t, err)
	if !strings.HasPrefix(string(text), magic) || len(text) != blockBytes {
		t.Errorf("it wrote %d bytes: %.40q", len(text), text)
	}
}

func TestTheDataOfOthersIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "theirs")
	must(t, os.WriteFile(theirs, []byte("a file system"), 0o600))
	if _, _, err := OpenPath(theirs, false)(Start{}); err == nil || !strings.Contains(err.Error(), "--overwrite") {
		t.Errorf("%v", err)
	}
	if text, _ := os.ReadFile(theirs); string(text) != "a file system" {
		t.Errorf("it was overwritten: %q", text)
	}
	zeroes := filepath.Join(dir, "zeroes")
	must(t, os.WriteFile(zeroes, make([]byte, 2*blockBytes), 0o600))
	for path, overwrite := range map[string]bool{theirs: true, zeroes: false} {
		for range 2 { // what it has written itself it may write over
			d, _, err := OpenPath(path, overwrite)(Start{})
			must(t, err)
			must(t, d.Write(7))
			must(t, d.Close())
			overwrite = false
		}
	}
}

func TestOnlyDisksAndFilesAreWrittenTo(t *testing.T) {
	for path, want := range map[string]string{
		"/dev/null":                   "neither a block device nor a file",
		"/dev/no-such-disk":           "no such file",
		t.TempDir():                   "is a directory",
		"/dev/$(CONTEXT.device)":      "$(CONTEXT.device) is not known",
		"/dev/$(NODE_ID)/$(VOLUME)":   "$(VOLUME) is not known",
		"/nonexistent/$(CONTEXT.key)": "/nonexistent/x",
	} {
		_, _, err := OpenPath(path, false)(Start{PublishContext: map[string]string{"key": "x"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if _, err := os.Stat("/dev/no-such-disk"); err == nil {
		os.Remove("/dev/no-such-disk")
		t.Error("a file was made in place of a disk that is not there")
	}
}

func TestFlagsThatAreMissingAreNamed(t *testing.T) {
	for _, c := range []struct{ args, want string }{{"", "--path is missing"}, {"--path=/a b", `"b" is no flag`}, {"--pat=/a", "pat"}} {
		if _, err := Parse(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	o, err := Parse([]string{"--path=/a", "--listen=:1", "--overwrite"})
	if err != nil || o.Path != "/a" || o.Listen != ":1" || !o.Overwrite {
		t.Errorf("%+v, %v", o, err)
	}
}
