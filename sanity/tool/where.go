package tool

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the one on which this runs: processor, cores, kernel.
func Machine() string {
	return fmt.Sprintf("%s, %d cores, %s", processor(), runtime.NumCPU(), kernel())
}

func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// LoadAverage is that of the last minute.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// Revision is what git says of the checkout in the working folder: "-dirty" where
// a file differs from the commit, but for pages and results, which measuring
// writes itself.
func Revision(ctx context.Context) (string, error) {
	describe, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always").Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no",
		"--", ":/", ":(top,exclude)*.md", ":(top,exclude)sanity/*/results.json", ":(top,exclude)sanity/*/results/*").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	revision := strings.TrimSpace(string(describe))
	if len(changed) > 0 {
		revision += "-dirty"
	}
	return revision, nil
}

// RevisionWords are Revision's for a page: that it is not known is said there.
func RevisionWords(ctx context.Context) string {
	revision, err := Revision(ctx)
	if err != nil {
		return "of an unknown revision"
	}
	return revision
}

// Version is that of a module, as the module in that folder requires it.
func Version(ctx context.Context, folder, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module)
	list.Dir = folder
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
