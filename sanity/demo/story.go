package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/disk"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/pages"
)

// column is one telling of the story: a driver with a disk and the database
// that uses it.
type column struct {
	lane         lane
	stage        *bed.Stage
	disk         *bed.Volume
	old, new     *bed.Node
	db           *bed.Pod // on node-1
	replacement  *bed.Pod // on node-2
	unreachable  *array.Injection
	moved        time.Duration // since the taint; 0: not yet
	cleanMove    bool          // when it moved, nobody else could write
	refusal      string
	told         string
	writersAtEnd []string
	judged       disk.Verdict // on real nodes
}

const (
	watchAfterTaint = 20 * time.Second // how long the two columns are compared
	lostNetwork     = "cannot reach the VM of node-1"
)

// doublePublish tells what happens when a node is cut off from the network, is
// declared dead, and the driver cannot detach its disk at the first try.
func doublePublish(n *bed.Run, b *bed.Bed) error {
	t := newTimeline(os.Stdout)
	columns := setUp(n, b, false)
	tellDoublePublish(n, t, columns, columns[0].old.CutOff)
	if err := verdict(t, columns[0], columns[1], false); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\n %s\n", t.paint(dim, "With real kubelets, containers and file systems, judged by e2fsck: make demo REAL=1, as root."))
	return nil
}

// reallyDoublePublish is the same on real nodes: the database is one, in a container, on
// ext4, and its judges are e2fsck and its own check.
func reallyDoublePublish(n *bed.Run, b *bed.Bed) error {
	t := newTimeline(os.Stdout)
	columns := setUp(n, b, true)
	tellDoublePublish(n, t, columns, columns[0].old.Partition)
	t.step("All machines are switched off, and the disks are looked at: e2fsck, and the database's own check.")
	for _, c := range columns {
		c.judged = c.stage.Judge()[c.disk.Name]
		s := green
		if !c.judged.Sound() {
			s = red
		}
		t.say(c.lane, s, "%s", c.judged)
	}
	return verdict(t, columns[0], columns[1], true)
}

// tellDoublePublish tells it until the disk is on node-2 alone.
func tellDoublePublish(n *bed.Run, t *timeline, columns []*column, cutOff func()) {
	fmt.Fprintf(os.Stderr, "Three kubelets are Ready.\n")

	t.head()
	for _, c := range columns {
		c.db = c.stage.Pod("db", c.old, c.disk)
	}
	for _, c := range columns {
		c.db.WaitRunning(60 * time.Second)
		t.say(c.lane, plain, "pod db runs on node-1 and writes to its ReadWriteOnce disk")
	}

	time.Sleep(12 * time.Second) // a lease or two, so that the node is known to live
	t.step("node-1 loses its network. It still has power, and db still writes.")
	cutOff()
	cut := time.Now()
	waitNotReady(t, columns, cut)

	t.step("03:00. The operator believes that node-1 is dead: out-of-service taint, db force-deleted, and its replacement starts on node-2.")
	t.step("The driver's first detach fails: %q.", lostNetwork)
	for _, c := range columns {
		c.unreachable = c.stage.Array.Inject(array.Fault{Method: array.Unpublish, Do: array.Fail, Code: codes.Internal, Message: lostNetwork})
	}
	columns[0].old.Taint(bed.OutOfServiceTaint)
	tainted := time.Now()
	for _, c := range columns {
		c.db.ForceDelete()
		c.replacement = c.stage.Pod("db-2", c.new, c.disk)
	}
	follow(n, t, columns, tainted, watchAfterTaint, func() bool { return false })

	t.step("Somebody walks to the rack and really turns node-1 off. The driver can detach again.")
	columns[1].old.PowerOff()
	columns[0].old.PowerOff()
	for _, c := range columns {
		c.unreachable.Clear()
	}
	follow(n, t, columns, tainted, 90*time.Second, func() bool {
		return columns[1].moved > 0 && columns[1].replacement.Running()
	})
	time.Sleep(time.Second)
	for _, c := range columns {
		c.look(t, tainted)
		c.writersAtEnd = c.disk.Writers(300 * time.Millisecond)
	}
}

// setUp puts two drivers on the same three machines.
func setUp(n *bed.Run, b *bed.Bed, onRealNodes bool) []*column {
	careless := func(s *array.Switches) { s.EnforceSingleAttach = false }
	left := b.Stage(n, "alone", bed.StageOptions{Alone: true, PlainNames: true, Nodes: -1, Array: careless, Manual: true, Real: onRealNodes})
	right := b.Stage(n, "guarded", bed.StageOptions{Nodes: -1, Array: careless, Manual: true, Real: onRealNodes, Config: "fencing: {maxUnhealthy: 50%}"})
	for i := range 3 {
		node := left.AddNode(fmt.Sprintf("node-%d", i+1), fmt.Sprintf("id-%d", i+1), 0)
		right.Adopt(node, fmt.Sprintf("id-%d", i+1))
		fmt.Fprintf(os.Stderr, "kubelet %d of 3 is Ready\n", i+1)
	}
	right.StartFencepost()
	var columns []*column
	for i, s := range []*bed.Stage{left, right} {
		s.StartAttacher()
		columns = append(columns, &column{lane: lane(i + 1), stage: s, disk: s.Volume("disk", bed.VolumeOptions{}), old: s.Nodes[0], new: s.Nodes[1]})
	}
	return columns
}

func waitNotReady(t *timeline, columns []*column, cut time.Time) {
	for next := 15 * time.Second; columns[0].old.Ready(); time.Sleep(200 * time.Millisecond) {
		if time.Since(cut) > next {
			t.say(both, dim, "… node-1 has been silent for %.0f s; Kubernetes waits", time.Since(cut).Seconds())
			next += 15 * time.Second
		}
		if time.Since(cut) > 3*time.Minute {
			columns[0].stage.T.Fatalf("node-1 does not become NotReady")
		}
	}
	t.say(both, plain, "Kubernetes notices: node-1 is NotReady (%.0f s after it went silent)", time.Since(cut).Seconds())
}

// follow tells what changes in either column until done, or for as long as d.
func follow(n *bed.Run, t *timeline, columns []*column, tainted time.Time, d time.Duration, done func() bool) {
	for end := time.Now().Add(d); time.Now().Before(end) && !done(); time.Sleep(50 * time.Millisecond) {
		if n.Context().Err() != nil {
			n.Fatalf("stopped")
		}
		for _, c := range columns {
			c.look(t, tainted)
		}
	}
}

// look tells what is new in a column.
func (c *column) look(t *timeline, tainted time.Time) {
	if c.moved == 0 && c.disk.AttachedTo(c.new) {
		c.moved = time.Since(tainted)
		c.cleanMove = !c.disk.AttachedTo(c.old)
		s, how := green, "node-1 no longer has it"
		if !c.cleanMove {
			s, how = red, "while node-1 still has it and writes"
		}
		t.say(c.lane, s, "the disk is published to node-2, %.1f s after the taint, %s", c.moved.Seconds(), how)
	}
	if c.refusal == "" {
		for _, e := range c.replacement.Events() {
			if strings.Contains(e, "csi-fencepost: ") {
				c.refusal = e[strings.Index(e, "csi-fencepost: "):]
				t.say(c.lane, yellow, "publish to node-2 REFUSED. kubectl describe pod db-2 says: %s", c.refusal)
			}
		}
	}
	c.tell(t, "pod", c.replacement.Running(), "pod db-2 runs on node-2")
	writers := c.disk.Writers(300 * time.Millisecond)
	if len(writers) > 1 {
		c.tell(t, "writers", true, fmt.Sprintf("TWO NODES WRITE TO ONE DISK: %s", strings.Join(writers, " and ")))
	}
}

// tell says something once.
func (c *column) tell(t *timeline, key string, now bool, text string) {
	if !now || strings.Contains(c.told, key+";") {
		return
	}
	c.told += key + ";"
	s := green
	if key == "writers" {
		s = red
	}
	t.say(c.lane, s, "%s", text)
}

// verdict prints what came of it, and fails if it is not as promised. On real
// nodes what was found on the disks counts, too.
func verdict(t *timeline, left, right *column, onRealNodes bool) error {
	rows := [][3]string{
		{"", "Kubernetes alone", "with csi-fencepost"},
		{"writes of two nodes mixed up", left.mixed(), right.mixed()},
		{"disk published to node-2", left.when(), right.when()},
		{"when it moved, node-1 ...", left.state(), right.state()},
		{"writers at the end", strings.Join(left.writersAtEnd, ", "), strings.Join(right.writersAtEnd, ", ")},
	}
	if onRealNodes {
		rows = append(rows, [3]string{"file system, by e2fsck", left.fileSystem(), right.fileSystem()}, [3]string{"database, by its own check", left.database(), right.database()})
	}
	t.verdict(rows)
	var wrong []error
	if onRealNodes && left.judged.Sound() {
		wrong = append(wrong, errors.New("alone, Kubernetes left disk and database sound, so this run proves nothing"))
	}
	if onRealNodes && !right.judged.Sound() {
		wrong = append(wrong, fmt.Errorf("with csi-fencepost: %s", right.judged))
	}
	if left.doubleWrites() == 0 {
		wrong = append(wrong, errors.New("alone, Kubernetes did not show the double publish, so this run proves nothing"))
	}
	if right.doubleWrites() > 0 || len(right.stage.Array.Violations()) > 0 {
		wrong = append(wrong, fmt.Errorf("with csi-fencepost the oracle saw %v", right.stage.Array.Violations()))
	}
	if right.moved == 0 || !right.cleanMove {
		wrong = append(wrong, errors.New("with csi-fencepost the disk did not move cleanly"))
	}
	if right.refusal == "" {
		wrong = append(wrong, errors.New("with csi-fencepost the pod was not told why it waited"))
	}
	if len(wrong) > 0 {
		fmt.Fprintf(t.out, "\n %s\n", t.paint(red, "NOT AS PROMISED"))
		return errors.Join(wrong...)
	}
	fmt.Fprintf(t.out, "\n %s csi-fencepost let the disk move only after the old node was proven to be\n without it: by one call, once the reason was gone.\n", t.paint(green, "AS PROMISED."))
	return nil
}

func (c *column) doubleWrites() int {
	n := 0
	for _, v := range c.stage.Array.Violations() {
		if v.Kind == array.DoubleWrite {
			n += v.Count
		}
	}
	return n
}

// fileSystem and database are what was found on the disk, in a word or two.
func (c *column) fileSystem() string {
	if c.judged.Damage == "" {
		return "sound"
	}
	return fmt.Sprintf("%d faults", c.judged.Faults())
}

func (c *column) database() string {
	switch d := c.judged.Database; {
	case d.Sound():
		return fmt.Sprintf("sound, %d commits read", d.Commits)
	case d.Missing != "":
		return "cannot be read"
	case d.Corrupt() > 0:
		return fmt.Sprintf("CORRUPT: %d of %d pages", d.Corrupt(), pages.Count)
	default:
		return fmt.Sprintf("CORRUPT: %d commits given twice", d.Twice)
	}
}

func (c *column) mixed() string {
	if n := c.doubleWrites(); n > 0 {
		return fmt.Sprintf("%d  (the database is corrupt)", n)
	}
	return "0"
}

func (c *column) when() string {
	if c.moved == 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f s after the taint", c.moved.Seconds())
}

func (c *column) state() string {
	switch {
	case c.moved == 0:
		return "-"
	case c.cleanMove:
		return "was off, its disk detached"
	}
	return "was writing"
}
