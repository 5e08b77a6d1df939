package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// startTimeout of a process: a machine that is busy with others.
const startTimeout = 60 * time.Second

// start starts a program that ends with this process, and waits for its socket.
func (b *bench) start(ctx context.Context, name, path, socket string, args ...string) (*controlplane.Process, error) {
	p, err := controlplane.StartProcess(controlplane.ProcessOptions{
		Name: name, Path: path, Args: args, LogFile: filepath.Join(b.folder, name+".log")})
	if err != nil {
		return nil, err
	}
	if err := p.Serving(ctx, socket, startTimeout); err != nil {
		p.Stop(0)
		return nil, err
	}
	return p, nil
}

// startSelf starts this program in a role.
func (b *bench) startSelf(ctx context.Context, role, socket, other string) (*controlplane.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	_ = os.Remove(socket) // of an earlier section
	return b.start(ctx, role+"-"+filepath.Base(socket), self, socket, role, socket, other)
}

// stopGrace lets csi-fencepost end in order; a socket file that stays would be
// taken for a server's.
const stopGrace = 10 * time.Second

// cpuTime is what a process has used so far, user and system, to the
// nanosecond: the kernel's clock of that process (clock_getcpuclockid(3)).
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

var servingHTTP = regexp.MustCompile(`"Serving metrics and health" address="([^"]+)"`)

// metricsURL finds where a csi-fencepost that was started with
// --http-endpoint=127.0.0.1:0 serves its metrics.
func metricsURL(p *controlplane.Process) (string, error) {
	log, err := os.ReadFile(p.LogFile())
	if err != nil {
		return "", err
	}
	found := servingHTTP.FindAllSubmatch(log, -1)
	if len(found) == 0 {
		return "", fmt.Errorf("%s has not logged where it serves its metrics", p.Name())
	}
	return "http://" + string(found[len(found)-1][1]) + "/metrics", nil
}

// mallocs is how many objects a Go process has allocated so far.
func mallocs(ctx context.Context, url string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s has no go_memstats_mallocs_total", url)
}

// residency is what a process holds of the machine's memory, in bytes.
type residency struct {
	now, most int64
	// own is what of now is the process's alone; the rest is pages of its
	// program file, which the kernel can drop and read again.
	own int64
}

func resident(pid int) (r residency, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return r, err
	}
	status, err := p.NewStatus()
	return residency{now: int64(status.VmRSS), most: int64(status.VmHWM), own: int64(status.RssAnon)}, err
}
