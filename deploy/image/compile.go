package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// architectures are those of the nodes on which controllers run.
var architectures = []string{"amd64", "arm64"}

// compile builds the program for an architecture and returns its bytes. Nothing
// of the machine goes into it: no path, no state of git, no setting of Go's
// that somebody has made for themselves.
func (r release) compile(ctx context.Context, arch, work string) ([]byte, error) {
	output := filepath.Join(work, arch)
	flags := "-ldflags=-s -w -X main.version=" + r.version
	if strings.Contains(r.name, "/") { // its registry: inject names this image
		flags += " -X github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/manifests.releasedImage=" + r.name + ":" + r.version
	}
	// The tag: see the Makefile's build. -s -w: no symbol tables, which only
	// debuggers read; stack traces keep their lines.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags=grpcnotrace",
		flags, "-o", output, "./cmd/csi-fencepost")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build for %s: %w\n%s", arch, err, out)
	}
	return os.ReadFile(output)
}
