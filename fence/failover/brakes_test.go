package failover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

func fair() *weather {
	w := &weather{Now: time.Unix(100_000, 0), Node: aNode("boot-1", corev1.ConditionUnknown), Waiting: 1, MaxConcurrent: 1, MaxUnhealthy: 0.4,
		Zones: map[string]string{}, Holding: map[string]bool{}}
	for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
		w.Zones[n] = "a"
	}
	return w
}

func fencedAgo(node string, ago time.Duration) fencer.Fence {
	return fencer.Fence{Node: node, Cut: true, At: time.Unix(100_000, 0).Add(-ago)}
}

// storageCut has a driver's sidecar cut the node off from its storage just now, and the node hold
// a volume of it.
func storageCut(w *weather, driver string, change func(*fencer.Fence)) {
	f := fencedAgo("n1", time.Second)
	f.Kind, f.Driver, f.Others, f.Vouched, f.NodeUID, f.BootID = fence.StorageFence, driver, true, true, string(w.Node.UID), w.Node.Status.NodeInfo.BootID
	if change != nil {
		change(&f)
	}
	w.Fences, w.Holders = append(w.Fences, f), append(w.Holders, driver)
}

func TestBrakes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*weather)
		want   Brake
		words  string
	}{
		"fair weather":         {func(*weather) {}, NoBrake, ""},
		"there is no Node":     {func(w *weather) { w.Node = nil }, BrakeNodeGone, "Node object is gone"},
		"no proof could count": {func(w *weather) { w.Node.Status.NodeInfo.BootID = "" }, BrakeNoProof, "reports no boot ID"},
		"boots are counted, and it has a system UUID": {func(w *weather) { counted(w, "system-1", false) }, NoBrake, ""},
		"boots are counted, and another has its UUID": {func(w *weather) { counted(w, "system-1", true) }, BrakeNoProof, "boot IDs are counts"},
		"boots are counted, and there is no UUID":     {func(w *weather) { counted(w, "", false) }, BrakeNoProof, "boot IDs are counts"},
		"no agent is told which machine it is":        {func(w *weather) { w.Withheld = "agent vm is not told" }, BrakeNoProof, "agent vm is not told"},
		"no proof, but a storage fence":               {func(w *weather) { w.Node.Status.NodeInfo.BootID, w.StorageOnly = "", true }, NoBrake, ""},
		"the Node opts out":                           {func(w *weather) { annotate(w, OptOutAnnotation, "false") }, BrakeOptOut, OptOutAnnotation},
		"any other value is no opt-out":               {func(w *weather) { annotate(w, OptOutAnnotation, "true") }, NoBrake, ""},
		"maintenance":                                 {func(w *weather) { annotate(w, MaintenanceAnnotation, "disk swap") }, BrakeMaintenance, "maintenance"},
		"maintenance with no value":                   {func(w *weather) { annotate(w, MaintenanceAnnotation, "") }, BrakeMaintenance, "maintenance"},
		"maintenance is over":                         {func(w *weather) { annotate(w, MaintenanceAnnotation, "false") }, NoBrake, ""},
		"cordoned":                                    {func(w *weather) { w.Node.Spec.Unschedulable = true }, BrakeCordoned, "kubectl uncordon n1"},
		"another is about to be fenced":               {func(w *weather) { w.Ahead = []string{"n2"} }, BrakeConcurrent, "n2"},
		"one more is, of two":                         {func(w *weather) { w.Ahead, w.MaxConcurrent, w.MaxUnhealthy = []string{"n2"}, 2, 0.8 }, NoBrake, ""},
		"and of another zone": {func(w *weather) {
			w.Ahead, w.MaxConcurrent, w.MaxUnhealthy, w.Zones["n2"] = []string{"n2"}, 2, 0.8, "b"
		}, BrakeZone, "n2 in zone b"},
		"and as many as an hour may have": {func(w *weather) { w.Ahead, w.MaxConcurrent, w.MaxUnhealthy = []string{"n2"}, 2, 0.2 }, BrakeHourly, ""},
		"it is on record already": {func(w *weather) {
			w.Ahead, w.MaxConcurrent, w.MaxUnhealthy, w.Holding["n2"] = []string{"n2"}, 2, 0.4, true
			w.Fences = []fencer.Fence{fencedAgo("n2", time.Second)}
		}, NoBrake, ""},
		"being deleted":        {func(w *weather) { w.Node.DeletionTimestamp = &metav1.Time{Time: w.Now} }, BrakeScaleDown, "deleted"},
		"being scaled down":    {func(w *weather) { w.Node.Spec.Taints = []corev1.Taint{{Key: scaleDownTaint}} }, BrakeScaleDown, "autoscaler"},
		"nobody waits":         {func(w *weather) { w.Waiting = 0 }, BrakeNothingWaits, "no pod"},
		"a storm":              {func(w *weather) { w.Storm = "4 of 5 nodes" }, BrakeStorm, "4 of 5 nodes"},
		"our own lead is late": {func(w *weather) { w.Lead = "not renewed for 8s" }, BrakeLead, "not renewed for 8s"},
		"another node is being fenced": {func(w *weather) {
			w.Fences, w.Holding["n2"] = []fencer.Fence{fencedAgo("n2", time.Minute)}, true
		}, BrakeConcurrent, "n2"},
		"two at a time are allowed": {func(w *weather) {
			w.MaxConcurrent, w.Fences, w.Holding["n2"] = 2, []fencer.Fence{fencedAgo("n2", time.Minute)}, true
		}, NoBrake, ""},
		"the other's volumes have moved": {func(w *weather) { w.Fences = []fencer.Fence{fencedAgo("n2", time.Minute)} }, NoBrake, ""},
		"the other is stuck for long":    {func(w *weather) { w.Fences, w.Holding["n2"] = []fencer.Fence{fencedAgo("n2", 6*time.Minute)}, true }, NoBrake, ""},
		"the other is back": {func(w *weather) {
			f := fencedAgo("n2", time.Minute)
			f.Void = "back"
			w.Fences, w.Holding["n2"] = []fencer.Fence{f}, true
		}, NoBrake, ""},
		"the other was found off": {func(w *weather) {
			f := fencedAgo("n2", time.Minute)
			f.Cut = false
			w.Fences, w.Holding["n2"] = []fencer.Fence{f}, true
		}, NoBrake, ""},
		"its own earlier fence": {func(w *weather) { w.Fences, w.Holding["n1"] = []fencer.Fence{fencedAgo("n1", time.Minute)}, true }, NoBrake, ""},
		// A kubelet that claims another machine, and then the next, has one at most.
		"its own earlier fence, as another machine": {func(w *weather) { w.Fences = []fencer.Fence{cutAs(w, "11111111-2222-3333-4444-555555555555", "")} }, BrakeHourly, "as another machine (system UUID 11111111-"},
		"as another machine, by its node ID":        {func(w *weather) { w.Fences = []fencer.Fence{cutAs(w, "", "id-of-n2")} }, BrakeHourly, "as another machine (node ID id-of-n2)"},
		"as another machine in the same boot, while it has two": {func(w *weather) {
			w.MaxUnhealthy, w.Fences = 1, []fencer.Fence{cutAs(w, "11111111-2222-3333-4444-555555555555", "")}
			w.Fences[0].BootID = w.Node.Status.NodeInfo.BootID
		}, BrakeHourly, ""},
		"as the same machine, in another boot, with one an hour": {func(w *weather) {
			w.MaxUnhealthy, w.Fences = 0.2, []fencer.Fence{cutAs(w, "AAAAAAAA-2222-3333-4444-555555555555", "id-1")}
		}, NoBrake, ""},
		"as another machine, and no agent goes by what a Node says of its machine": {func(w *weather) {
			w.Fences, w.Seeks = []fencer.Fence{cutAs(w, "11111111-2222-3333-4444-555555555555", "id-0")}, false
		}, NoBrake, ""},
		"as its name, before its driver had said its node ID": {func(w *weather) { w.Fences = []fencer.Fence{cutAs(w, "", "n1")} }, NoBrake, ""},
		"as nobody knows which machine":                       {func(w *weather) { w.Fences = []fencer.Fence{cutAs(w, "", "")} }, NoBrake, ""},
		"as another machine, earlier": {func(w *weather) {
			w.Fences = []fencer.Fence{cutAs(w, "11111111-2222-3333-4444-555555555555", "")}
			w.Fences[0].At = w.Now.Add(-61 * time.Minute)
		}, NoBrake, ""},
		"as another machine, found off": {func(w *weather) {
			w.Fences = []fencer.Fence{cutAs(w, "11111111-2222-3333-4444-555555555555", "")}
			w.Fences[0].Cut = false
		}, NoBrake, ""},
		// A kubelet cannot replace its Node: the machine that failed was replaced.
		"as another machine under another Node": {func(w *weather) {
			w.Fences = []fencer.Fence{cutAs(w, "11111111-2222-3333-4444-555555555555", "id-0")}
			w.Fences[0].NodeUID = "uid-0"
		}, NoBrake, ""},
		"its driver has cut its storage":                           {func(w *weather) { storageCut(w, "a", nil) }, BrakeStorage, "the sidecars of a have cut it off"},
		"so have all of its drivers":                               {func(w *weather) { storageCut(w, "a", nil); storageCut(w, "b", nil) }, BrakeStorage, "the sidecars of a, b have"},
		"one of two drivers has":                                   {func(w *weather) { storageCut(w, "a", nil); w.Holders = append(w.Holders, "b") }, NoBrake, ""},
		"its driver's storage fence, 5 minutes later":              {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.At = w.Now.Add(-inFlight) }) }, NoBrake, ""},
		"its driver's storage fence, for which nobody vouches":     {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.Vouched = false }) }, NoBrake, ""},
		"its driver's storage fence, that is over":                 {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.Void = "lifted" }) }, NoBrake, ""},
		"its driver's storage fence, that is being lifted":         {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.Lifting = true }) }, NoBrake, ""},
		"its driver's storage fence, of an earlier boot":           {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.BootID = "boot-0" }) }, NoBrake, ""},
		"its driver's storage fence, of an earlier Node":           {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.NodeUID = "uid-0" }) }, NoBrake, ""},
		"its driver's storage fence of another node":               {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.Node = "n2" }) }, NoBrake, ""},
		"its storage fence by this very process":                   {func(w *weather) { storageCut(w, "a", func(f *fencer.Fence) { f.Others = false }) }, NoBrake, ""},
		"its storage is cut, and it holds volumes of none of ours": {func(w *weather) { storageCut(w, "a", nil); w.Holders = nil }, NoBrake, ""},
		"40 % of five within the hour": {func(w *weather) {
			w.Fences = []fencer.Fence{fencedAgo("n2", 10*time.Minute), fencedAgo("n3", 59*time.Minute)}
		}, BrakeHourly, "2 nodes were fenced"},
		"one of them was earlier": {func(w *weather) {
			w.Fences = []fencer.Fence{fencedAgo("n2", 10*time.Minute), fencedAgo("n3", 61*time.Minute)}
		}, NoBrake, ""},
		"a void fence counts in the hour": {func(w *weather) {
			w.Fences = []fencer.Fence{fencedAgo("n2", 10*time.Minute), {Node: "n3", Cut: true, At: w.Now, Void: "back"}}
		}, BrakeHourly, ""},
		"another zone is being fenced": {func(w *weather) {
			w.MaxConcurrent, w.Zones["n2"] = 5, "b"
			w.Fences, w.Holding["n2"] = []fencer.Fence{fencedAgo("n2", time.Minute)}, true
		}, BrakeZone, "n2 in zone b"},
		"one that could not be cut anew is not being fenced": {func(w *weather) { w.Fences, w.Holding["n2"] = []fencer.Fence{beingLifted("n2")}, true }, NoBrake, ""},
		"nor in another zone": {func(w *weather) {
			w.Zones["n2"], w.Fences, w.Holding["n2"] = "b", []fencer.Fence{beingLifted("n2")}, true
		}, NoBrake, ""},
		"but counts in the hour": {func(w *weather) {
			w.Fences = []fencer.Fence{beingLifted("n2"), fencedAgo("n3", 10*time.Minute)}
		}, BrakeHourly, "2 nodes were fenced"},
		"five tries at one node are one node in the hour": {func(w *weather) {
			for range 5 {
				f := fencedAgo("n2", time.Minute)
				f.Void = "fence f2 took its place"
				w.Fences = append(w.Fences, f)
			}
		}, NoBrake, ""},
		"a node fenced in two ways is one": {func(w *weather) {
			w.MaxConcurrent, w.Holding["n2"] = 2, true
			w.Fences = []fencer.Fence{fencedAgo("n2", time.Minute), fencedAgo("n2", 2*time.Minute)}
		}, NoBrake, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := fair()
			c.change(w)
			b, words := w.brake()
			if b != c.want || !strings.Contains(words, c.words) || (b == NoBrake) != (words == "") {
				t.Errorf("brake = %q, %q; want %q with %q", b, words, c.want, c.words)
			}
		})
	}
}

// cutAs is a fence of the weather's own Node, which named that machine then and names another now.
func cutAs(w *weather, system, id string) fencer.Fence {
	w.Seeks = true
	w.Node.Status.NodeInfo.SystemUUID, w.NodeIDs = "aaaaaaaa-2222-3333-4444-555555555555", map[string]string{"d": "id-1"}
	f := fencedAgo("n1", 10*time.Minute)
	f.NodeUID, f.SystemUUID, f.Void = string(w.Node.UID), system, "back"
	if id != "" {
		f.NodeIDs = map[string]string{"d": id, "e": "of another driver"}
	}
	return f
}

func beingLifted(node string) fencer.Fence {
	f := fencedAgo(node, time.Minute)
	f.Lifting = true
	return f
}

func annotate(w *weather, key, value string) { w.Node.Annotations = map[string]string{key: value} }

func TestPerHourIsAShareOfTheNodesAndAlwaysOne(t *testing.T) {
	for nodes, want := range map[int]int{0: 1, 1: 1, 2: 1, 4: 1, 5: 2, 10: 4, 100: 40} {
		if got := perHour(nodes, 0.4); got != want {
			t.Errorf("perHour(%d, 0.4) = %d, want %d", nodes, got, want)
		}
	}
}

// counted is a Windows node: its boot ID is a count. shared: another Node reports its system UUID.
func counted(w *weather, system string, shared bool) {
	w.Node.Status.NodeInfo.BootID, w.Node.Status.NodeInfo.SystemUUID, w.Shared = "12", system, shared
}
