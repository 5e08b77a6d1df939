package program

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxOutput is kept of each stream; what comes after it is read and dropped.
	maxOutput = 64 << 10
	// outputWait is how long the streams may stay open once all is dead.
	outputWait = 500 * time.Millisecond
)

// call is one run of a program.
type call struct {
	path    string
	args    []string
	stdin   string
	secrets secrets
}

// result is what a program came to.
type result struct {
	code      int
	out, errs output
}

// output is a stream's beginning.
type output struct {
	text string
	cut  bool
}

// run runs the program in a process group of its own, without the environment
// of this process, and returns when it and its descendants are dead. An exit
// code is no error; being killed is.
func (c *call) run(ctx context.Context) (result, error) {
	if ctx.Err() != nil {
		return result{code: -1}, fmt.Errorf("not started: %w", context.Cause(ctx))
	}
	var out, errs capture
	mark := markName + "=" + rand.Text()
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", "HOME=/", mark}
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = outputWait
	if err := cmd.Start(); err != nil {
		return result{code: -1}, fmt.Errorf("it cannot be started: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		awaitExit(cmd.Process.Pid)
	}()
	stopped := false
	select {
	case <-ended:
	case <-ctx.Done():
		stopped = true
	}
	// The leader is not reaped yet, so its group's number is still its own.
	killAll(cmd.Process.Pid, mark)
	<-ended
	killAll(cmd.Process.Pid, mark) // born while the first were killed
	err := cmd.Wait()
	reap(cmd.Process.Pid)

	res := result{code: cmd.ProcessState.ExitCode(), out: out.output(), errs: errs.output()}
	var exit *exec.ExitError
	switch {
	case stopped:
		return res, fmt.Errorf("it was killed: %w", context.Cause(ctx))
	case res.code < 0:
		return res, fmt.Errorf("it died: %s", cmd.ProcessState)
	case err != nil && !errors.As(err, &exit):
		return res, fmt.Errorf("its output: %w", err)
	}
	return res, nil
}

// awaitExit waits until the process is dead and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

// capture keeps the beginning of what is written to it and takes the rest.
type capture struct {
	buf bytes.Buffer
	cut bool
}

func (c *capture) Write(p []byte) (int, error) {
	room := maxOutput - c.buf.Len()
	if len(p) > room {
		c.cut = true
	}
	c.buf.Write(p[:min(len(p), room)])
	return len(p), nil
}

func (c *capture) output() output { return output{c.buf.String(), c.cut} }
