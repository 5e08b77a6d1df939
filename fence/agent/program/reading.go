package program

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// What a program's words amount to. All are looked for without regard to case.
var (
	// A machine in one of these states may go on writing, or is not the one.
	neither = regexp.MustCompile(`(?i)\b(suspend(ed|ing)?|pmsuspended|paus(ed|ing)|hibernat(ed|ing)|shutting[ _-]?down|in shutdown|stopping|deallocating|powering[ _-]?(on|off|up|down)|transition\w*|crashed|not[ _-]?found|no such|does not exist|unknown|undefined)\b`)
	// "Status: OFF", alone on its line.
	statusOff = regexp.MustCompile(`(?im)^[^\S\n]*([\w.-]+[^\S\n]+){0,4}(status|state)[^\S\n]*[:=]?[^\S\n]*["']?off["']?\.?[^\S\n]*\r?$`)
	wordOff   = regexp.MustCompile(`(?i)\boff\b`)
	// A line with off in it that tells of trouble says nothing of the state.
	trouble = regexp.MustCompile(`(?i)\b(fail\w*|errors?|cannot|can't|could not|unable|invalid|unrecogni[sz]ed|usage|denied|refused|timed? ?out|timeout|options?|actions?|not)\b`)
	wordOn  = regexp.MustCompile(`(?i)\bon\b`)
	// Warnings are prose, in which "on" is a preposition.
	proseOn = regexp.MustCompile(`(?im:\b(status|state|power|is|powered|switched|turned)[^\S\n]*[:=]?[^\S\n]*["']?on["']?([^\S\n]*$|[.,;]))|\bON\b`)
	// A cloud's instance that is gone for good.
	terminated = regexp.MustCompile(`(?im)\b(status|state|instance\b[^\n]*?)[^\S\n]*[:=]?[^\S\n]*["']?terminated\b|^[^\S\n]*terminated[^\S\n]*\r?$`)
)

// read is what a status says of the node's machine: never on or off where it is another one.
func read(res result, m agent.Machine) (agent.State, bool, error) {
	state, err := judge(res)
	checked, other := identified(res.out.text, m)
	if err := errors.Join(other, err); err != nil {
		return agent.Unclear, false, err
	}
	return state, checked, nil
}

// judge reads a status: exit code 0 is on, 2 is off if the output says so too.
// Everything else is an error, and Unclear.
func judge(res result) (agent.State, error) {
	if res.out.cut || res.errs.cut {
		return agent.Unclear, fmt.Errorf("it printed more than %d bytes: not an answer", maxOutput)
	}
	// An ID is no word: resource group rg-on-site is in the path of each of its machines.
	said := identityLine.ReplaceAllString(res.out.text, "")
	words := said + "\n" + res.errs.text
	if word := neither.FindString(words); word != "" {
		return agent.Unclear, fmt.Errorf("it exits with %d and says %q, which is neither on nor off", res.code, word)
	}
	off := saysOff(said)
	switch {
	case res.code == 0 && off:
		return agent.Unclear, errors.New("it exits with 0, which is on, and says off")
	case res.code == 0:
		return agent.On, nil
	case res.code != 2:
		return agent.Unclear, fmt.Errorf("its status exits with %d, which is neither on (0) nor off (2)", res.code)
	case !off:
		return agent.Unclear, errors.New("it exits with 2, which is off, and does not say off")
	case wordOn.MatchString(said) || proseOn.MatchString(res.errs.text):
		return agent.Unclear, errors.New("it exits with 2, which is off, and says both on and off")
	}
	return agent.Off, nil
}

// saysOff tells whether the output has a status line that says off, a line with the word off that
// tells of no trouble, or an instance that is terminated.
func saysOff(out string) bool {
	if statusOff.MatchString(out) {
		return true
	}
	for line := range strings.Lines(out) {
		if !trouble.MatchString(line) && (wordOff.MatchString(line) || terminated.MatchString(line)) {
			return true
		}
	}
	return false
}

// identityLine is a line in which a program says what the platform itself knows the machine by, as
// csi-fencepost-agents does.
var identityLine = regexp.MustCompile(`(?m)^Identity: (\S+)\r?$`)

// identified tells whether a program says that the machine is the node's: by the node's system
// UUID, and by no other, and that UUID is in no doubt. A UUID of another system is an error: the
// wrong machine was read, or cut off. The IDs of clouds and hypervisors do not count: VM 100 is in
// every Proxmox cluster.
func identified(out string, m agent.Machine) (bool, error) {
	said := 0
	for _, line := range identityLine.FindAllStringSubmatch(out, -1) {
		switch {
		case !systemUUID(line[1]):
		case systemUUID(m.SystemUUID) && fence.SystemKey(line[1]) != fence.SystemKey(m.SystemUUID):
			return false, fmt.Errorf("it is another machine: it has the system UUID %s, and node %s has %s; correct what names the machine in the configuration", line[1], m.Node, m.SystemUUID)
		default:
			said++
		}
	}
	_, doubted := m.Doubts[agent.VarSystemUUID]
	return said == 1 && systemUUID(m.SystemUUID) && !doubted, nil
}

// systemUUID tells whether a text is a UUID that no other machine has.
func systemUUID(text string) bool { return fence.IsUUID(text) && fence.TellsSystem(text) }
