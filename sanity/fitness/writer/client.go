package writer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Progress is what a writer has told so far.
type Progress struct {
	// Wrote and Failed are the numbers of the last writes that are known to
	// have succeeded and failed, Pending that of one that hangs; 0: none.
	Wrote, Failed, Pending uint64
	// Why the last one failed.
	Why string
}

// A Client is the suite's end of the protocol. It may be used by one goroutine at
// a time.
type Client struct {
	in    io.WriteCloser
	close func()
	done  chan struct{} // closed when no more lines are read

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each line
	progress Progress
	replies  []string // started, marked, stopped, error: not fetched yet
	ended    error    // why no more lines come
}

// Dial connects to a writer that listens on TCP.
func Dial(ctx context.Context, address string) (*Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("no writer answers at %s: %w; it is started with csi-fencepost sanity writer --listen", address, err)
	}
	return newClient(conn, conn, func() { conn.Close() }), nil
}

// Exec runs a command of the shell that is a writer on its standard input and
// output, with more environment. What it prints to standard error goes to log.
// It ends with Close.
func Exec(command string, environment []string, log io.Writer) (*Client, error) {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stderr = log
	cmd.WaitDelay = time.Second
	// Ctrl-C is for the suite, which ends the writer after its last question.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("writer %q: %w", command, err)
	}
	return newClient(in, out, func() { endProcess(cmd, in) }), nil
}

// endProcess lets the program end by itself: the end of its input tells it to.
func endProcess(cmd *exec.Cmd, in io.Closer) {
	in.Close()
	kill := time.AfterFunc(5*time.Second, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // its group
	defer kill.Stop()
	cmd.Wait()
}

func newClient(in io.WriteCloser, out io.Reader, close func()) *Client {
	c := &Client{in: in, close: close, done: make(chan struct{}), changed: make(chan struct{})}
	go c.read(out)
	return c
}

// Close ends the connection or the program, and waits until nothing more is read.
func (c *Client) Close() { c.close(); <-c.done }

func (c *Client) read(out io.Reader) {
	defer close(c.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		c.take(lines.Text())
	}
	err := lines.Err()
	if err == nil {
		err = io.EOF
	}
	c.change(func() { c.ended = fmt.Errorf("the writer has ended: %w", err) })
}

func (c *Client) change(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Client) take(line string) {
	word, rest, _ := strings.Cut(line, " ")
	number, why, _ := strings.Cut(rest, " ")
	var n uint64
	fmt.Sscanf(number, "%d", &n)
	c.change(func() {
		switch word {
		case "wrote":
			c.progress.Wrote, c.progress.Pending = n, 0
		case "failed":
			c.progress.Failed, c.progress.Why, c.progress.Pending = n, why, 0
		case "pending":
			c.progress.Pending = n
		default:
			c.replies = append(c.replies, line)
		}
	})
}

// Progress is what the writer has told so far; an error if it tells no more.
func (c *Client) Progress() (Progress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress, c.ended
}

// Until waits until the progress is as wanted, the writer ends, or ctx does.
func (c *Client) Until(ctx context.Context, wanted func(Progress) bool) (Progress, error) {
	for {
		c.mu.Lock()
		p, ended, changed := c.progress, c.ended, c.changed
		c.mu.Unlock()
		switch {
		case wanted(p):
			return p, nil
		case ended != nil:
			return p, ended
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
}

// Start begins the writing and says how the volume is written to.
func (c *Client) Start(ctx context.Context, what Start) (how string, err error) {
	text, err := json.Marshal(what)
	if err != nil {
		return "", err
	}
	c.change(func() { c.progress = Progress{} })
	return c.ask(ctx, "start "+string(text), "started")
}

// Mark returns a number; every write with a number above it began after the call
// did.
func (c *Client) Mark(ctx context.Context) (uint64, error) {
	text, err := c.ask(ctx, "mark", "marked")
	if err != nil {
		return 0, err
	}
	var n uint64
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil {
		return 0, fmt.Errorf("the writer answers mark with %q, which is no number", text)
	}
	return n, nil
}

// Stop lets go of the volume.
func (c *Client) Stop(ctx context.Context) error {
	_, err := c.ask(ctx, "stop", "stopped")
	return err
}

// ask sends a line and waits for its reply.
func (c *Client) ask(ctx context.Context, line, want string) (string, error) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return "", fmt.Errorf("the writer cannot be asked: %w", err)
	}
	for {
		c.mu.Lock()
		var reply string
		if len(c.replies) > 0 {
			reply, c.replies = c.replies[0], c.replies[1:]
		}
		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		word, rest, _ := strings.Cut(reply, " ")
		switch {
		case reply != "" && word == want:
			return rest, nil
		case reply != "" && word == "error":
			return "", errors.New("the writer says: " + rest)
		case reply != "":
			return "", fmt.Errorf("the writer answers %q where %s was expected", reply, want)
		case ended != nil:
			return "", ended
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for the writer's answer to %s: %w", strings.Fields(line)[0], ctx.Err())
		}
	}
}
