//go:build release

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	checkVersion = "v0.0.1-check"
	passphrase   = "the passphrase of the moment's key"
	password     = "the password of a registry"
)

// A rehearsal is a checkout in which a release is made, and all that was printed meanwhile.
type rehearsal struct {
	t       *testing.T
	folder  string
	env     []string
	printed bytes.Buffer
}

// sh runs a command in a folder of the checkout.
func (r *rehearsal) sh(folder, command string, env ...string) error {
	r.t.Helper()
	begun := time.Now()
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir, cmd.Env = filepath.Join(r.folder, folder), append(slices.Clone(r.env), env...)
	out, err := cmd.CombinedOutput()
	r.printed.Write(out)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	r.t.Logf("%5.1fs  %.100s", time.Since(begun).Seconds(), strings.TrimSpace(command))
	return err
}

func (r *rehearsal) must(folder, command string, env ...string) {
	r.t.Helper()
	if err := r.sh(folder, command, env...); err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
}

// refused is an error of the test if the command is not.
func (r *rehearsal) refused(folder, command, why string) {
	r.t.Helper()
	if err := r.sh(folder, command); err == nil || !strings.Contains(err.Error(), why) {
		r.t.Errorf("%s: %v, want %q", command, err, why)
	}
}

// checkout copies what git has or could have of this one, commits it, and gives it a tag.
func checkout(t *testing.T, folder string) {
	t.Helper()
	for name := range strings.SplitSeq(strings.TrimSuffix(git(t, root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and git has not been told
		} else if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, name), content)
		if err := os.Chmod(filepath.Join(folder, name), info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	git(t, folder, "init", "-q")
	git(t, folder, "add", ".")
	git(t, folder, "commit", "-qm", "all")
	git(t, folder, "tag", checkVersion)
}

// registry serves one in memory, and returns its address.
func registry(t *testing.T, crane string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, crane, "registry", "serve", "--address", "127.0.0.1:0")
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if found := regexp.MustCompile(`serving on port (\d+)`).FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, pipe) }()
			return "127.0.0.1:" + found[1]
		}
	}
	t.Fatalf("no registry: %v", lines.Err())
	return ""
}

// steps are those of the release workflow's job, and its image.
func steps(t *testing.T) (all []step, image string) {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal(read(t, filepath.Join(root, ".github/workflows/release.yaml")), &w); err != nil {
		t.Fatal(err)
	}
	j := w.Jobs["release"]
	if j.Env["VERSION"] != "${{ github.ref_name }}" || j.Env["KEYLESS"] != "1" {
		t.Errorf("the job's environment is %v", j.Env)
	}
	for _, s := range j.Steps {
		if s.Run != "" {
			all = append(all, s)
		}
	}
	return all, j.Env["IMAGE"]
}

// verification are the lines of SECURITY.md that a user types, with a key instead of the
// workflow's identity.
func verification(t *testing.T, image, here string) (prelude string, commands []string) {
	t.Helper()
	_, rest, _ := strings.Cut(string(read(t, filepath.Join(root, "SECURITY.md"))), "\n## Verifying a release\n")
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(rest)
	withKey := regexp.MustCompile("`(set -- --key=[^`]*)`").FindStringSubmatch(rest)
	if block == nil || withKey == nil {
		t.Fatal("SECURITY.md does not say how a release is verified")
	}
	lines := strings.Split(strings.TrimSpace(block[1]), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "VERSION=") || !strings.HasPrefix(lines[1], "set -- ") || !strings.Contains(lines[4], image) {
		t.Fatalf("not as expected:\n%s", block[1])
	}
	lines[4] = strings.Replace(lines[4], image, here, 1)
	return "VERSION=" + checkVersion + "\n" + strings.Replace(withKey[1], "cosign.pub", "../../../keys/cosign.pub", 1) + "\n", lines[2:]
}

// What the workflow does, in its order, makes a release that the documented commands verify;
// one other byte, and they refuse it.
func TestAReleaseIsWhatItsSignaturesSay(t *testing.T) {
	above := t.TempDir()
	r := &rehearsal{t: t, folder: filepath.Join(above, "checkout")}
	checkout(t, r.folder)
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasPrefix(name, "GITHUB_") && !strings.HasPrefix(name, "MAKE") && name != "VERSION" && name != "KEYLESS" {
			r.env = append(r.env, e)
		}
	}
	// cosign is found as a user's is.
	r.env = append(r.env, "VERSION="+checkVersion, "KEY="+filepath.Join(above, "keys/cosign.key"), "COSIGN_PASSWORD="+passphrase,
		"DOCKER_CONFIG="+filepath.Join(above, "docker"), "PATH="+filepath.Join(r.folder, "bin")+":"+os.Getenv("PATH"))
	r.must(".", "make bin/crane bin/cosign; mkdir -p ../keys ../docker; cosign generate-key-pair --output-key-prefix ../keys/cosign")
	all, image := steps(t)
	here := registry(t, filepath.Join(r.folder, "bin/crane")) + "/csi-fencepost"
	r.env = append(r.env, "IMAGE="+here, "REGISTRY_USER=somebody", "REGISTRY_PASSWORD="+password)
	tried := 0
	for _, s := range all {
		if s.Run == "make publish" {
			t.Logf("not tried here, it needs GitHub: %s", s.Run)
			continue
		}
		r.must(".", s.Run)
		tried++
	}
	if tried != 5 {
		t.Errorf("%d steps of the workflow were run, want 5", tried)
	}
	prelude, commands := verification(t, image, here)
	for _, c := range commands {
		r.must("bin/dist", prelude+c)
	}
	r.nothingElseIsTaken(prelude, commands, here)
	for _, secret := range []string{passphrase, password, "PRIVATE KEY"} {
		if strings.Contains(r.printed.String(), secret) {
			t.Errorf("%q was printed", secret)
		}
	}
}

// nothingElseIsTaken changes a byte here and there, and pushes another image.
func (r *rehearsal) nothingElseIsTaken(prelude string, commands []string, here string) {
	program := "bin/dist/csi-fencepost_" + checkVersion + "_linux_amd64"
	for _, c := range []struct{ file, command, why string }{
		{"bin/dist/SHA256SUMS", commands[0], "invalid signature"},
		{program, commands[0], "FAILED"},
		{program, commands[1], "do not match digests in statement"},
	} {
		path := filepath.Join(r.folder, c.file)
		right := read(r.t, path)
		wrong := bytes.Clone(right)
		wrong[len(wrong)/2] ^= 1
		write(r.t, path, wrong)
		r.refused("bin/dist", prelude+c.command, c.why)
		write(r.t, path, right)
	}
	// An image of other sources under the same version.
	r.must(".", "go run ./deploy/image -image-only -version "+checkVersion+" -date 1")
	r.refused(".", "make push", "does not change")
	r.must(".", "crane push bin/layout "+here+":another")
	r.refused("bin/dist", prelude+strings.Replace(commands[2], ":$VERSION", ":another", 1), "no signatures found")
	r.refused("bin/dist", "KEY= make -C ../.. sign", "whose signature?")
}
