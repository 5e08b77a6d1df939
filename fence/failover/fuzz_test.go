package failover

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// A sign on a Node by which people, and programs of theirs, keep it from being fenced. Each is read here as
// docs/use/failover.md has it, and not by the code that is looked at.
type sign struct {
	brake Brake
	on    func(*corev1.Node) bool
}

var signs = []sign{
	{BrakeOptOut, func(n *corev1.Node) bool { return n.Annotations["csi-fencepost.io/failover"] == "false" }},
	{BrakeMaintenance, func(n *corev1.Node) bool {
		value, on := n.Annotations["csi-fencepost.io/maintenance"]
		return on && value != "false"
	}},
	{BrakeScaleDown, func(n *corev1.Node) bool {
		return n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "ToBeDeletedByClusterAutoscaler" })
	}},
	{BrakeCordoned, func(n *corev1.Node) bool { return n.Spec.Unschedulable }},
}

// Whatever stands on a Node, in its annotations, labels, taints and status: it is not fenced while one of
// the signs is on it, and nothing else that is written there keeps it from being fenced; one that opts out
// is left alone, one that lives loses neither pods nor gets our taint, no taint but ours is taken off or
// changed, and ours is put beside no other; nothing is done to pods without proof; and what is said of it
// commands no terminal.
func FuzzNode(f *testing.F) {
	add := func(change func(*corev1.Node)) {
		n := aNode("b17ab5e8-7d3c-4e6e-8a3f-000000000001", corev1.ConditionUnknown)
		change(n)
		text, err := json.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		for situation := range uint8(len(situations)) {
			f.Add(text, situation)
		}
	}
	annotated := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{key: value} }
	}
	add(func(*corev1.Node) {})
	add(annotated(OptOutAnnotation, "false"))
	add(annotated(OptOutAnnotation, "true"))
	add(annotated(MaintenanceAnnotation, "\x1b[2J"))
	add(annotated(MaintenanceAnnotation, "false"))
	add(annotated(MaintenanceAnnotation, ""))
	add(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	add(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)} })
	add(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: scaleDownTaint, Value: "1"}} })
	add(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taintOf("csi-fencepost")} })
	add(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{unexecuted()} })
	add(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taintOf("shutdown")} })
	add(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "csi-fencepost\n"}, {Key: "x", Value: "csi-fencepost"}}
	})
	add(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "" })
	add(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "17" })
	add(func(n *corev1.Node) { n.Status.NodeInfo.BootID, n.UID = "\x1b]0;x\a", "" })
	add(func(n *corev1.Node) {
		n.Labels, n.Status.Conditions = map[string]string{corev1.LabelTopologyZone: "a"}, nil
	})
	f.Fuzz(func(t *testing.T, text []byte, situation uint8) {
		var n corev1.Node
		if json.Unmarshal(text, &n) != nil {
			return
		}
		n.Name, n.ResourceVersion = "n1", "7" // a DNS label, and the API server's
		before := n.DeepCopy()
		s := situations[int(situation)%len(situations)]()
		if s.Node = &n; s.Fence != nil && s.Life == fence.Stale { // in the boot that it was fenced in
			s.Fence.NodeUID, s.Fence.BootID = string(n.UID), n.Status.NodeInfo.BootID
		}
		brake, words := OfNode(&n, false, false, "")
		if s.Brake, s.BrakeWords = brake, words; (brake == NoBrake) != (words == "") {
			t.Errorf("brake %q says %q", brake, words)
		}
		why, _ := unprovable(&n, false)
		var on []Brake
		for _, sign := range signs {
			if sign.on(&n) {
				on = append(on, sign.brake)
			}
		}
		switch {
		case why != "":
			if brake != BrakeNoProof {
				t.Errorf("%s, and the brake is %q", why, brake)
			}
		case len(on) == 0 && brake != NoBrake, len(on) > 0 && !slices.Contains(on, brake):
			t.Errorf("there is %q on it, and the brake is %q: %s", on, brake, words)
		}
		if storage, _ := OfNode(&n, true, true, ""); len(on) > 0 && !slices.Contains(on, storage) || len(on) == 0 && storage != NoBrake {
			t.Errorf("there is %q on it, and the brake of a storage fence is %q", on, storage)
		}
		if i := strings.IndexFunc(words, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("a terminal acts on %q", words)
		}

		does := map[step]bool{}
		for _, step := range plan(s) {
			does[step] = true
		}
		ofService := func(t corev1.Taint) bool { return t.Key == "node.kubernetes.io/out-of-service" }
		own := func(t corev1.Taint) bool { return ofService(t) && t.Value == "csi-fencepost" }
		ours := slices.ContainsFunc(n.Spec.Taints, own)
		proves := does[stepTaint] || does[stepEvict] || does[stepEmpty]
		for what, wrong := range map[string]bool{
			"a node is fenced with a brake on":          does[stepCut] && len(on) > 0,
			"a node that opts out is acted on":          slices.Contains(on, BrakeOptOut) && (does[stepCut] || proves || does[stepPowerOn]),
			"pods are moved without proof":              proves && s.Proof == "",
			"a node that lives is acted on":             s.Life == fence.Alive && s.Proof != fence.StorageFence && !s.early() && (does[stepCut] || proves),
			"our taint is put beside another":           does[stepTaint] && slices.ContainsFunc(n.Spec.Taints, ofService),
			"a taint that is not ours is taken off":     does[stepUntaint] && !ours,
			"a taint that is not ours deletes pods":     does[stepEmpty] && !ours,
			"a storage fence has the node's pods empty": s.Proof == fence.StorageFence && (does[stepEmpty] || does[stepTaint]),
		} {
			if wrong {
				t.Errorf("%s (%q)", what, plan(s))
			}
		}
		if !reflect.DeepEqual(before, &n) {
			t.Error("the Node that was read has been changed")
		}
	})
}

// situations are what else may be so of a node.
var situations = []func() *state{
	silent,
	func() *state { return proven(fence.PowerReading) },
	func() *state { return with(proven(fence.PowerReading), func(s *state) { s.Pods = []pod{} }) },
	func() *state { return proven(fence.StorageFence) },
	func() *state { return returned(fence.PowerReading, "boot-2") },
	func() *state { return returned(fence.StorageFence, "boot-2") },
	func() *state { return with(silent(), func(s *state) { s.Life = fence.Alive }) },
	func() *state { return with(silent(), func(s *state) { s.Life, s.Lease = fence.Unknown, nil }) },
}

// Whatever pods there are on a node, and claims in their namespaces, anybody's: a pod is moved only if a
// claim of its own namespace that it names is of a volume of the drivers, and with all of these; it stays
// if it, or one of these claims, opts out, and for nobody else's word; and none of another node, or that
// has ended, is.
func FuzzPods(f *testing.F) {
	add := func(pod, claim, other string) { f.Add([]byte(pod), []byte(claim), []byte(other)) }
	add(`{"spec":{"nodeName":"n1","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, `{"spec":{"volumeName":"ours-1"}}`, `{"spec":{"volumeName":"theirs"}}`)
	add(`{"metadata":{"annotations":{"csi-fencepost.io/failover":"false"}},"spec":{"nodeName":"n1","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, `{"spec":{"volumeName":"ours-1"}}`, `{}`)
	add(`{"spec":{"nodeName":"n1","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}},{"name":"c"},{"name":"w","persistentVolumeClaim":{"claimName":"none"}}]}}`,
		`{"metadata":{"annotations":{"csi-fencepost.io/failover":"false"}},"spec":{"volumeName":"ours-2"}}`, `{"spec":{"volumeName":"ours-1"}}`)
	add(`{"spec":{"nodeName":"n1","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, `{"spec":{"volumeName":""}}`, `{"metadata":{"annotations":{"csi-fencepost.io/failover":"false"}},"spec":{"volumeName":"ours-1"}}`)
	add(`{"spec":{"nodeName":"n1","volumes":[{"name":"v","ephemeral":{}}]}}`, `{"metadata":{"name":"p-v"},"spec":{"volumeName":"ours-1"}}`, `{}`)
	add(`{"spec":{"nodeName":"n2","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, `{"spec":{"volumeName":"ours-1"}}`, `{}`)
	add(`{"status":{"phase":"Succeeded"},"spec":{"nodeName":"n1","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, `{"spec":{"volumeName":"ours-1"}}`, `{}`)
	add(`{"metadata":{"annotations":{"csi-fencepost.io/failover":"false"}},"spec":{"nodeName":"n1"}}`, `{"spec":{"volumeName":"theirs"}}`, `{}`)
	add(`{"spec":{"nodeName":"n1","volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}}`, `{"spec":{"volumeName":"gone"}}`, `{}`)
	server, ids := apiserver.New(apiserver.Options{}), &csi.Identity{Driver: "d.example"}
	volume := func(name, driver string) {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h-" + name}
		apiserver.Put(server, pv)
	}
	volume("ours-1", ids.Driver)
	volume("ours-2", ids.Driver)
	volume("theirs", "other.example")
	apiserver.Put(server, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "other.example"}})
	client, tracker := kubernetes.NewForConfigOrDie(server.Config("test", nil)), observe.NewTracker(time.Minute, 1)
	index := watching(f, client, tracker, ids).Index(ids.Driver)
	c := New(Options{Client: client, Drivers: []Driver{{ids, index}}, Nodes: index, Lives: tracker, Fencer: &scripted{}, Metrics: &noted{}})
	f.Fuzz(func(t *testing.T, podText, claimText, otherText []byte) {
		var p corev1.Pod
		var claim, other corev1.PersistentVolumeClaim
		if json.Unmarshal(podText, &p) != nil || json.Unmarshal(claimText, &claim) != nil || json.Unmarshal(otherText, &other) != nil {
			return
		}
		// What the API server sees to.
		p.ObjectMeta = metav1.ObjectMeta{Namespace: "a", Name: "p", Annotations: p.Annotations}
		if claim.Name != "p-v" {
			claim.Name = "c"
		}
		claim.ObjectMeta = metav1.ObjectMeta{Namespace: "a", Name: claim.Name, Annotations: claim.Annotations}
		other.ObjectMeta = metav1.ObjectMeta{Namespace: "b", Name: claim.Name, Annotations: other.Annotations}
		apiserver.Put(server, &p)
		apiserver.Put(server, &claim)
		apiserver.Put(server, &other)
		defer func() {
			now := int64(0)
			for _, err := range []error{apiserver.Remove[*corev1.Pod](server, "a", "p", metav1.DeleteOptions{GracePeriodSeconds: &now}),
				apiserver.Remove[*corev1.PersistentVolumeClaim](server, "a", claim.Name, metav1.DeleteOptions{}), apiserver.Remove[*corev1.PersistentVolumeClaim](server, "b", claim.Name, metav1.DeleteOptions{})} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}()
		pods, kept, err := (&worker{Controller: c, name: "n1"}).podsOf(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		counts, names := p.Spec.NodeName == "n1" && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed", 0
		stays, ofOurs, foreign := p.Annotations["csi-fencepost.io/failover"] == "false", 0, false
		for _, v := range p.Spec.Volumes {
			named := ""
			if v.PersistentVolumeClaim != nil {
				named = v.PersistentVolumeClaim.ClaimName
			} else if v.Ephemeral != nil {
				named = "p-" + v.Name
			}
			if named != "" {
				names++
			}
			if named != claim.Name {
				continue
			}
			stays = stays || claim.Annotations["csi-fencepost.io/failover"] == "false"
			switch claim.Spec.VolumeName {
			case "ours-1", "ours-2":
				ofOurs++
			case "":
			default:
				foreign = true
			}
		}
		if moves := counts && ofOurs > 0; moves != (len(pods) == 1) || len(pods) > 1 {
			t.Fatalf("%d pods are to be moved, and it is one to be moved: %t", len(pods), moves)
		} else if !moves {
			if want := counts && stays; kept != want {
				t.Errorf("a pod stays: %t, and should: %t (of %d claims)", kept, want, names)
			}
			return
		}
		if one := pods[0]; one.OptedOut != stays || len(one.PVs) != ofOurs || one.PVs[0] != claim.Spec.VolumeName || (len(one.Foreign) > 0) != foreign {
			t.Errorf("it opts out %t, has %q and besides %q, and should %t, have %s, and others %t", one.OptedOut, one.PVs, one.Foreign, stays, claim.Spec.VolumeName, foreign)
		}
	})
}
