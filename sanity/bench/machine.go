package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes where this runs.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s", cpuModel(), runtime.NumCPU(), kernel())
}

// versions of what is measured.
func versions(ctx context.Context) string {
	return fmt.Sprintf("csi-fencepost %s, %s, grpc-go %s, CSI spec %s, client-go %s", revision(ctx), runtime.Version(),
		moduleVersion("google.golang.org/grpc"), moduleVersion("github.com/container-storage-interface/spec"), moduleVersion("k8s.io/client-go"))
}

func cpuModel() string {
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

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// revision is what git says of the checkout.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "of an unknown revision"
	}
	return strings.TrimSpace(string(out))
}

func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}

// nestedVersion is the version of a module of the control plane, as the nested
// module in that folder requires it.
func nestedVersion(ctx context.Context, folder, module string) string {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "of an unknown version"
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module)
	list.Dir = filepath.Join(strings.TrimSpace(string(root)), "sanity", "controlplane", folder)
	version, err := list.Output()
	if err != nil {
		return "of an unknown version"
	}
	return strings.TrimSpace(string(version))
}
