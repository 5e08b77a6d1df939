package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// linked is the version that this build was linked with; empty: it was not. A
// `go install` of a tagged version, or a plain `go build`, is told apart by its
// build information.
var linked = ""

// LinkedAs takes note of the version that the program was linked with.
func LinkedAs(version string) { linked = version }

// BuildVersion returns the version of this build: the one it was linked with,
// else the module's, else the commit; "unknown" when it carries none.
func BuildVersion() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}

// PrintVersion is `csi-fencepost version`.
func PrintVersion(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && args[0] != "--help" {
		return Usagef("version: takes no arguments, got %q", args[0])
	}
	_, err := fmt.Fprintf(stdout, "csi-fencepost %s %s %s/%s\n", BuildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
