package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// coreLook is how long the machine's cores had been busy at a moment, all
// together, and how long with one process.
type coreLook struct {
	at        time.Time
	busy, own time.Duration
}

// lookAtCores looks now. pid 0 is no process.
func lookAtCores(pid int) (l coreLook, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return l, err
	}
	s, err := fs.Stat()
	if err != nil {
		return l, err
	}
	c := s.CPUTotal // its User counts what guests use
	l.at, l.busy = time.Now(), time.Duration((c.User+c.Nice+c.System+c.IRQ+c.SoftIRQ+c.Steal)*float64(time.Second))
	if pid != 0 {
		l.own, err = cpuTime(pid)
	}
	return l, err
}

// coreShare is what share of their time the cores were busy in, and what part of
// that was the process's.
type coreShare struct{ busy, own float64 }

// shareSince is the share from the last look before a moment to the last look.
func shareSince(looks []coreLook, from time.Time) (coreShare, error) {
	i := slices.IndexFunc(looks, func(l coreLook) bool { return l.at.After(from) })
	if i < 1 || i == len(looks)-1 {
		return coreShare{}, fmt.Errorf("%d looks at the cores, and not one before %s and two after", len(looks), from.Format(time.TimeOnly))
	}
	a, b := looks[i-1], looks[len(looks)-1]
	busy := (b.busy - a.busy).Seconds()
	return coreShare{busy: busy / (b.at.Sub(a.at).Seconds() * float64(runtime.NumCPU())), own: (b.own - a.own).Seconds() / busy}, nil
}

func (c coreShare) String() string {
	text := fmt.Sprintf("%.0f %% busy", 100*c.busy)
	if c.own > 0 {
		text += fmt.Sprintf(", %.0f %% of that with csi-fencepost", 100*c.own)
	}
	return text
}
