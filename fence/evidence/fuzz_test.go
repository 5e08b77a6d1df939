package evidence

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
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
