package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

// orphanEnv turns the test binary into a program that starts processes in a
// cluster's folder and waits to be killed.
const orphanEnv = "SANITY_ORPHAN_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		if err := runOrphanHelper(); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	if limit := os.Getenv(inotifyEnv); limit != "" {
		fmt.Println(roomForKubeletOf(limit))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runOrphanHelper() error {
	folder, err := tempdir.New()
	if err != nil {
		return err
	}
	fmt.Println(folder.Path)
	for i := range 2 {
		p, err := StartProcess(ProcessOptions{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"},
			LogFile: filepath.Join(folder.Path, "log"), Restart: true})
		if err != nil {
			return err
		}
		if i == 1 {
			p.Signal(syscall.SIGSTOP)
		}
		fmt.Println(p.Pid())
	}
	select {}
}

func TestNothingOutlivesAKilledStarter(t *testing.T) {
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), orphanEnv+"=1")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	read := func() string { lines.Scan(); return lines.Text() }
	folder := read()
	running, errRunning := strconv.Atoi(read())
	paused, errPaused := strconv.Atoi(read())
	if err := errors.Join(errRunning, errPaused); err != nil {
		t.Fatal(err)
	}
	helper.Process.Kill()
	helper.Wait()
	for _, pid := range []int{running, paused} {
		eventually(t, 5*time.Second, fmt.Sprintf("process %d is gone", pid), func() (bool, string) {
			return processGone(pid), "it runs"
		})
	}
	next, err := tempdir.New()
	if err != nil {
		t.Fatal(err)
	}
	defer next.Remove(false)
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the next cluster left the dead one's folder %s: %v", folder, err)
	}
}

// processGone says whether a process has ended; where nobody reaps orphans it
// stays a zombie.
func processGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestALivingClustersFolderIsNoOrphan(t *testing.T) {
	first, err := tempdir.New()
	if err != nil {
		t.Fatal(err)
	}
	second, err := tempdir.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("the second cluster took the folder of the first: %v", err)
	}
	for _, folder := range []*tempdir.Folder{first, second} {
		if err := folder.Remove(false); err != nil {
			t.Error(err)
		}
	}
}

func TestAKeptFolderStays(t *testing.T) {
	kept, err := tempdir.New()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(kept.Path)
	if err := kept.Remove(true); err != nil {
		t.Fatal(err)
	}
	tempdir.RemoveOrphans(filepath.Dir(kept.Path))
	if _, err := os.Stat(kept.Path); err != nil {
		t.Error(err)
	}
}

func startShell(t *testing.T, script string, restart bool) *Process {
	t.Helper()
	p, err := StartProcess(ProcessOptions{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"GREETING=hello"}, LogFile: filepath.Join(t.TempDir(), "log"), Restart: restart})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(0) })
	return p
}

func TestProcessEndsWithItsExitCodeAndLog(t *testing.T) {
	p := startShell(t, "echo $GREETING; exit 3", false)
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("Wait() = %v, want exit status 3", err)
	}
	if !p.Exited() {
		t.Error("Exited() = false after Wait")
	}
	if got := p.logTail(); got != "hello" {
		t.Errorf("log %q, want hello", got)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("Signal() to a process that ended gives no error")
	}
}

func TestRestartedProcessComesBackUntilItIsStopped(t *testing.T) {
	p := startShell(t, "exec sleep 600", true)
	first := p.Pid()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "it is started again", func() (bool, string) {
		return p.Restarts() == 1 && p.Pid() != first && !p.Exited(), fmt.Sprint(p.Restarts())
	})
	p.Stop(time.Second)
	if !p.Exited() || !processGone(p.Pid()) {
		t.Error("it runs after Stop")
	}
}

func TestStopEndsAPausedProcessGracefully(t *testing.T) {
	p := startShell(t, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done", false)
	eventually(t, 5*time.Second, "the shell is up", func() (bool, string) { return p.logTail() == "up", p.logTail() })
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Stop(10 * time.Second)
	if err := p.Wait(); err != nil {
		t.Errorf("it did not end by itself: %v", err)
	}
}

func TestStopKillsAProcessThatIgnoresSIGTERM(t *testing.T) {
	p := startShell(t, "trap '' TERM; echo up; while :; do sleep 0.05; done", false)
	eventually(t, 5*time.Second, "the shell is up", func() (bool, string) { return p.logTail() == "up", p.logTail() })
	p.Stop(200 * time.Millisecond)
	if !p.Exited() {
		t.Error("it runs after Stop")
	}
}

func TestPortsOfTwoClustersNeverCollide(t *testing.T) {
	var a, b portSet
	defer a.close()
	defer b.close()
	seen := map[int]bool{}
	for range 200 {
		for _, set := range []*portSet{&a, &b} {
			port, err := set.take()
			if err != nil {
				t.Fatal(err)
			}
			if seen[port] {
				t.Fatalf("port %d was given twice", port)
			}
			seen[port] = true
		}
	}
}
