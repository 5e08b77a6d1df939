package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// architectures are those of the nodes on which controllers run.
var architectures = []string{"amd64", "arm64"}

// A command is a program that a release has.
type command struct {
	name   string
	module string // path of its module
	folder string // of that module, below the main one's
	pkg    string // its package, in that folder
	inject bool   // whether it puts the image of its release into manifests
}

var (
	guard = command{"csi-fencepost", mainModule, ".", "./cmd/csi-fencepost", true}
	// In a module of its own: it alone links the clouds' SDKs.
	agents = command{"csi-fencepost-agents", mainModule + "/cmd/csi-fencepost-agents", "cmd/csi-fencepost-agents", ".", false}
	// It alone links the API server's code.
	webhook = command{"csi-fencepost-webhook", mainModule + "/cmd/csi-fencepost-webhook", "cmd/csi-fencepost-webhook", ".", false}

	commands = []command{guard, agents, webhook}
)

// path is that of the command's package, as the linker notes it in the program.
func (c command) path() string { return path.Join(c.module, c.pkg) }

// compile builds a program for an architecture and returns its bytes. Nothing
// of the machine goes into it: no path, no state of git, no setting of Go's
// that somebody has made for themselves.
func (r release) compile(ctx context.Context, c command, arch, work string) ([]byte, error) {
	output, err := filepath.Abs(filepath.Join(work, c.name+"-"+arch))
	if err != nil {
		return nil, err
	}
	flags := "-ldflags=-s -w -X main.version=" + r.version
	if c.inject && strings.Contains(r.name, "/") { // its registry: inject names this image
		flags += " -X github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/manifests.releasedImage=" + r.name + ":" + r.version
	}
	// The tag: see the Makefile's build. -s -w: no symbol tables, which only
	// debuggers read; stack traces keep their lines.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags=grpcnotrace",
		flags, "-o", output, c.pkg)
	cmd.Dir = filepath.Join(r.source, c.folder)
	cmd.Env = append(ofGo(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build of %s for %s: %w\n%s", c.name, arch, err, out)
	}
	return os.ReadFile(output)
}

// ofGo is the environment of this process without what somebody has set for Go.
func ofGo() []string {
	return append(os.Environ(), "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0")
}
