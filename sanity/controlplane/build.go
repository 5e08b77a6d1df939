package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

const mainModule = "github.com/csi-fencepost/csi-fencepost"

// Binaries are the paths of the programs of a control plane.
type Binaries struct {
	// Version of Kubernetes, such as v1.37.2.
	Version string
	// Kubernetes is one program with the subcommands kube-apiserver,
	// kube-controller-manager, kube-scheduler, kubelet and container-runtime.
	Kubernetes string
	Etcd       string
	Attacher   string
}

// nestedModule is one of the modules beside this file.
type nestedModule struct {
	folder  string // under sanity/controlplane
	name    string // of the binary
	pkg     string // what to build
	version string // the module whose version is shown
	tags    string // of the build
}

var (
	etcdModule         = nestedModule{folder: "etcd", name: "etcd", pkg: ".", version: "go.etcd.io/etcd/server/v3"}
	newestKubernetes   = nestedModule{folder: "kubernetes", name: "kubernetes", pkg: ".", version: "k8s.io/kubernetes"}
	previousKubernetes = nestedModule{folder: "kubernetes-previous", name: "kubernetes", pkg: ".", version: "k8s.io/kubernetes"}
	// Without the cloud providers, which later versions do not have any more.
	oldestKubernetes = nestedModule{folder: "kubernetes-oldest", name: "kubernetes", pkg: ".", version: "k8s.io/kubernetes", tags: "providerless"}
	attacherModule   = nestedModule{folder: "attacher", name: "csi-attacher",
		pkg: "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher", version: "github.com/kubernetes-csi/external-attacher/v4"}
)

// Build returns the control plane's binaries, and builds those that are not in
// the user's cache folder yet: minutes the first time, at once after that. What
// is being built and how far it is goes to progress; a cached binary prints
// nothing. Callers at the same time, in other processes too, wait for each
// other. When ctx ends, the build ends and leaves nothing behind.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	var binaries Binaries
	kubernetes, err := chosenKubernetes()
	if err != nil {
		return Binaries{}, err
	}
	if binaries.Version, err = kubernetes.versionIn(ctx); err != nil {
		return Binaries{}, err
	}
	for _, item := range []struct {
		module nestedModule
		path   *string
	}{
		{etcdModule, &binaries.Etcd},
		{attacherModule, &binaries.Attacher},
		{kubernetes, &binaries.Kubernetes},
	} {
		path, err := item.module.build(ctx, progress)
		if err != nil {
			return Binaries{}, fmt.Errorf("build of %s: %w", item.module.name, err)
		}
		*item.path = path
	}
	return binaries, nil
}

// kubernetesEnv chooses the Kubernetes: newest, also where it is not set, previous
// or oldest.
const kubernetesEnv = "SANITY_KUBERNETES"

func chosenKubernetes() (nestedModule, error) {
	switch which := os.Getenv(kubernetesEnv); which {
	case "", "newest":
		return newestKubernetes, nil
	case "previous":
		return previousKubernetes, nil
	case "oldest":
		return oldestKubernetes, nil
	default:
		return nestedModule{}, fmt.Errorf("%s is %q: it has to be newest, previous or oldest", kubernetesEnv, which)
	}
}

// Versions of Kubernetes that can be built, such as v1.37.2.
type Versions struct{ Newest, Previous, Oldest string }

// KubernetesVersions are those that can be built, whichever is chosen.
func KubernetesVersions(ctx context.Context) (Versions, error) {
	var v Versions
	for _, item := range []struct {
		module  nestedModule
		version *string
	}{
		{newestKubernetes, &v.Newest},
		{previousKubernetes, &v.Previous},
		{oldestKubernetes, &v.Oldest},
	} {
		var err error
		if *item.version, err = item.module.versionIn(ctx); err != nil {
			return Versions{}, err
		}
	}
	return v, nil
}

// versionIn is the version that the module's go.mod requires.
func (m nestedModule) versionIn(ctx context.Context) (string, error) {
	root, err := mainModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "sanity", "controlplane", m.folder)
	version := m.readVersion(source)
	if version == "" {
		return "", fmt.Errorf("%s/go.mod requires no version of %s", source, m.version)
	}
	return version, nil
}

// FencepostBuild says how to build csi-fencepost.
type FencepostBuild struct {
	Race bool
	Tags []string
}

// BuildFencepost builds ./cmd/csi-fencepost of the main module into the file
// output, always anew (Go's own cache makes that quick).
func BuildFencepost(ctx context.Context, progress io.Writer, output string, how FencepostBuild) error {
	root, err := mainModuleRoot(ctx)
	if err != nil {
		return err
	}
	args := []string{"-buildvcs=false"}
	if how.Race {
		args = append(args, "-race")
	}
	// As the Makefile's build does: see there.
	args = append(args, "-tags="+strings.Join(append([]string{"grpcnotrace"}, how.Tags...), ","))
	args = append(args, "./cmd/csi-fencepost")
	report := newReport(progress, "building csi-fencepost")
	defer report.close()
	if err := goBuild(ctx, root, output, args, report); err != nil {
		return fmt.Errorf("build of csi-fencepost: %w", err)
	}
	return nil
}

// build returns the path of the module's binary in the cache.
func (m nestedModule) build(ctx context.Context, progress io.Writer) (string, error) {
	root, err := mainModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "sanity", "controlplane", m.folder)
	key, err := sourceHash(ctx, source)
	if err != nil {
		return "", err
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cache, key, m.name)
	if _, err := os.Stat(binary); err == nil {
		now := time.Now()
		_ = os.Chtimes(filepath.Dir(binary), now, now) // it was used
		return binary, nil
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	report := newReport(progress, "building "+m.name+" "+m.readVersion(source))
	defer report.close()
	unlock, err := lockWithContext(ctx, filepath.Join(cache, "lock"), report)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil // another process built it while we waited
	}
	removeHalfBuilds(cache)
	removeUnused(cache, time.Now().Add(-unusedFor))
	return binary, m.buildInto(ctx, source, binary, report)
}

func (m nestedModule) buildInto(ctx context.Context, source, binary string, report *report) error {
	var err error
	flags := []string{"-buildvcs=false", "-ldflags=-s -w", "-tags=" + m.tags, m.pkg}
	if report.total, err = countStale(ctx, source, flags, report); err != nil {
		return err
	}
	return goBuild(ctx, source, binary, flags, report)
}

// readVersion is the version of what is built, as go.mod says; for people only.
func (m nestedModule) readVersion(source string) string {
	content, _ := os.ReadFile(filepath.Join(source, "go.mod"))
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == m.version && strings.HasPrefix(fields[1], "v") {
			return fields[1]
		}
	}
	return ""
}

// sourceHash names everything that decides what a nested module builds to.
func sourceHash(ctx context.Context, source string) (string, error) {
	command := goCommand(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED")
	toolchain, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("the Go toolchain is needed: %s: %w", command, err)
	}
	hash := sha256.New()
	hash.Write(toolchain)
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n", filepath.Base(file), len(content))
		hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// countStale counts the packages that go build will have to compile. It also
// downloads the modules.
func countStale(ctx context.Context, dir string, flags []string, report *report) (int, error) {
	report.step("looking what there is to do")
	work, err := os.MkdirTemp("", "fencepost-list-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	command := goCommand(ctx, dir, append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags...)...)
	var list bytes.Buffer
	command.Stdout = &list
	err = runReporting(command, work, report)
	return len(strings.Fields(list.String())), err
}

const halfBuild = ".half-build-"

// goBuild builds in a folder beside the output and renames, so that the output
// is a whole binary or none.
func goBuild(ctx context.Context, dir, output string, args []string, report *report) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(output), halfBuild)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	half := filepath.Join(work, filepath.Base(output))
	args = append([]string{"build", "-v", "-o", half}, args...)
	if err := runReporting(goCommand(ctx, dir, args...), work, report); err != nil {
		return err
	}
	return os.Rename(half, output)
}

// unusedFor is how long a binary is kept that nobody asks for: that of another
// version, or of a checkout that is gone. One that runs all that time is asked for
// now and then.
const unusedFor = 14 * 24 * time.Hour

// cacheFolder is where the binaries are, each in a folder that is named after its
// sources.
func cacheFolder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "csi-fencepost", "controlplane"), nil
}

// removeUnused removes the binaries that nobody asked for since then; under the
// cache's lock.
func removeUnused(cache string, since time.Time) {
	entries, _ := os.ReadDir(cache)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && entry.IsDir() && info.ModTime().Before(since) {
			os.RemoveAll(filepath.Join(cache, entry.Name()))
		}
	}
}

// ClearCache removes the binaries that no process runs, and returns the paths of
// those that it had to leave. While somebody builds it is an error.
func ClearCache() (left []string, err error) {
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lock, err := tempdir.Lock(filepath.Join(cache, "lock"), false)
	if err != nil {
		return nil, fmt.Errorf("a control plane is being built: %w", err)
	}
	defer lock.Close()
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(cache, entry.Name())
		switch {
		case !entry.IsDir():
		case tempdir.Runs(path):
			left = append(left, path)
		default:
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return left, errors.Join(errs...)
}

// removeHalfBuilds removes what a killed build left; under the cache's lock.
func removeHalfBuilds(cache string) {
	left, _ := filepath.Glob(filepath.Join(cache, "*", halfBuild+"*"))
	for _, path := range left {
		os.RemoveAll(path)
	}
}

// runReporting runs a go command with its temporary files in work, and reports
// each line of its standard error: a package that is compiled, a module that is
// downloaded, or an error.
func runReporting(command *exec.Cmd, work string, report *report) error {
	command.Stderr = report
	command.Env = append(command.Env, "GOTMPDIR="+work)
	if err := startOnLastingThread(command); err != nil {
		return err
	}
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, report.errors())
	}
	return nil
}

// goCommand is a go command in a process group of its own: when ctx ends, go
// and its compilers get SIGINT; when this process dies, go gets it.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off")
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = 20 * time.Second
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	return command
}

func lockWithContext(ctx context.Context, path string, report *report) (unlock func(), err error) {
	for {
		lock, err := tempdir.Lock(path, false)
		if err == nil {
			return func() { lock.Close() }, nil
		}
		if !tempdir.IsLocked(err) {
			return nil, err
		}
		report.step("waiting for another process that builds it")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// mainModuleRoot is the folder of the main module's go.mod.
func mainModuleRoot(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok {
		root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root, nil
		}
	}
	// Built with -trimpath: then it has to be run from inside the checkout.
	out, err := goCommand(ctx, "", "list", "-m", "-f", "{{.Dir}}", mainModule).Output()
	if err != nil {
		return "", fmt.Errorf("run this from the checkout of %s: %w", mainModule, err)
	}
	return strings.TrimSpace(string(out)), nil
}
