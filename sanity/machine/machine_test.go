package machine_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/machine"
)

// lab is two machines that run and a disk.
func lab(t *testing.T) (a, b *machine.Machine, disk *machine.Disk) {
	t.Helper()
	folder := t.TempDir()
	image, err := machine.BuildImage(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	a, b = machine.New("a", folder, image), machine.New("b", folder, image)
	for _, m := range []*machine.Machine{a, b} {
		start(t, m)
		t.Cleanup(m.Kill)
	}
	disk, err = machine.NewDisk(filepath.Join(folder, "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	return a, b, disk
}

func start(t *testing.T, m *machine.Machine) {
	t.Helper()
	began := time.Now()
	if err := m.Start(limit(t, 3*time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Logf("machine %s is up after %v", m.Name, time.Since(began).Round(100*time.Millisecond))
}

func limit(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func plug(t *testing.T, m *machine.Machine, disk *machine.Disk) {
	t.Helper()
	if err := m.Plug(limit(t, time.Minute), "d1", disk); err != nil {
		t.Fatal(err)
	}
}

// writes waits until the disk has more records than before, by writer.
func writes(t *testing.T, disk *machine.Disk, writer string) {
	t.Helper()
	before := count(t, disk, writer)
	for range 1200 {
		if count(t, disk, writer) > before {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s does not write", writer)
}

func count(t *testing.T, disk *machine.Disk, writer string) (n int) {
	t.Helper()
	all, err := disk.Verify()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if strings.HasPrefix(s.Writer, writer) {
			n += s.Writes
		}
	}
	return n
}

func TestADiskIsOneMachinesUntilThatIsOffOrLetsGo(t *testing.T) {
	a, b, disk := lab(t)
	plug(t, a, disk)
	writes(t, disk, "a/1/")

	refused := func(when string) {
		t.Helper()
		err := b.Plug(limit(t, time.Minute), "d1", disk)
		if err == nil || !strings.Contains(err.Error(), `Failed to get "write" lock`) {
			t.Fatalf("%s, QEMU said: %v", when, err)
		}
	}
	refused("while the first machine runs")
	if err := a.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("while the first machine is paused")
	if err := a.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	writes(t, disk, "a/1/")

	if err := a.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Unplug(limit(t, time.Second), "d1"); err == nil || !strings.Contains(err.Error(), "does not let go of disk d1") {
		t.Fatalf("unplugged from a machine that is paused: %v", err)
	}
	refused("while the paused machine is to let go")
	if err := a.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Unplug(limit(t, time.Minute), "d1"); err != nil {
		t.Fatal(err)
	}
	plug(t, b, disk)
	writes(t, disk, "b/1/")
	b.Kill()
	if b.Running() {
		t.Error("a killed machine runs")
	}
	plug(t, a, disk)
	writes(t, disk, "a/1/")
	start(t, b)
	refused("after the machine that was off is on again")

	all, err := disk.Verify()
	if err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestTwoWritersAtOnceAreFoundOnTheDisk(t *testing.T) {
	a, b, disk := lab(t)
	plug(t, a, disk)
	writes(t, disk, "a/1/")
	// Without the lock, QEMU lets a second machine have it.
	if err := b.PlugUnlocked(limit(t, time.Minute), "d1", disk); err != nil {
		t.Fatal(err)
	}
	for range 1800 {
		if _, err := disk.Verify(); err != nil {
			t.Logf("found: %v", err)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	all, _ := disk.Verify()
	t.Fatalf("two machines had one disk for 90 s and more, and nothing is found: %+v\nconsole of b:\n%s", all, b.Console())
}
