package pages

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writes lets a writer commit so often, and end.
func writes(t *testing.T, folder, writer string, commits int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n := 0
	err := Write(ctx, folder, writer, time.Microsecond, func(Commit) {
		if n++; n == commits {
			stop()
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", writer, err)
	}
}

func TestOneWriterAfterTheOtherLeavesASoundDatabase(t *testing.T) {
	folder := t.TempDir()
	writes(t, folder, "one", 250)
	writes(t, folder, "two", 130)
	v := Check(folder, nil)
	if !v.Sound() || v.Commits < 200 || strings.Join(v.Writers, " ") != "one two" {
		t.Errorf("%+v: %s", v, v)
	}
	writes(t, folder, "one", 600)
	if v := Check(folder, nil); !v.Sound() || v.Commits < 200 || v.Commits > filesOfLog*commitsInFile {
		t.Errorf("%s: %d commits in %d files of %d", v, v.Commits, filesOfLog, commitsInFile)
	}
}

func TestWhatIsWrongIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*testing.T, string)
		want  string
	}{
		"a byte of a page": {func(t *testing.T, folder string) { patch(t, filepath.Join(folder, "pages.db"), 5*Size+2000, 1) },
			"1 pages cannot be read"},
		"a page in another's place": {func(t *testing.T, folder string) {
			write(t, filepath.Join(folder, "pages.db"), 3*Size, page{number: 4, version: 1}.encode())
		}, "1 pages cannot be read"},
		"a page as it was before": {func(t *testing.T, folder string) {
			commits, _, err := readLog(folder)
			if err != nil {
				t.Fatal(err)
			}
			last := commits[len(commits)-1]
			write(t, filepath.Join(folder, "pages.db"), int64(last.number)*Size, page{number: last.number, writer: "one"}.encode())
		}, "1 pages have lost committed writes"},
		"another writer's version": {func(t *testing.T, folder string) {
			other := filepath.Join(folder, timeline+"0000000100-two")
			os.Mkdir(other, 0o755)
			os.WriteFile(filepath.Join(other, "0000000100"), page{number: 1, version: 200, writer: "two"}.encodeCommit(), 0o644)
		}, "1 versions were given by two writers"},
		"a commit in the middle": {func(t *testing.T, folder string) {
			files, _ := logFiles(folder)
			patch(t, files[0], commitSize+4, 9)
		}, "1 commits cannot be read"},
		"all of it": {func(t *testing.T, folder string) { os.Remove(filepath.Join(folder, "pages.db")) }, "cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			writes(t, folder, "one", 250)
			c.spoil(t, folder)
			if v := Check(folder, nil); v.Sound() || !strings.Contains(v.String(), c.want) {
				t.Errorf("%s, want %s", v, c.want)
			}
		})
	}
}

// The last commit of a file may be half written: the power failed.
func TestAHalfWrittenCommitIsNoDamage(t *testing.T) {
	folder := t.TempDir()
	writes(t, folder, "one", 250)
	files, err := logFiles(folder)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(files[len(files)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 17))
	f.Close()
	writes(t, folder, "two", 20)
	if v := Check(folder, nil); !v.Sound() {
		t.Error(v)
	}
}

// Who writes last leaves a database that looks sound: what clients were told does not.
func TestWhatClientsWereToldCounts(t *testing.T) {
	folder := t.TempDir()
	writes(t, folder, "one", 250)
	if v := Check(folder, Told{"two": {{Page: 3, Version: 250}}}); v.Twice != 1 {
		t.Errorf("a version that another gave, too: %s", v)
	}
	if v := Check(folder, Told{"one": {{Page: 3, Version: 100000}}}); len(v.Lost) != 1 || v.Lost[0] != 3 {
		t.Errorf("a version that is not there: %s", v)
	}
	for _, c := range []Commit{{7, 1033}, {0, 1}} {
		if got, ok := ParseCommit(c.String() + "\n"); !ok || got != c {
			t.Errorf("%s is read as %s, %v", c, got, ok)
		}
	}
	for _, line := range []string{"", "page", "page 64 version 1", "db: page 5: its checksum is wrong"} {
		if c, ok := ParseCommit(line); ok {
			t.Errorf("%q is read as %s", line, c)
		}
	}
}

func TestAWriterStopsAtAPageThatItCannotRead(t *testing.T) {
	folder := t.TempDir()
	writes(t, folder, "one", 10)
	patch(t, filepath.Join(folder, "pages.db"), 5*Size+2000, 1)
	err := Write(t.Context(), folder, "two", time.Microsecond, func(Commit) {})
	if err == nil || err.Error() != "page 5: its checksum is wrong" {
		t.Errorf("%v", err)
	}
}

func patch(t *testing.T, path string, at int64, by byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, at, []byte{content[at] + by})
}

func write(t *testing.T, path string, at int64, what []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(what, at); err != nil {
		t.Fatal(err)
	}
}
