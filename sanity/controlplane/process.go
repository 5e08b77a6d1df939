package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A restarted process waits like a container in Kubernetes, only shorter.
const (
	firstRestartWait = 100 * time.Millisecond
	lastRestartWait  = 5 * time.Second
	livedLongEnough  = 10 * time.Second // then the wait begins anew
)

// ProcessOptions say what to run.
type ProcessOptions struct {
	// Name names the log file; required.
	Name string
	// Path of the program; required.
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Restart starts the program again whenever it exits, as the kubelet does
	// with a container, after 0.1 s, doubled up to 5 s.
	Restart bool
	// LogFile gets standard output and standard error, appended; required by
	// [StartProcess], chosen by [Cluster.StartProcess].
	LogFile string
}

// Process is a running program, in a process group of its own. The kernel kills
// it when the process that started it ends in whatever way.
type Process struct {
	options ProcessOptions
	ended   chan struct{} // closed when it has ended and will not be restarted
	stop    chan struct{} // closed by Stop and the like: no restart any more

	mu       sync.Mutex
	cmd      *exec.Cmd
	alive    bool // cmd runs and was not reaped
	stopped  bool
	restarts int
	err      error // how it ended the last time
}

// StartProcess starts a program. It fails if the program cannot be started at
// all; that it exits soon after is seen by [Process.Wait].
func StartProcess(options ProcessOptions) (*Process, error) {
	if options.Name == "" || options.Path == "" || options.LogFile == "" {
		return nil, errors.New("a process needs a name, a path and a log file")
	}
	p := &Process{options: options, ended: make(chan struct{}), stop: make(chan struct{})}
	if err := p.launch(); err != nil {
		return nil, err
	}
	go p.supervise()
	return p, nil
}

// Serving waits until the program takes connections on a unix socket. That the
// file is there is not enough: a socket has its name a moment before anybody
// listens. It fails after limit, when ctx ends, and when the program has ended,
// with what that wrote to its log.
func (p *Process) Serving(ctx context.Context, socket string, limit time.Duration) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p.Exited() || time.Since(began) > limit {
			log, _ := os.ReadFile(p.LogFile())
			return fmt.Errorf("%s does not serve %s: %w; its log:\n%s", p.Name(), socket, err, log)
		}
	}
}

// launch starts the program once.
func (p *Process) launch() error {
	log, err := os.OpenFile(p.options.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.options.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.options.Path, p.options.Args...)
	cmd.Dir = filepath.Dir(p.options.LogFile) // etcd leaves a socket where it stands
	cmd.Env = append(os.Environ(), p.options.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return fmt.Errorf("start %s: it was stopped", p.options.Name)
	}
	if err := startOnLastingThread(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.options.Name, err)
	}
	p.cmd, p.alive = cmd, true
	return nil
}

// supervise waits for the program, again and again if it is to be restarted.
func (p *Process) supervise() {
	defer close(p.ended)
	wait := firstRestartWait
	for {
		started := time.Now()
		p.await()
		if !p.options.Restart {
			return
		}
		if time.Since(started) > livedLongEnough {
			wait = firstRestartWait
		}
		select {
		case <-p.stop:
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRestartWait)
		if err := p.relaunch(); err != nil {
			return
		}
	}
}

func (p *Process) relaunch() error {
	err := p.launch()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.restarts++
	case !p.stopped:
		p.err = err
	}
	return err
}

// await returns when the program has ended.
func (p *Process) await() {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive = false
	p.err = err
}

// Signal sends a signal to the process; an error if it does not run right now.
func (p *Process) Signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.alive {
		return fmt.Errorf("signal %v to %s: it does not run", signal, p.options.Name)
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, signal); err != nil {
		return fmt.Errorf("signal %v to %s: %w", signal, p.options.Name, err)
	}
	return nil
}

// Kill ends the process as a crash does (SIGKILL) and returns once it is gone.
// With Restart it is started again.
func (p *Process) Kill() error {
	p.mu.Lock()
	victim := p.cmd
	p.mu.Unlock()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		gone := !p.alive || p.cmd != victim
		p.mu.Unlock()
		if gone {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Stop ends the process for good: SIGTERM, and SIGKILL if it still runs after
// the grace period. It returns once the process is gone, and does no harm when
// called twice.
func (p *Process) Stop(grace time.Duration) {
	p.noRestart()
	if grace > 0 && p.Signal(syscall.SIGTERM) == nil {
		p.Signal(syscall.SIGCONT) // a paused process hears nothing
		select {
		case <-p.ended:
			return
		case <-time.After(grace):
		}
	}
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

func (p *Process) noRestart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.stop)
	}
}

// Wait returns when the process has ended and will not be restarted, with how
// it ended: nil for exit code 0, else an *exec.ExitError.
func (p *Process) Wait() error {
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Done is closed when the process has ended and will not be restarted.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Exited says whether the process does not run right now (it may be restarted).
func (p *Process) Exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.alive
}

// Restarts counts how often the process was started again.
func (p *Process) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// Pid is the process ID of the latest start.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Name is the name that it was given.
func (p *Process) Name() string { return p.options.Name }

// LogFile is the path of its standard output and standard error.
func (p *Process) LogFile() string { return p.options.LogFile }

// logTail is the end of the log, for error messages.
func (p *Process) logTail() string {
	const most = 2000
	content, err := os.ReadFile(p.options.LogFile)
	if err != nil {
		return err.Error()
	}
	if len(content) > most {
		content = content[len(content)-most:]
	}
	return strings.TrimSpace(string(content))
}

// starter starts processes from one OS thread that lasts as long as this
// process. The kernel sends the parent-death signal when the thread that forked
// ends, and Go ends threads at will.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

func startOnLastingThread(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}
