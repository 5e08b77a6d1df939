package bmc

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// chassisProgram is what ipmi_sim runs for each reading and switching of the
// power. It hands the question to this process, through two named pipes.
const chassisProgram = "chassis"

// ipmi_sim calls it with: MC get power, or MC set power 0|1. It waits for it, so
// that there is one at a time. The time limit ends one that nobody answers.
const chassisScript = `#!/bin/sh
cd %q || exit 1
exec timeout 60 sh -c 'echo "$*" >ask && read -r code text <answer && echo "$text" && exit "$code"' chassis "$@"
`

// faults are the misbehaviours of the chassis.
type faults struct {
	ignore, sayOff bool
	reviveAfter    time.Duration
}

// chassis answers the chassis program.
type chassis struct {
	power       PowerSwitch
	ask, answer *os.File
	done        chan struct{}

	mu     sync.Mutex
	faults faults
	revive *time.Timer
	closed bool
}

func newChassis(folder string, power PowerSwitch) (*chassis, error) {
	c := &chassis{power: power, done: make(chan struct{})}
	script := fmt.Sprintf(chassisScript, folder)
	if err := os.WriteFile(filepath.Join(folder, chassisProgram), []byte(script), 0o700); err != nil {
		return nil, err
	}
	var err error
	if c.ask, err = pipe(filepath.Join(folder, "ask")); err != nil {
		return nil, err
	}
	if c.answer, err = pipe(filepath.Join(folder, "answer")); err != nil {
		c.ask.Close()
		return nil, err
	}
	go c.serve()
	return c, nil
}

// pipe opens for both directions, so that neither opening nor reading depends on
// when the program comes and goes.
func pipe(path string) (*os.File, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("named pipe %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

func (c *chassis) serve() {
	defer close(c.done)
	questions := bufio.NewScanner(c.ask)
	for questions.Scan() {
		fmt.Fprintln(c.answer, c.reply(strings.Fields(questions.Text())))
	}
}

// reply is the program's exit code and what it prints.
func (c *chassis) reply(question []string) string {
	c.mu.Lock()
	faults := c.faults
	c.mu.Unlock()
	switch question = question[min(1, len(question)):]; strings.Join(question, " ") {
	case "get power":
		if c.power.On() && !faults.sayOff {
			return "0 power:1"
		}
		return "0 power:0"
	case "set power 0", "set power 1":
		if faults.ignore {
			return "0"
		}
		on := question[2] == "1"
		if err := c.power.Set(on); err != nil {
			return "1 " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		c.plan(on, faults.reviveAfter)
		return "0"
	}
	return "1 this chassis has only power"
}

// plan has the machine come back by itself.
func (c *chassis) plan(on bool, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revive != nil {
		c.revive.Stop()
		c.revive = nil
	}
	if !on && after > 0 && !c.closed {
		c.revive = time.AfterFunc(after, func() { c.power.Set(true) })
	}
}

func (c *chassis) set(change func(*faults)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.faults)
}

func (c *chassis) close() {
	c.mu.Lock()
	c.closed = true
	if c.revive != nil {
		c.revive.Stop()
	}
	c.mu.Unlock()
	c.ask.Close()
	c.answer.Close()
	<-c.done
}
