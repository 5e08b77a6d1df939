package scenarios

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
	"github.com/csi-fencepost/csi-fencepost/sanity/scenarios/outcome"
)

// all scenarios, in the order of the catalogue.
var all = slices.Concat(plain, partitions, failovers, fencedPartitions)

// plain scenarios need nothing but Go.
var plain = slices.Concat(origins[1:], cutOff, everyday, life, holders, crashes, kubelets, calls, field, operators, switched, secrets, stuck)

// TestScenario plays each of them with csi-fencepost.
func TestScenario(t *testing.T) { playAll(t, slices.Concat(plain, injected)) }

// TestPartition plays those in which a node's network is cut. They need root.
func TestPartition(t *testing.T) { playAll(t, partitions) }

// TestFailover plays those in which csi-fencepost asks and uses fence agents, and
// moves pods. They need what `make deps` installs.
func TestFailover(t *testing.T) { playAll(t, failovers) }

// TestFailoverPartition plays those that need root besides.
func TestFailoverPartition(t *testing.T) { playAll(t, fencedPartitions) }

// playAll plays those that are not known to fail, beside each other and beside those of
// other tests, as many at once as -parallel says. Of subtests that wait to run in parallel, package testing
// begins the last one first: the closing of a channel wakes those who wait on it in
// that order.
func playAll(t *testing.T, scenarios []scenario) {
	t.Parallel()
	book, err := outcome.Open(outcomesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range longestLast(unmarked(scenarios), book) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s", s.rule)
			t.Logf("outcome: %s", runScenario(t, s, false))
		})
	}
}

// longestLast orders scenarios by the longest that each took with csi-fencepost on
// short clocks when the catalogue was made, so that no long one is begun when the
// others have ended. One that was never played comes last: nobody knows.
func longestLast(scenarios []scenario, book *outcome.Book) []scenario {
	took := map[string]float64{}
	for _, o := range book.All() {
		if o.Clocks == outcome.Short && !o.Alone {
			took[o.Story] = max(took[o.Story], o.Seconds)
		}
	}
	ordered := slices.Clone(scenarios)
	slices.SortStableFunc(ordered, func(a, b scenario) int {
		x, known := took[a.name]
		y, alsoKnown := took[b.name]
		switch {
		case known && !alsoKnown:
			return -1
		case alsoKnown && !known:
			return 1
		}
		return cmp.Compare(x, y)
	})
	return ordered
}

func TestTheLongestScenarioIsBegunFirst(t *testing.T) {
	book, err := outcome.Open(t.TempDir() + "/outcomes.json")
	if err != nil {
		t.Fatal(err)
	}
	for story, seconds := range map[string]float64{"short": 10, "long": 100} {
		if err := book.Put(outcome.Outcome{Story: story, Kubernetes: "v1.36.3", Clocks: outcome.Short, Commit: "abc", Began: time.Unix(1, 0), Seconds: seconds, Text: "it moved"}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, s := range longestLast([]scenario{{name: "long"}, {name: "new"}, {name: "short"}}, book) {
		names = append(names, s.name)
	}
	if !slices.Equal(names, []string{"short", "long", "new"}) {
		t.Errorf("in the order %q", names)
	}
}

// TestScenarioNamesAreUnique keeps two scenarios from sharing a stage.
func TestScenarioNamesAreUnique(t *testing.T) {
	names, stages := map[string]bool{}, map[string]bool{}
	for _, s := range everyStory {
		stage := s.stageName()
		if names[s.name] || stages[stage] || s.rule == "" || strings.ToLower(s.name) != s.name || len(stage) > 14 {
			t.Errorf("scenario %q: its name or its stage's (%q) is taken, too long or not in lower case, or it has no rule", s.name, stage)
		}
		names[s.name], stages[stage] = true, true
	}
}

// TestAnEndedStoryLeavesNothingThatOthersWouldWatch: its nodes, volumes and
// attachments are off the control plane that it shared with the others.
func TestAnEndedStoryLeavesNothingThatOthersWouldWatch(t *testing.T) {
	t.Parallel()
	b, name := sharedBed(t), "ended"
	t.Run("story", func(t *testing.T) {
		s := b.Stage(t, name, bed.StageOptions{Nodes: 1})
		db := s.Pod("db", s.Nodes[0], s.Volume("disk", bed.VolumeOptions{}))
		db.WaitRunning(60 * time.Second)
		if left := leftOf(t, b, name); len(left) != 4 {
			t.Errorf("while it runs there is %q, want a Node, a PersistentVolume, a VolumeAttachment and a pod", left)
		}
	})
	for began, watch := time.Now(), pace.Start(); len(leftOf(t, b, name)) > 0; bed.Pause(began) {
		if watch.Counted() > 30*time.Second {
			t.Fatalf("half a minute after its end there is still %q", leftOf(t, b, name))
		}
	}
}

// leftOf are the objects of a stage of that name.
func leftOf(t *testing.T, b *bed.Bed, name string) (left []string) {
	t.Helper()
	client, every := b.Cluster.Client(), metav1.ListOptions{}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), every)
	volumes, failed := client.CoreV1().PersistentVolumes().List(t.Context(), every)
	attachments, fails := client.StorageV1().VolumeAttachments().List(t.Context(), every)
	pods, no := client.CoreV1().Pods(name).List(t.Context(), every)
	if err := errors.Join(err, failed, fails, no); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if strings.HasPrefix(n.Name, name+"-") {
			left = append(left, "Node "+n.Name)
		}
	}
	for _, v := range volumes.Items {
		if strings.HasPrefix(v.Name, name+"-") {
			left = append(left, "PersistentVolume "+v.Name)
		}
	}
	for _, a := range attachments.Items {
		if strings.HasPrefix(a.Spec.NodeName, name+"-") {
			left = append(left, "VolumeAttachment "+a.Name)
		}
	}
	for _, p := range pods.Items {
		left = append(left, "Pod "+p.Name)
	}
	return left
}
