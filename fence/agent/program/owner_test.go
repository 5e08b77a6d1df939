package program_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
)

const stranger = 12345

// asRoot skips what only root can set up: files of another user, and mounts.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A folder of agents lies in a folder of ours in the sticky folder for temporary files.
func agents(t *testing.T) (above, dir string) {
	t.Helper()
	above = shell(t, "")
	dir = filepath.Join(above, "agents")
	must(t, os.Mkdir(dir, 0o755))
	writeAgent(t, filepath.Join(dir, "fence_test"), fmt.Sprintf(metadataText, allActions), `echo "Status: ON"`)
	return above, dir
}

func TestAFolderOfTheSystemIsNoFolderOfAgents(t *testing.T) {
	above, dir := agents(t)
	for folder, want := range map[string]string{
		"":                   "is not an absolute path",
		"usr/sbin":           "is not an absolute path",
		"./agents":           "is not an absolute path",
		"/":                  "every program of the container would be a fence agent",
		"//":                 "every program of the container would be a fence agent",
		"/usr/..":            "every program of the container would be a fence agent",
		"/usr":               "/usr is a folder of the system",
		"/usr/":              "/usr is a folder of the system",
		"/etc":               "/etc is a folder of the system",
		"/tmp":               "/tmp is a folder of the system",
		"/var/tmp":           "/var/tmp is a folder of the system",
		"/proc/self/root":    "/proc is a folder of the system",
		"/proc/1/cwd":        "/proc is a folder of the system",
		"/dev/shm":           "/dev is a folder of the system",
		"/sys/fs":            "/sys is a folder of the system",
		"/run/../proc/1/cwd": "/proc is a folder of the system",
	} {
		wantError(t, program.CheckFolder(folder), want)
		o := options(dir)
		o.Dirs = append(o.Dirs, folder)
		_, err := program.New(o)
		wantError(t, err, want)
	}
	for _, folder := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin", "/agents", "/opt/agents", "/home/me/agents", "/procedures", dir} {
		must(t, program.CheckFolder(folder))
	}
	// The link's own name says nothing.
	link(t, "/", filepath.Join(above, "link"))
	o := options(dir)
	o.Dirs = []string{filepath.Join(above, "link")}
	o.Agent = filepath.Join(above, "link", dir, "fence_test")
	_, err := program.New(o)
	wantError(t, err, "link", "every program of the container")
}

// Who may write to a folder on the way to the program, or owns it, decides what
// is run.
func TestAProgramThatOthersCanReplaceIsNotRun(t *testing.T) {
	chmod := func(mode os.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { must(t, os.Chmod(path, mode)) }
	}
	chown := func(t *testing.T, path string) {
		asRoot(t)
		must(t, os.Lchown(path, stranger, stranger))
	}
	for _, c := range []struct {
		name   string
		part   string // of it, from the folder above the agents'
		change func(t *testing.T, path string)
		want   string
	}{
		{"all may write to the folder", "agents", chmod(0o777), "agents has mode drwxrwxrwx"},
		{"the group may write to the folder, as fsGroup has it", "agents", chmod(os.ModeSetgid | 0o775), "agents has mode dgrwxrwxr-x"},
		{"all may add to the folder", "agents", chmod(os.ModeSticky | 0o777), "agents has mode dtrwxrwxrwx"},
		{"all may write to the folder above", ".", chmod(0o777), "/001 has mode drwxrwxrwx"},
		{"the folder is another user's", "agents", chown, "agents belongs to user 12345"},
		{"the folder above is another user's", ".", chown, "/001 belongs to user 12345"},
		{"the program is another user's", "agents/fence_test", chown, "fence_test belongs to user 12345"},
		{"all may write to the program", "agents/fence_test", chmod(0o757), "fence_test has mode -rwxr-xrwx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			above, dir := agents(t)
			p := newProgram(t, options(dir))
			c.change(t, filepath.Join(above, c.part))
			_, err := program.New(options(dir))
			wantError(t, err, c.want)
			for what, do := range map[string]func() error{
				"status": func() error { _, err := p.Status(t.Context(), n1); return err },
				"off":    func() error { _, err := p.Off(t.Context(), n1); return err },
			} {
				t.Log(what)
				wantError(t, do(), c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "metadata-runs")); err == nil {
				t.Error("it was run")
			}
		})
	}
}

// The links on the way count as the folders do.
func TestALinkThatOthersCanReplaceIsNotFollowed(t *testing.T) {
	above, dir := agents(t)
	open, links := filepath.Join(above, "open"), filepath.Join(above, "links")
	must(t, os.Mkdir(links, 0o755), os.Mkdir(open, 0o755), os.Chmod(open, 0o777))
	link(t, dir, filepath.Join(open, "hop"))
	link(t, filepath.Join(open, "hop", "fence_test"), filepath.Join(links, "fence_test"))
	o := options(links)
	o.Dirs = append(o.Dirs, dir)
	_, err := program.New(o)
	wantError(t, err, "open has mode drwxrwxrwx")
	must(t, os.Chmod(open, 0o755))
	if _, err := program.New(o); err != nil {
		t.Errorf("with a folder that nobody else may write to: %v", err)
	}
	link(t, "loop", filepath.Join(links, "loop"))
	o.Agent = "loop"
	_, err = program.New(o)
	wantError(t, err, "too many")

	asRoot(t)
	must(t, os.Chmod(open, os.ModeSticky|0o777), os.Lchown(filepath.Join(open, "hop"), stranger, stranger))
	_, err = program.New(options(links))
	wantError(t, err, "hop belongs to user 12345")
}

// A volume as Kubernetes mounts it: everybody may write to its folder, and in
// ours it is read-only, as a ConfigMap or an image is, or an emptyDir that an
// init container has filled.
func TestAFolderThatIsMountedReadOnlyIsNobodysToWrite(t *testing.T) {
	asRoot(t)
	above, dir := agents(t)
	// Of a ConfigMap: links to ..data, which is a link to the files.
	must(t, os.Mkdir(filepath.Join(dir, "..2026_11_27"), 0o755),
		os.Rename(filepath.Join(dir, "fence_test"), filepath.Join(dir, "..2026_11_27", "fence_test")))
	link(t, "..2026_11_27", filepath.Join(dir, "..data"))
	link(t, "..data/fence_test", filepath.Join(dir, "fence_test"))
	must(t, os.Chmod(dir, os.ModeSetgid|0o777))
	_, err := program.New(options(dir))
	wantError(t, err, "agents has mode dgrwxrwxrwx", "readOnly: true")

	mounted := filepath.Join(above, "mounted")
	must(t, os.Mkdir(mounted, 0o755))
	if err := unix.Mount(dir, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(mounted, unix.MNT_DETACH)) })
	_, err = program.New(options(mounted))
	wantError(t, err, "mounted has mode dgrwxrwxrwx")
	must(t, unix.Mount("", mounted, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	must(t, os.Chown(dir, stranger, stranger)) // who cannot write here either
	p := newProgram(t, options(mounted))
	if r, err := p.Status(within(t, 10*time.Second), n1); r.State != agent.On {
		t.Errorf("read %v, %v", r, err)
	}
	// Whose the program is counts all the same.
	must(t, os.Chown(filepath.Join(dir, "fence_test"), stranger, stranger))
	_, err = p.Status(within(t, 10*time.Second), n1)
	wantError(t, err, "fence_test belongs to user 12345")
}

// What the process's own user owns is its own to run; a program of the image
// belongs to root.
func TestAProgramOfOursOrOfRootIsRun(t *testing.T) {
	asRoot(t)
	dir, err := os.MkdirTemp("", "agents") // the folder above that of t.TempDir is root's alone
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	writeAgent(t, filepath.Join(dir, "fence_test"), fmt.Sprintf(metadataText, allActions), "")
	must(t, os.Chown(dir, stranger, stranger), os.Chown(filepath.Join(dir, "fence_test"), stranger, stranger))
	as(t, stranger, func() {
		if _, err := program.New(options(dir)); err != nil {
			t.Error(err)
		}
		if _, err := program.New(program.Options{Name: "dummy", Agent: "fence_dummy", Parameters: map[string]string{"status_file": "$(NODE)"}}); err != nil {
			t.Error(err)
		}
	})
	_, err = program.New(options(dir))
	wantError(t, err, "belongs to user 12345", "root")
}

// as runs f with another effective user of the whole process.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	must(t, syscall.Seteuid(uid))
	defer func() { must(t, syscall.Seteuid(0)) }()
	f()
}
