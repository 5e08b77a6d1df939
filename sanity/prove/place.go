package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// A place is where and on what the case was made.
type place struct {
	commit, machine, versions string
	when                      time.Time
	files                     []string // of the checkout
}

func whereAndWhat(ctx context.Context) (place, error) {
	commit, err := tool.Revision(ctx)
	if err != nil {
		return place{}, err
	}
	files, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return place{}, fmt.Errorf("git ls-files: %w", err)
	}
	versions := runtime.Version()
	for _, module := range []string{"google.golang.org/grpc", "github.com/container-storage-interface/spec", "k8s.io/client-go"} {
		version, err := tool.Version(ctx, ".", module)
		if err != nil {
			return place{}, err
		}
		versions += ", " + module + " " + version
	}
	return place{commit: commit, files: strings.Split(string(files), "\x00"), when: time.Now().UTC(), versions: versions, machine: tool.Machine()}, nil
}

// of is the SHA-256 of the files that a part is made of, pages aside.
func (p place) of(ctx context.Context, part part) (string, error) {
	if part.built == "" {
		return digest(p.files)
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}", part.built).Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", part.built, err)
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	var folders []string
	for _, dir := range strings.Fields(string(out)) {
		folder, err := filepath.Rel(root, dir)
		if err != nil {
			return "", err
		}
		folders = append(folders, folder)
	}
	return digest(slices.DeleteFunc(slices.Clone(p.files), func(name string) bool { return !isPart(name, folders, filepath.Clean(part.built)) }))
}

// isPart tells whether the tests of package built, which is made of those folders,
// are made of the file: of the others' tests they are not.
func isPart(name string, folders []string, built string) bool {
	folder := filepath.Dir(name)
	above, _, _ := strings.Cut(name, "/testdata/")
	switch {
	case name == "go.mod" || name == "go.sum" || slices.Contains(folders, above):
		return true
	case strings.HasSuffix(name, "_test.go"):
		return folder == built
	}
	return slices.Contains(folders, folder)
}

// digest of the files' names and contents. Pages and results are left out: they
// say what is the case, and do not make it so.
func digest(names []string) (string, error) {
	sum := sha256.New()
	slices.Sort(names)
	for _, name := range names {
		if name == "" || strings.HasSuffix(name, ".md") || strings.HasPrefix(name, resultsIn+"/") {
			continue
		}
		file, err := os.Open(name)
		if os.IsNotExist(err) {
			continue // deleted, and git has not been told
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s\x00", name)
		_, err = io.Copy(sum, file)
		file.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
