package main

import (
	"bufio"
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

	"golang.org/x/sys/unix"
)

// A place is where and on what the case was made.
type place struct {
	commit, machine, versions string
	when                      time.Time
	files                     []string // of the checkout
}

func whereAndWhat(ctx context.Context) (place, error) {
	commit, err := git(ctx, "describe", "--tags", "--always", "--dirty")
	if err != nil {
		return place{}, err
	}
	files, err := git(ctx, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return place{}, err
	}
	versions, err := modules(ctx, "google.golang.org/grpc", "github.com/container-storage-interface/spec", "k8s.io/client-go")
	if err != nil {
		return place{}, err
	}
	return place{commit: commit, files: strings.Split(files, "\x00"), when: time.Now().UTC(), versions: runtime.Version() + ", " + versions,
		machine: fmt.Sprintf("%s, %d cores, %s", processor(), runtime.NumCPU(), kernel())}, nil
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
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

func modules(ctx context.Context, paths ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, paths...)...).Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", "), nil
}

func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
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
