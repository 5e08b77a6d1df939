//go:build linux

package disk

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/pages"
)

// made is a disk with a file system.
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	must(t, Make(path, 64<<20))
	must(t, Format(t.Context(), path))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mounted is the disk on another machine, until it is switched off.
func mounted(t *testing.T, disk string) (folder string, off func()) {
	t.Helper()
	device, err := Attach(t.Context(), disk)
	must(t, err)
	folder, on := t.TempDir(), true
	off = func() {
		if on {
			on = false
			must(t, PowerOff(folder))
			must(t, run(context.Background(), "umount", folder))
		}
	}
	t.Cleanup(off)
	must(t, run(t.Context(), "mount", "-t", "ext4", device, folder))
	must(t, Detach(t.Context(), device)) // with the unmount
	return folder, off
}

// writing lets somebody write into a folder for that long, and returns what clients
// were told.
func writing(t *testing.T, folder, writer string, during time.Duration) (told []pages.Commit) {
	ctx, stop := context.WithTimeout(t.Context(), during)
	defer stop()
	if err := pages.Write(ctx, folder, writer, 2*time.Millisecond, func(c pages.Commit) { told = append(told, c) }); err != nil {
		t.Logf("%s noticed: %v", writer, err)
	}
	return told
}

// TestOnOneMachineALossOfPowerDestroysNothing: the judge does not see faults where
// there are none.
func TestOnOneMachineALossOfPowerDestroysNothing(t *testing.T) {
	disk, told := made(t), pages.Told{}
	for _, writer := range []string{"one", "two", "one, later"} {
		folder, off := mounted(t, disk)
		ended := make(chan struct{})
		go func() { defer close(ended); told[writer] = writing(t, folder, writer, time.Minute) }()
		time.Sleep(700 * time.Millisecond)
		must(t, PowerOff(folder)) // in the middle of a write
		<-ended
		off()
		v, err := Judge(t.Context(), disk, t.TempDir(), told)
		must(t, err)
		t.Log(v)
		if !v.Sound() || v.Database.Commits == 0 {
			t.Errorf("%s\n%s", v, v.Damage)
		}
	}
}

// TestOnTwoMachinesADiskIsDestroyed: what the whole project is for, without it. One disk,
// two machines, seconds. The database always is. Of the file system it is a matter of
// which blocks each machine writes last: one of four times will do.
func TestOnTwoMachinesADiskIsDestroyed(t *testing.T) {
	for range 4 {
		if destroyed(t).Damage != "" {
			return
		}
	}
	t.Error("e2fsck finds nothing wrong with four file systems that two machines have written")
}

// destroyed is what two machines leave of a disk.
func destroyed(t *testing.T) Verdict {
	t.Helper()
	disk, told := made(t), pages.Told{}
	one, oneOff := mounted(t, disk)
	told["one"] = writing(t, one, "one", time.Second)
	two, twoOff := mounted(t, disk)
	ended := make(chan []pages.Commit)
	go func() { ended <- writing(t, one, "one, still", 5*time.Second) }()
	told["two"] = writing(t, two, "two", 5*time.Second)
	told["one, still"] = <-ended
	oneOff()
	twoOff()
	v, err := Judge(t.Context(), disk, t.TempDir(), told)
	must(t, err)
	t.Logf("%s\n%s", v, v.Damage)
	if v.Database.Sound() {
		t.Errorf("its own check finds nothing wrong with the database: %s", v)
	}
	return v
}

// TestADiskThatHangsHoldsItsWriter: it writes nothing meanwhile, writes on when the disk
// answers again, and fails, in the end, when the power is cut while it hangs.
func TestADiskThatHangsHoldsItsWriter(t *testing.T) {
	folder, off := mounted(t, made(t))
	var commits atomic.Int64
	ended := make(chan error)
	go func() {
		ended <- pages.Write(t.Context(), folder, "one", 2*time.Millisecond, func(pages.Commit) { commits.Add(1) })
	}()
	goesOn := func() {
		t.Helper()
		before := commits.Load()
		for began := time.Now(); commits.Load() < before+3; time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("it writes no more")
			}
		}
	}
	goesOn()
	must(t, Hang(folder))
	before := commits.Load()
	time.Sleep(300 * time.Millisecond)
	if after := commits.Load(); after > before+1 {
		t.Errorf("%d commits while the disk hung", after-before)
	}
	must(t, GoOn(folder))
	goesOn()
	must(t, Hang(folder))
	must(t, PowerOff(folder))
	must(t, GoOn(folder))
	if err := <-ended; err == nil {
		t.Error("the power was cut, and the writer noticed nothing")
	}
	off()
}

// TestWhatIsCutOffWritesNothingLater: what the kernel had still to write of a file system
// whose power is off does not come to the disk when it is unmounted, long after another
// machine has mounted it.
func TestWhatIsCutOffWritesNothingLater(t *testing.T) {
	disk, told := made(t), pages.Told{}
	for _, writer := range []string{"one", "two"} {
		old, unmount := mounted(t, disk)
		told[writer] = writing(t, old, writer, time.Second)
		must(t, PowerOff(old))
		next, off := mounted(t, disk)
		told[writer+", next"] = writing(t, next, writer+", next", 2*time.Second)
		unmount()
		told[writer+", later"] = writing(t, next, writer+", later", time.Second)
		off()
	}
	v, err := Judge(t.Context(), disk, t.TempDir(), told)
	must(t, err)
	if t.Log(v); !v.Sound() {
		t.Errorf("%s\n%s", v, v.Damage)
	}
}
