package evidence

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// answers is an API server that answers every request with one text.
type answers struct{ text []byte }

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(a.text))}, nil
}

func answering(t *testing.T, text []byte) rest.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: answers{text}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().RESTClient()
}

// words are the strings in a JSON text, in any place.
func words(text []byte) (all []string) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if err != nil {
			return all
		}
		if s, ok := token.(string); ok {
			all = append(all, s)
		}
	}
}

func items(objects ...map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": "5"}, "items": objects})
	if err != nil {
		panic(err)
	}
	return text
}

// Whatever stands in the NetworkFence objects: they count only if somebody wrote
// there that each address of the machine is fenced, by this driver, with success.
func FuzzNetworkFences(f *testing.F) {
	f.Add(items(nf("a", nil, "192.0.2.1/32", "2001:db8::1/128")))
	f.Add(items(nf("a", nil, "192.0.2.0/24"), nf("b", func(spec, _ map[string]any) { spec["fenceState"] = "Unfenced" }, "2001:db8::/32")))
	f.Add(items(nf("a", func(_, status map[string]any) { status["message"] = unfencedMessage }, "::ffff:192.0.2.1", "0.0.0.0/0", "::/0")))
	f.Add([]byte(`{"items":[{"spec":null},null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		w := &world{t: t, node: machine("u1", "b1", "50"), leaseRV: "70",
			holder: fence.Holder{NodeID: "id1", NodeName: "n1", NodeUID: "u1", BootID: "b1", State: fence.Publishing}}
		w.node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeExternalIP, Address: "2001:db8::1"}}
		s := NetworkFences(driver, answering(t, text), &says{reading: listed})
		found, err := s.Evidence(t.Context(), Question{Holder: w.holder, Volume: volume, Driver: driver, Node: w.node, LeaseRV: w.leaseRV})
		if err != nil && found != nil {
			t.Errorf("an error and evidence: %v, %+v", err, found)
		}
		for _, e := range found {
			if e.Void != "" {
				continue
			}
			said := words(text)
			for _, word := range []string{"Fenced", "Succeeded", fencedMessage, driver} {
				if !slices.Contains(said, word) {
					t.Errorf("it counts, and nobody wrote %q: %+v", word, e)
				}
			}
			for _, address := range []string{"192.0.2.1/32", "2001:db8::1/128"} {
				block, _ := addons.ParseBlock(address)
				if !addons.Covers(hostBlocks(said), block) {
					t.Errorf("it counts, and nobody wrote a block with %s: %+v", address, e)
				}
			}
		}
	})
}

// Whatever stands in medik8s' objects: they count only of the node that they
// name, and only with their operator's own word of success.
func FuzzRemediations(f *testing.F) {
	for _, o := range operators {
		f.Add(items(object("n1", "r1", o.claims()), object("n2", "r2", o.claims())))
		f.Add(items(object("n1", "r1", o.pending())))
	}
	f.Add(items(object("x", "r1", map[string]any{"annotations": map[string]any{remediatedNode: "n1"}})))
	f.Add([]byte(`{"items":[{"metadata":{"name":"n1","uid":"r"},"status":{"conditions":[{"type":"FenceAgentActionSucceeded","status":true}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		client, said := answering(t, text), words(text)
		for _, o := range operators {
			s := o.source(client, Records{Actor: "fuzz", ReadOnly: true})
			holder := fence.Holder{NodeID: "id1", NodeName: "n1", NodeUID: "u1", BootID: "b1", State: fence.Publishing}
			found, err := s.Evidence(t.Context(), Question{Holder: holder, Volume: volume, Driver: driver, Node: machine("u1", "b1", "50"), LeaseRV: "70"})
			if err != nil && found != nil {
				t.Errorf("an error and evidence: %v, %+v", err, found)
			}
			success := slices.Contains(said, "FenceAgentActionSucceeded") && slices.Contains(said, "True")
			if s.kind == fence.SelfNodeRemediation {
				success = slices.Contains(said, "Reboot-Completed") || slices.Contains(said, "Fencing-Completed")
			}
			if len(found) > 0 && (!success || !slices.Contains(said, "n1")) {
				t.Errorf("it counts, and no operator said so of n1: %+v", found)
			}
		}
	})
}

// Whatever the writers' stamps of a Node and its lease say: a taint is later than the node's
// last word only if somebody else than the controllers is stamped to have written it then, and
// nobody is named who does not write it.
func FuzzTaintedAfter(f *testing.F) {
	f.Add([]byte(`{"metadata":{"managedFields":[{"manager":"kubelet","subresource":"status","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}},`+
		`{"manager":"kubectl","time":"2026-01-02T03:05:05Z","fieldsV1":{"f:spec":{"f:taints":{}}}}]}}`),
		[]byte(`{"metadata":{"managedFields":[{"manager":"kubelet","time":"2026-01-02T03:04:06Z","fieldsV1":{"f:spec":{"f:renewTime":{}}}}]}}`))
	f.Add([]byte(`{"metadata":{"managedFields":[{"manager":"kube-controller-manager","time":null,"fieldsV1":{"f:spec":{"f:taints":null}}},{"fieldsV1":{"f:spec":[]}},{"fieldsV1":"f:taints"}]}}`),
		[]byte(`{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:renewTime":{}}}}]}}`))
	for _, node := range []string{ // nobody is stamped to have heard the node; or when the taint was written
		`{"metadata":{"managedFields":[{"manager":"kubectl","time":"2026-01-02T03:05:05Z","fieldsV1":{"f:spec":{"f:taints":{}}}}]}}`,
		`{"metadata":{"managedFields":[{"manager":"kubelet","subresource":"status","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}},` +
			`{"manager":"kubectl","fieldsV1":{"f:spec":{"f:taints":{}}}}]}}`,
	} {
		f.Add([]byte(node), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, text, leaseText []byte) {
		var node v1.Node
		var lease coordinationv1.Lease
		if json.Unmarshal(text, &node) != nil || json.Unmarshal(leaseText, &lease) != nil {
			return
		}
		writes := func(name string, after time.Time) bool {
			return slices.ContainsFunc(node.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
				return e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte("taints")) && (name == "" || e.Manager == name) &&
					(after.IsZero() || e.Time != nil && e.Time.After(after) && e.Manager != Manager && e.Manager != "kube-controller-manager")
			})
		}
		for at, l := range map[time.Time]*coordinationv1.Lease{RenewedAt(&lease): &lease, {}: nil} {
			if !taintedAfter(&node, "", l) {
				continue
			}
			if heard := HeardAt(&node); heard.IsZero() || l != nil && at.IsZero() || !writes("", heard) || l != nil && !writes("", at) {
				t.Errorf("heard at %s, lease at %s: %s", heard, at, text)
			}
		}
		if taintedAfter(&node, "1", nil) {
			t.Error("the lease was not read, and the taint counts as later than that")
		}
		if names := taintWriter(&node); names != "" && !slices.ContainsFunc(node.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return strings.Contains(names, e.Manager) && writes(e.Manager, time.Time{})
		}) {
			t.Errorf("%q writes the taints", names)
		}
	})
}
