package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWhatHasNoEndIsNotRead(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "link")
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/zero", pipe, folder, link} {
		if text, err := Read(path, 4); err == nil || text != nil || err.Error() != path+" is no regular file" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
}

func TestAFileIsReadUpToItsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(path, 7); err != nil || string(text) != "hunter2" {
		t.Errorf("%q, %v", text, err)
	}
	text, err := Read(path, 6)
	if err == nil || text != nil || !strings.HasSuffix(err.Error(), "secret is larger than 6 bytes") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(path+"s", 6); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestANodesFileIsInItsFolder(t *testing.T) {
	for path, want := range map[string]string{
		"/etc/bmc/password":         "/etc/bmc/password",
		"/etc/bmc/$(NODE).password": "/etc/bmc/n1.example.com.password",
		"/etc/$(NODE)/$(NODE)":      "/etc/n1.example.com/n1.example.com",
	} {
		if got, err := ForNode(path, "n1.example.com"); err != nil || got != want {
			t.Errorf("%s: %q, %v; expected %q", path, got, err, want)
		}
	}
	for _, node := range []string{"", "..", "../kubernetes.io", "a/b", "/etc/shadow"} {
		if got, err := ForNode("/etc/bmc/$(NODE)/password", node); err == nil || got != "" {
			t.Errorf("node %q has %q", node, got)
		}
	}
}

func TestTwoPathsAreOfOneFile(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	if err := os.Mkdir(at("below"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"there", "other", "below/there"} {
		if err := os.WriteFile(at(name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": at("there"), "folder": at("below")} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(at("there"), at("hard")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{at("there"), at("there"), true},
		{at("there"), folder + "/below/../there", true},
		{at("there"), at("link"), true},
		{at("there"), at("hard"), true},
		{at("below/there"), at("folder/there"), true},
		{at("there"), at("other"), false},
		{at("there"), at("below/there"), false},
		{at("new"), folder + "/./new", true},
		{at("below/new"), at("folder/new"), true},
		{at("new"), at("newer"), false},
		{at("new"), at("below/new"), false},
		{at("new"), at("there"), false},
		{at("missing/new"), at("missing/new"), false}, // nothing can be written there
		{"", "", false},
		{"", at("there"), false},
		{"/dev/null", "/dev/null", false}, // it holds nothing
	} {
		if got := Same(test.a, test.b); got != test.want || Same(test.b, test.a) != got {
			t.Errorf("%q and %q: %v", test.a, test.b, got)
		}
	}
}
