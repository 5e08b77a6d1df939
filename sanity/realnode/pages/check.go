package pages

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Verdict is what is wrong with a database; the zero value: it holds what was
// committed.
type Verdict struct {
	// Unreadable are the pages that are not as any writer left them.
	Unreadable []uint32
	// Lost are the pages that are older than their last commit, in the log or as clients
	// were told.
	Lost []uint32
	// Twice is how many versions two writers have given.
	Twice int
	// Torn is how many commits of the log cannot be read. The last one of a file may be
	// half written where the power failed.
	Torn int
	// Missing says that there is no database, or that it cannot be read; empty: it can.
	Missing string

	// Commits is how many the log holds, and Writers who made them, in the order of
	// their first.
	Commits int
	Writers []string
}

// Corrupt is how many pages are wrong.
func (v Verdict) Corrupt() int { return len(v.Unreadable) + len(v.Lost) }

// Sound tells whether nothing is wrong.
func (v Verdict) Sound() bool {
	return v.Missing == "" && v.Corrupt() == 0 && v.Twice == 0 && v.Torn == 0
}

// String is the verdict in a sentence.
func (v Verdict) String() string {
	switch {
	case v.Missing != "":
		return "the database cannot be read: " + v.Missing
	case v.Sound():
		return fmt.Sprintf("the database is sound: %d pages, the last %d commits by %d writers", Count, v.Commits, len(v.Writers))
	}
	var wrong []string
	for _, w := range []struct {
		n    int
		text string
	}{
		{len(v.Unreadable), "%d pages cannot be read"},
		{len(v.Lost), "%d pages have lost committed writes"},
		{v.Twice, "%d versions were given by two writers"},
		{v.Torn, "%d commits cannot be read"},
	} {
		if w.n > 0 {
			wrong = append(wrong, fmt.Sprintf(w.text, w.n))
		}
	}
	return fmt.Sprintf("the database is CORRUPT: of %d pages %s", Count, strings.Join(wrong, "; "))
}

// Check reads the database in a folder, which nobody writes, and holds it against what
// clients were told: whoever writes last may leave a database that looks sound, and has
// forgotten the other.
func Check(folder string, told Told) Verdict {
	var v Verdict
	commits, torn, err := readLog(folder)
	if err != nil {
		v.Missing = reason(err)
		return v
	}
	v.Commits, v.Torn = len(commits), torn
	committed, gave, twice := map[uint32]uint64{}, map[uint64]string{}, map[uint64]bool{}
	take := func(writer string, number uint32, version uint64) {
		committed[number] = max(committed[number], version)
		if before, given := gave[version]; given && before != writer {
			twice[version] = true
		}
		gave[version] = writer
	}
	for _, c := range commits {
		take(c.writer, c.number, c.version)
		if !slices.Contains(v.Writers, c.writer) {
			v.Writers = append(v.Writers, c.writer)
		}
	}
	for writer, all := range told {
		for _, c := range all {
			take(writer, c.Page, c.Version)
		}
	}
	v.Twice = len(twice)
	f, err := os.Open(filepath.Join(folder, "pages.db"))
	if err != nil {
		v.Missing = reason(err)
		return v
	}
	defer f.Close()
	b := make([]byte, Size)
	for number := range uint32(Count) {
		_, err := f.ReadAt(b, int64(number)*Size)
		var p page
		if err == nil {
			p, err = decode(b, number)
		}
		switch {
		case err != nil:
			v.Unreadable = append(v.Unreadable, number)
		case p.version < committed[number]:
			v.Lost = append(v.Lost, number)
		}
	}
	return v
}

// reason is why a file cannot be read, without the path of where it was looked at.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return filepath.Base(path.Path) + ": " + path.Err.Error()
	}
	return err.Error()
}

// readLog reads the commits that the log holds, the oldest first, and counts those in
// its middle that cannot be read.
func readLog(folder string) (commits []page, torn int, err error) {
	files, err := logFiles(folder)
	if err != nil {
		return nil, 0, err
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // just deleted
		}
		if err != nil {
			return nil, 0, err
		}
		for at := 0; at < len(content); at += commitSize {
			c, ok := decodeCommit(content[at:min(at+commitSize, len(content))])
			last := at+commitSize >= len(content)
			switch {
			case ok:
				commits = append(commits, c)
			case !last:
				torn++
			}
		}
	}
	return commits, torn, nil
}

// logFiles are the paths of the log's files, the oldest first, whichever timeline
// they are of.
func logFiles(folder string) ([]string, error) {
	folders, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range folders {
		if !strings.HasPrefix(f.Name(), timeline) {
			continue
		}
		path := filepath.Join(folder, f.Name())
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(strings.Compare(filepath.Base(a), filepath.Base(b)), strings.Compare(a, b))
	})
	return files, nil
}
