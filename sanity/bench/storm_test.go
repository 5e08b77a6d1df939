package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

func TestAStormThatDoesNotFitIsNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-storm-volumes=0":                  "more than 0",
		"-storm-takers=-1":                  "more than 0",
		"-storm-nodes=9":                    "a machine takes 100",
		"-storm-takers=9":                   "a machine takes 100",
		"-storm-limits=400":                 "begin with --",
		"-storm-kinds=quick,quicker":        `no kind "quicker"`,
		"-storm-volumes=301 -storm-nodes=3": "-storm-volumes=301 are too many",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
	o, err := parse([]string{"-only=storm", "-storm-volumes=300", "-storm-nodes=3", "-storm-takers=3", "-storm-kinds=slow", "-storm-limits=--kube-api-qps=400,--kube-api-burst=800"})
	if err != nil || !reflect.DeepEqual(o.stormKinds, []string{"slow"}) {
		t.Errorf("a storm that fits: %+v, %v", o, err)
	}
	if got := o.stormCommand(); got != " -storm-volumes=300 -storm-nodes=3 -storm-takers=3 -storm-kinds=slow -storm-limits=--kube-api-qps=400,--kube-api-burst=800" {
		t.Errorf("its command line ends with %q", got)
	}
}

func TestEachVolumeOfAStormHasOnePodOfOneStatefulSet(t *testing.T) {
	o := stormOptions{stormVolumes: 120}
	pods := map[string]bool{}
	for i := range o.stormVolumes {
		pods[podName(i)] = true
		if got := podOf(volumeOf(podName(i))); got != podName(i) {
			t.Errorf("the volume of %s belongs to %s", podName(i), got)
		}
	}
	made := 0
	for set := range o.stormSets() {
		for i := range replicas(o.stormVolumes, set) {
			made++
			if name := fmt.Sprintf("%s-%d", setName(set), i); !pods[name] { // as a StatefulSet calls it
				t.Errorf("no volume is made for pod %s", name)
			}
		}
	}
	if made != 120 || len(pods) != 120 || o.stormSets() != 3 {
		t.Errorf("%d pods in %d StatefulSets, %d names; want 120 in 3", made, o.stormSets(), len(pods))
	}
}

func TestThePeakIsTheBusiestSecondWhereverItBegins(t *testing.T) {
	from := time.Unix(100, 0)
	at := func(milliseconds ...int) (list []time.Time) {
		for _, ms := range milliseconds {
			list = append(list, from.Add(time.Duration(ms)*time.Millisecond))
		}
		return list
	}
	for _, c := range []struct {
		at   []time.Time
		want int
	}{
		{nil, 0},
		{at(0), 1},
		{at(0, 999), 2},
		{at(0, 1000), 1}, // the window is one second, its end left out
		{at(0, 900, 1100, 1800, 2500), 3},
	} {
		if got := peak(c.at, time.Second); got != c.want {
			t.Errorf("%v: %d in the busiest second, want %d", c.at, got, c.want)
		}
	}
}

func TestRequestsAreThoseOfTheAccountWithinTheStorm(t *testing.T) {
	folder := t.TempDir()
	line := func(at, user, verb string) string {
		return `{"verb":"` + verb + `","user":{"username":"system:serviceaccount:` + user + `"},"objectRef":{"resource":"nodes"},"requestReceivedTimestamp":"` + at + `"}` + "\n"
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("audit-rotated.log", line("2026-01-01T00:00:00.000000Z", "guarded:x", "get")+line("2026-01-01T00:00:10.500000Z", "guarded:x", "get"))
	half := line("2026-01-01T00:00:12.000000Z", "guarded:x", "get")
	write("audit.log", line("2026-01-01T00:00:11.000000Z", "guarded:x", "patch")+line("2026-01-01T00:00:11.000000Z", "guarded:x", "watch")+
		line("2026-01-01T00:00:11.000000Z", "kube-system:x", "get")+line("2026-01-01T00:00:21.000000Z", "guarded:x", "get")+half[:len(half)/2])
	from := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	got, err := requestsOf(filepath.Join(folder, "audit.log"), "guarded", from, from.Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if want := (tally{"get nodes": 1, "patch nodes": 1}); !reflect.DeepEqual(got.kinds, want) || len(got.at) != 2 || got.at[1].Before(got.at[0]) {
		t.Errorf("found %v at %v, want %v in order", got.kinds, got.at, want)
	}
}

// As external-attacher 4.13 serves them.
const attacherMetrics = `# HELP csi_sidecar_operations_seconds [ALPHA] Container Storage Interface operation duration with gRPC error code status total
# TYPE csi_sidecar_operations_seconds histogram
csi_sidecar_operations_seconds_bucket{driver_name="d",grpc_status_code="OK",method_name="/csi.v1.Controller/ControllerPublishVolume",migrated="false",le="0.1"} 3
csi_sidecar_operations_seconds_sum{driver_name="d",grpc_status_code="OK",method_name="/csi.v1.Controller/ControllerPublishVolume",migrated="false"} 1.5
csi_sidecar_operations_seconds_count{driver_name="d",grpc_status_code="OK",method_name="/csi.v1.Controller/ControllerPublishVolume",migrated="false"} 3
csi_sidecar_operations_seconds_bucket{driver_name="d",grpc_status_code="Aborted",method_name="/csi.v1.Controller/ControllerUnpublishVolume",migrated="false",le="0.1"} 1
csi_sidecar_operations_seconds_bucket{driver_name="d",grpc_status_code="Aborted",method_name="/csi.v1.Controller/ControllerUnpublishVolume",migrated="false",le="0.25"} 2
csi_sidecar_operations_seconds_sum{driver_name="d",grpc_status_code="Aborted",method_name="/csi.v1.Controller/ControllerUnpublishVolume",migrated="false"} 0.25
csi_sidecar_operations_seconds_count{driver_name="d",grpc_status_code="Aborted",method_name="/csi.v1.Controller/ControllerUnpublishVolume",migrated="false"} 2
csi_sidecar_operations_seconds_bucket{driver_name="d",grpc_status_code="FailedPrecondition",method_name="/csi.v1.Controller/ControllerPublishVolume",le="0.1"} 2
csi_sidecar_operations_seconds_sum{driver_name="d",grpc_status_code="FailedPrecondition",method_name="/csi.v1.Controller/ControllerPublishVolume"} 0.15
csi_sidecar_operations_seconds_count{driver_name="d",grpc_status_code="FailedPrecondition",method_name="/csi.v1.Controller/ControllerPublishVolume"} 2
csi_sidecar_operations_seconds_count{driver_name="d",grpc_status_code="OK",method_name="/csi.v1.Controller/ListVolumes",migrated="false"} 70
`

func TestWhatWaitsIsEveryCallForAVolumeThatWasNotAnsweredWithYes(t *testing.T) {
	now, err := parseWorkerTime(strings.NewReader(attacherMetrics))
	if err != nil {
		t.Fatal(err)
	}
	if ok := now["OK"]; ok.calls != 3 || ok.seconds != 1.5 {
		t.Errorf("answered with yes: %+v, want the 3 publishes of 1.5 s", ok)
	}
	all, codes := now.waiting()
	if all.calls != 4 || math.Abs(all.seconds-.4) > 1e-9 || all.quick != 3 || codes != "Aborted × 2, FailedPrecondition × 2" {
		t.Errorf("waiting: %+v (%s)", all, codes)
	}
	if again := now.since(now); len(again) != 0 {
		t.Errorf("nothing happened since, and that is %v", again)
	}
	if text := waitingWords(now); text != "4 of 7, on average each held a worker for 100 ms, 75 % of them for at most 100 ms (Aborted × 2, FailedPrecondition × 2)" {
		t.Errorf("in words: %s", text)
	}
}

func TestTheDriversCallsAreCountedFromThePowersEndOn(t *testing.T) {
	off := time.Unix(1000, 0)
	call := func(method string, from, to float64) array.Call {
		at := func(s float64) time.Time { return off.Add(time.Duration(s * float64(time.Second))) }
		c := array.Call{Method: method, Start: at(from)}
		if to > 0 {
			c.End = at(to)
		}
		return c
	}
	calls := []array.Call{
		call(array.Publish, -1, 5), // before
		call(array.Unpublish, 1, 2), call(array.Publish, 1.5, 2.5), call(array.Publish, 2, 3),
		call("ListVolumes", 1, 9),
		call(array.Unpublish, 2.7, 0), // hangs
	}
	n, atOnce, seconds := callsSince(calls, off)
	if n != 4 || atOnce != 2 || seconds != 3 {
		t.Errorf("%d calls, %d at once, %v s; want 4, 2 (one ends as another begins), 3 s", n, atOnce, seconds)
	}
}

func TestTheTimesOfAStormCountFromThePowersEndOfTheirOwnNode(t *testing.T) {
	w := &stormSight{dying: map[string]*stormNode{"m1": {}}, records: map[string]string{}, pods: map[string]stormPod{}, notReady: func(string) {}}
	pod := func(name, uid, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	}
	w.podChanged(pod("db-0-0", "1", "m1", corev1.PodRunning))
	if w.count(true) != 1 || w.count(false) != 0 {
		t.Fatal("a pod on a node that dies is not counted there")
	}
	if node := w.powerOff()["db-0-0"]; node != "m1" {
		t.Errorf("at the power's end db-0-0 was on %q", node)
	}
	w.podChanged(pod("db-0-0", "2", "t1", corev1.PodPending)) // before the old one is seen to go
	w.podGone(pod("db-0-0", "1", "m1", corev1.PodRunning))
	if w.count(false) != 0 {
		t.Error("a pod that is pending elsewhere counts as running")
	}
	w.podChanged(pod("db-0-0", "2", "t1", corev1.PodRunning))
	runs, _ := w.runs()
	since := runs["db-0-0"]
	w.podChanged(pod("db-0-0", "2", "t1", corev1.PodRunning))
	if again, _ := w.runs(); w.count(false) != 1 || again["db-0-0"] != since {
		t.Errorf("running since %s, then since %s", since, again["db-0-0"])
	}
}

func TestFiguresOfASideStandBesideTheirRatio(t *testing.T) {
	own, other := &stormSample{moved: []float64{1, 2, 4}}, &stormSample{moved: []float64{2, 3, 5, 8}}
	f := stormFigures[1]
	if got := f.words(own, own); got != "1.0 / 2.0 / 4.0 s" {
		t.Errorf("own: %s", got)
	}
	if got := f.words(other, own); got != "2.0 / 4.0 / 8.0 s (× 2.0 / 2.0 / 2.0)" {
		t.Errorf("beside it: %s", got)
	}
}

func TestTheCoresShareIsOfTheTimeSinceTheFirstProof(t *testing.T) {
	from := time.Unix(1000, 0)
	n := time.Duration(runtime.NumCPU()) * time.Second
	looks := []coreLook{{from, 0, 0}, {from.Add(10 * time.Second), n, n / 2}, {from.Add(12 * time.Second), 2 * n, n / 2}, {from.Add(20 * time.Second), 9 * n, n * 5 / 2}}
	share, err := shareSince(looks, from.Add(11*time.Second))
	if err != nil || share != (coreShare{busy: 0.8, own: 0.25}) {
		t.Errorf("%+v, %v; want 80 %% busy, a quarter of that one's own", share, err)
	}
	for _, at := range []time.Duration{-time.Second, 15 * time.Second, time.Minute} {
		if share, err := shareSince(looks, from.Add(at)); err == nil {
			t.Errorf("since %s: %+v of looks that do not tell", at, share)
		}
	}
	a, err := lookAtCores(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := used(t); used(t)-began < 200*time.Millisecond; { // however long it takes to be given that
	}
	b, err := lookAtCores(os.Getpid())
	if own := b.own - a.own; err != nil || own < 150*time.Millisecond || b.busy-a.busy < own/2 {
		t.Errorf("busy for 0.2 s, and counted %s of its own, %s of the machine's, %v", own, b.busy-a.busy, err)
	}
}

// used is the CPU time of this process, as the kernel tells it itself.
func used(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
