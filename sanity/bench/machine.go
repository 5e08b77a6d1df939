package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// versions of what is measured.
func versions(ctx context.Context) string {
	return fmt.Sprintf("csi-fencepost %s, %s, grpc-go %s, CSI spec %s, client-go %s", tool.RevisionWords(ctx), runtime.Version(),
		moduleVersion("google.golang.org/grpc"), moduleVersion("github.com/container-storage-interface/spec"), moduleVersion("k8s.io/client-go"))
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
	version, err := tool.Version(ctx, filepath.Join(strings.TrimSpace(string(root)), "sanity", "controlplane", folder), module)
	if err != nil {
		return "of an unknown version"
	}
	return version
}
