package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

func TestASecondBuildOfTheSameSourceStartsAtOnce(t *testing.T) {
	first, err := Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	begin := time.Now()
	second, err := Build(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if second != first || out.Len() > 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("second build: %+v after %s, it printed %q; the first: %+v", second, time.Since(begin), out.String(), first)
	}
}

func TestASecondBuilderWaitsForTheFirst(t *testing.T) {
	dir := writeModule(t, map[string]string{"go.mod": "module x\n\ngo 1.26.0\n", "go.sum": "", "main.go": "package main\n\nfunc main() {}\n"})
	binary := filepath.Join(t.TempDir(), "x")
	lock, err := tempdir.Lock(filepath.Join(filepath.Dir(binary), "lock"), true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lockWithContext(ctx, lock.Name(), newReport(nil, "x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second builder does not wait for the first: %v", err)
	}
	if err := (nestedModule{name: "x", pkg: "."}).buildInto(t.Context(), dir, binary, newReport(nil, "x")); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	unlock, err := lockWithContext(t.Context(), lock.Name(), newReport(nil, "x"))
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if out, err := exec.Command(binary).CombinedOutput(); err != nil {
		t.Errorf("the binary does not run: %v %s", err, out)
	}
}

func writeModule(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCacheKeyChangesWithEverythingThatIsBuiltIn(t *testing.T) {
	files := map[string]string{"go.mod": "module x\n", "go.sum": "", "main.go": "package main\n"}
	key := func(name, content string) string {
		changed := map[string]string{name: content}
		for name, content := range files {
			if _, ok := changed[name]; !ok {
				changed[name] = content
			}
		}
		hash, err := sourceHash(t.Context(), writeModule(t, changed))
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	base := key("go.sum", "")
	for _, change := range [][2]string{{"go.mod", "module y\n"}, {"go.sum", "a h1:x\n"}, {"main.go", "package main // 2\n"}, {"new.go", "package main\n"}} {
		if key(change[0], change[1]) == base {
			t.Errorf("a change of %s leaves the key as it was", change[0])
		}
	}
	if key("main_test.go", "package main\n") != base {
		t.Error("a test file changes the key")
	}
}

func TestBuildLeavesNoHalfBinary(t *testing.T) {
	dir := writeModule(t, map[string]string{"go.mod": "module x\n\ngo 1.26.0\n", "go.sum": "", "main.go": "package main\n\nfunc main() { undefined() }\n"})
	binary := filepath.Join(t.TempDir(), "x")
	var out bytes.Buffer
	err := nestedModule{name: "x", pkg: "."}.buildInto(t.Context(), dir, binary, newReport(&out, "building x"))
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("error %v, want what the compiler said", err)
	}
	left, err := os.ReadDir(filepath.Dir(binary))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestABuildThatIsBrokenOffLeavesNothing(t *testing.T) {
	dir := writeModule(t, map[string]string{"go.mod": "module x\n\ngo 1.26.0\n", "go.sum": "",
		"main.go": "package main\n\nimport \"net/http\"\n\nfunc main() { http.ListenAndServe(\"\", nil) }\n"})
	temp, target := t.TempDir(), t.TempDir()
	t.Setenv("GOCACHE", t.TempDir()) // empty: a build that takes a while
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	compiling := make(chan struct{})
	var once sync.Once
	out := writerFunc(func(line []byte) (int, error) {
		if bytes.Contains(line, []byte(" of ")) {
			once.Do(func() { close(compiling) })
		}
		return len(line), nil
	})
	report := newReport(out, "building x")
	report.terminal = true // shows every step
	go func() {
		<-compiling
		cancel()
	}()
	if err := (nestedModule{name: "x", pkg: "."}).buildInto(ctx, dir, filepath.Join(target, "x"), report); err == nil {
		t.Error("no error although the build was broken off")
	}
	for _, dir := range []string{temp, target} {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestReportCountsPackagesAndKeepsErrors(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, "building x")
	r.total = 3
	r.Write([]byte("go: downloading k8s.io/api v1.0.0\nk8s.io/a"))
	r.Write([]byte("pi/core/v1\nfmt\n# x\nmain.go:3: undefined: y\n"))
	if got := r.progressLocked(); got != "2 of 3 packages (66%)" {
		t.Errorf("progress %q", got)
	}
	if got := strings.TrimSpace(r.errors()); got != "# x\nmain.go:3: undefined: y" {
		t.Errorf("errors %q", got)
	}
	if got := strings.Count(out.String(), "\n"); got != 1 {
		t.Errorf("%d lines within an instant where there is no terminal, want 1: %q", got, out.String())
	}
}

func TestFencepostIsBuiltWithItsTags(t *testing.T) {
	output := filepath.Join(t.TempDir(), "csi-fencepost")
	if err := BuildFencepost(t.Context(), os.Stderr, output, FencepostBuild{Tags: []string{"sanity"}}); err != nil {
		t.Fatal(err)
	}
	info, err := exec.Command("go", "version", "-m", output).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, info)
	}
	for _, want := range []string{mainModule + "/cmd/csi-fencepost", "-tags=grpcnotrace,sanity"} {
		if !strings.Contains(string(info), want) {
			t.Errorf("go version -m lacks %q:\n%s", want, info)
		}
	}
}

func TestTheEnvironmentChoosesTheKubernetes(t *testing.T) {
	v, err := KubernetesVersions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if later, earlier := minor(t, v.Newest), minor(t, v.Previous); later <= earlier || earlier <= minor(t, v.Oldest) {
		t.Errorf("%+v: three versions of Kubernetes were to be there, each older than the one before it", v)
	}
	for which, want := range map[string]string{"": v.Newest, "newest": v.Newest, "previous": v.Previous, "oldest": v.Oldest} {
		t.Setenv(kubernetesEnv, which)
		chosen, err := chosenKubernetes()
		if err != nil {
			t.Fatalf("%s=%s: %v", kubernetesEnv, which, err)
		}
		if got, err := chosen.versionIn(t.Context()); err != nil || got != want {
			t.Errorf("%s=%s: %s %v, want %s", kubernetesEnv, which, got, err, want)
		}
	}
	t.Setenv(kubernetesEnv, "older")
	if _, err := Build(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "newest, previous or oldest") {
		t.Errorf("%s=older: %v, want an error that says what it can be", kubernetesEnv, err)
	}
}

func TestOnlyBinariesThatNobodyAskedForAreRemoved(t *testing.T) {
	cache, now := t.TempDir(), time.Now()
	for name, age := range map[string]time.Duration{"old": 2 * unusedFor, "new": unusedFor / 2} {
		folder := filepath.Join(cache, name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(folder, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	removeUnused(cache, now.Add(-unusedFor))
	left, err := os.ReadDir(cache)
	if err != nil || len(left) != 1 || left[0].Name() != "new" {
		t.Errorf("left: %v (%v)", left, err)
	}
}

func TestTheCacheIsClearedButForWhatRuns(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if left, err := ClearCache(); err != nil || len(left) != 0 {
		t.Errorf("where there is no cache: %v, %q", err, left)
	}
	cache, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"runs", "rests"} {
		if err := os.MkdirAll(filepath.Join(cache, key), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cache, key, "sleep"), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := StartProcess(ProcessOptions{Name: "sleep", Path: filepath.Join(cache, "runs", "sleep"), Args: []string{"600"}, LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(0)
	left, err := ClearCache()
	if err != nil || len(left) != 1 || left[0] != filepath.Join(cache, "runs") {
		t.Errorf("left: %q (%v)", left, err)
	}
	if _, err := os.Stat(filepath.Join(cache, "rests")); !os.IsNotExist(err) {
		t.Errorf("what nobody runs is still there: %v", err)
	}
	lock, err := tempdir.Lock(filepath.Join(cache, "lock"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	p.Stop(0)
	if _, err := ClearCache(); err == nil {
		t.Error("it was cleared while somebody builds")
	}
	if _, err := os.Stat(filepath.Join(cache, "runs")); err != nil {
		t.Error(err)
	}
}

// minor is 37 of v1.37.2.
func minor(t *testing.T, version string) (minor int) {
	t.Helper()
	if _, err := fmt.Sscanf(version, "v1.%d.", &minor); err != nil {
		t.Errorf("%q is no version of Kubernetes: %v", version, err)
	}
	return minor
}
