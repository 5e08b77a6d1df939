package pages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	commitsInFile = 20 // of the log
	filesOfLog    = 12

	// timeline begins the name of the folder of one. They are at the top of the file
	// system: there ext4 puts each into a group of blocks of its own.
	timeline = "log-"
)

// Write writes commits to the database in a folder, one every so often, until ctx
// ends. An empty folder becomes a database. It fails where the file system does, and
// where it reads a page that is not as a writer left it. tell is called after each
// commit: a client was told of it.
func Write(ctx context.Context, folder, writer string, every time.Duration, tell func(Commit)) error {
	if len(writer) > writerSize {
		return fmt.Errorf("a writer's name has at most %d bytes: %s", writerSize, writer)
	}
	d, err := open(folder, writer)
	if err != nil {
		return err
	}
	defer d.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		number := rand.Uint32N(Count)
		if err := d.commit(number); err != nil {
			return err
		}
		tell(Commit{number, d.version})
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// database is one that is open for writing.
type database struct {
	folder, writer string
	timeline       string // the folder of what this writer commits, from this opening on
	pages, log     *os.File
	version        uint64 // the last that was given
	inFile         int    // commits in log
}

func open(folder, writer string) (*database, error) {
	d := &database{folder: folder, writer: writer}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "pages.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(path); err != nil {
			return nil, err
		}
	}
	var err error
	if d.pages, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	for number := range uint32(Count) {
		p, err := d.read(number)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.version = max(d.version, p.version)
	}
	// What was committed last may be in the log alone, where the page was not yet
	// written: the version was given.
	commits, _, err := readLog(folder)
	for _, c := range commits {
		d.version = max(d.version, c.version)
	}
	d.timeline = filepath.Join(folder, fmt.Sprintf("%s%010d-%s", timeline, d.version, writer))
	return d, err
}

// create makes the pages of a new database, all at once.
func create(path string) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	for number := range uint32(Count) {
		if _, err := f.Write(page{number: number}.encode()); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(path+".new", path), syncFolder(filepath.Dir(path)))
}

func (d *database) close() error {
	err := d.pages.Close()
	if d.log != nil {
		err = errors.Join(err, d.log.Close())
	}
	return err
}

func (d *database) read(number uint32) (page, error) {
	b := make([]byte, Size)
	if _, err := d.pages.ReadAt(b, int64(number)*Size); err != nil {
		return page{}, err
	}
	p, err := decode(b, number)
	if err != nil {
		return page{}, fmt.Errorf("page %d: %w", number, err)
	}
	return p, nil
}

// commit gives a page the next version.
func (d *database) commit(number uint32) error {
	if _, err := d.read(number); err != nil {
		return err
	}
	d.version++
	p := page{number: number, version: d.version, writer: d.writer}
	if _, err := d.pages.WriteAt(p.encode(), int64(number)*Size); err != nil {
		return err
	}
	if err := d.pages.Sync(); err != nil {
		return err
	}
	if d.log == nil || d.inFile == commitsInFile {
		if err := d.nextFile(); err != nil {
			return err
		}
	}
	if _, err := d.log.Write(p.encodeCommit()); err != nil {
		return err
	}
	d.inFile++
	return d.log.Sync()
}

// nextFile begins a file of the log, and deletes those that are too many.
func (d *database) nextFile() error {
	if d.log != nil {
		if err := d.log.Close(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.timeline, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.timeline, fmt.Sprintf("%010d", d.version)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	d.log, d.inFile = f, 0
	files, err := logFiles(d.folder)
	if err != nil {
		return err
	}
	for _, path := range files[:max(len(files)-filesOfLog, 0)] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // unless it holds others
	}
	return errors.Join(syncFolder(d.timeline), syncFolder(filepath.Dir(d.timeline)))
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
