package survey

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// Whatever the API server says that a Node was: what is read of its past is of the machine and boot
// that it has now, each version older than the one after it; and a kubelet has let go only where those
// show that it did, while the controller had the volume attached, with it so and the kubelet heard in
// all of SyncTime before.
func FuzzPast(f *testing.F) {
	for _, past := range []string{"-@0 a@0 ua@75", "-@0 a@0 ua@74", "-@0 -@1 -@2 a@3 a@4 ua@79", "-@0 a@0 ua@10 a@30 ua@200", "-@0 a@0 ua@10 u@20 ua@200", "-@0 a@0 -@10 ua@200",
		"-@0 u@0 a@1 ua@200", "-@0 ua@200", "-?@0 a?@0 ua@75", "-@0 a@0 ua?@30 ua@75", "-@0 a@0! ua@200", "-@0 a@0 ua@10! ua@200", "a@0 ua@200", "ua@0 a@0 ua@200", "-@0 a@0 ua@-100 ua@200", "-@0"} {
		versions := versionsOf(past)
		for i, n := range versions {
			n.ResourceVersion = strconv.Itoa(10_000 - 10*i)
		}
		text, err := json.Marshal(versions)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add([]byte(strings.Replace(string(text), `"uid":"uid-old"`, `"uid":"another"`, 1)))
		f.Add([]byte(strings.ReplaceAll(string(text), `"9990"`, `"10000"`)))
		f.Add([]byte(strings.Replace(string(text), `"bootID":"boot-old"`, `"bootID":"before"`, 1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var said []*corev1.Node
		if json.Unmarshal(text, &said) != nil || len(said) == 0 || said[0] == nil {
			return
		}
		w, next := newWorld(t), 0
		w.client.PrependReactor("*", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetVerb() == "get" {
				return true, said[0].DeepCopy(), nil
			}
			list := &corev1.NodeList{}
			if next++; next < len(said) && said[next] != nil {
				list.Items = append(list.Items, *said[next].DeepCopy())
			}
			return true, list, nil
		})
		versions, err := (&gathering{Surveyor: w.Surveyor}).past(t.Context(), "old")
		w.must(err)
		at := func(n *corev1.Node) uint64 { v, _ := strconv.ParseUint(n.ResourceVersion, 10, 64); return v }
		for i := 1; i < len(versions); i++ {
			if n, now := versions[i], versions[i-1]; n.UID != now.UID || n.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID || at(n) >= at(now) {
				t.Errorf("version %d is of UID %q, boot %q at %q, and the one after it of UID %q, boot %q at %q", i, n.UID, n.Status.NodeInfo.BootID, n.ResourceVersion, now.UID, now.Status.NodeInfo.BootID, now.ResourceVersion)
			}
		}
		lists := func(n *corev1.Node) (inUse, attached bool) { return w.IDs.NodeLists(n, "vol-1") }
		if dropped, ok := letGo(versions, lists); ok && !shown(versions, lists, metav1.NewTime(dropped)) {
			t.Errorf("it has let go at %s by %s", dropped, text)
		}
	})
}

// shown: somewhere in the past the volume was attached and in use, in the version after that attached
// alone, written at dropped, and so on to where it was neither; before, it was attached and the kubelet
// heard in each version back to one that was written SyncTime sooner.
func shown(versions []*corev1.Node, lists func(*corev1.Node) (inUse, attached bool), dropped metav1.Time) bool {
	for last := 2; last < len(versions); last++ {
		inUse, attached := lists(versions[last])
		_, still := lists(versions[last-1])
		if !inUse || !attached || !still || !written(versions[last-1]).Equal(dropped.Time) {
			continue
		}
		ok, off := true, false // going on from there
		for i := last - 1; i >= 0; i-- {
			inUse, attached := lists(versions[i])
			off = off || !attached
			ok = ok && !inUse && attached != off
		}
		for i := last; ok && off && i < len(versions); i++ {
			if _, attached := lists(versions[i]); !attached || nodeFacts(versions[i]).ReadyUnknown {
				break
			}
			if since := written(versions[i]); !since.IsZero() && dropped.Sub(since) >= observe.SyncTime {
				return true
			}
		}
	}
	return false
}
