package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Usage is what a process takes of the machine.
type Usage struct {
	Name     string
	Resident int64         // bytes
	CPU      time.Duration // user and system since its start
}

// Usage lists the cluster's living processes.
func (c *Cluster) Usage() []Usage {
	c.mu.Lock()
	processes := append([]*Process(nil), c.processes...)
	c.mu.Unlock()
	var list []Usage
	for _, p := range processes {
		if p.Exited() {
			continue
		}
		if usage, err := usageOf(p.Pid()); err == nil {
			usage.Name = p.Name()
			list = append(list, usage)
		}
	}
	return list
}

// usageOf reads /proc/PID/stat; its times are in 1/100 s (USER_HZ).
func usageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The second field, the name in brackets, may hold blanks; field 3 follows it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return Usage{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var numbers [3]int64 // utime (14), stime (15), rss in pages (24)
	for i, field := range []int{14 - 3, 15 - 3, 24 - 3} {
		if numbers[i], err = strconv.ParseInt(string(fields[field]), 10, 64); err != nil {
			return Usage{}, err
		}
	}
	return Usage{
		Resident: numbers[2] * int64(os.Getpagesize()),
		CPU:      time.Duration(numbers[0]+numbers[1]) * 10 * time.Millisecond,
	}, nil
}
