package survey

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Whatever a Node says: it is Ready only with a condition that says True, its
// readiness is not known without one, and no taint is overlooked.
func FuzzNodeFacts(f *testing.F) {
	f.Add([]byte(`{"metadata":{"uid":"u","managedFields":[{"subresource":"status","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}}]},` +
		`"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service"}]},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","lastHeartbeatTime":"2026-01-02T03:04:05Z"}],"nodeInfo":{"bootID":"b"}}}`))
	f.Add([]byte(`{"metadata":{"managedFields":[{"subresource":"status","time":null},{"subresource":"status","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:status":null}}]},"status":{"conditions":[{"type":"Ready","status":"Unknown"},{"type":"Ready","status":"False"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var node corev1.Node
		if json.Unmarshal(text, &node) != nil {
			return
		}
		n := nodeFacts(&node)
		is := func(s corev1.ConditionStatus) bool {
			return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady && c.Status == s })
		}
		if n.Ready && !is(corev1.ConditionTrue) || n.Ready && n.ReadyUnknown {
			t.Errorf("it counts as Ready: %+v", n)
		}
		if !n.ReadyUnknown && !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }) {
			t.Error("nobody says whether it is Ready, and that counts as known")
		}
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if n.OutOfService != tainted || n.BootID != node.Status.NodeInfo.BootID || n.UID != string(node.UID) {
			t.Errorf("read as %+v", n)
		}
	})
}
