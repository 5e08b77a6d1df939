package bmc

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoProgram is returned where what the tests need is not installed.
var errNoProgram = errors.New("run make deps")

// process is a program in a process group of its own.
type process struct {
	ended chan struct{}
	log   lockedBuffer

	mu    sync.Mutex
	group int // 0: it has ended
}

// launch starts name in folder.
func launch(folder, name string, args ...string) (*process, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed (Debian: openipmi): %w", name, errNoProgram)
	}
	p := &process{ended: make(chan struct{})}
	cmd := exec.Command(path, args...)
	cmd.Dir = folder
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(cmd, started)
	return p, <-started
}

// run stays on the thread that starts the program: the kernel sends the signal
// of a parent's death when that thread ends.
func (p *process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	err := cmd.Start()
	if err == nil {
		p.group = cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	// Not Wait: the group has to be gone before its id is free for others.
	waitForExit(cmd.Process.Pid)
	p.signal(syscall.SIGKILL)
	p.mu.Lock()
	p.group = 0
	p.mu.Unlock()
	cmd.Wait()
}

// waitForExit returns when the process is dead, and leaves it to be reaped.
func waitForExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group == 0 {
		return errors.New("it has ended")
	}
	return syscall.Kill(-p.group, s)
}

func (p *process) pause() error  { return p.signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

// kill ends the group, a paused one too, and waits for that.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *process) output() string { return p.log.String() }

// lockedBuffer may be read while the program still writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
