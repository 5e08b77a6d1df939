package evidence

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Manager is the name under which the API server notes what csi-fencepost writes.
const Manager = "csi-fencepost"

// The API server stamps in an object's managedFields, by its own clock, when each
// writer last changed something in it, to the second (K apimachinery
// pkg/util/managedfields/internal/managedfieldsupdater.go). So two such stamps can be
// compared where the clocks of the writers cannot. On a control plane of v1.37:
//   - the kubelet keeps f:lastHeartbeatTime when the node controller writes Unknown, and
//     that one then owns f:status, f:reason, f:message and f:lastTransitionTime
//     (K node_lifecycle_controller.go, UpdateStatus of the Node);
//   - each renewal of a lease moves the stamp of its f:renewTime;
//   - a writer is named by its program, up to the first slash of its user agent
//     (K apiserver pkg/endpoints/handlers/create.go, prefixFromUserAgent).
//
// Limits: a stamp is of all that a writer owns, and the taints are one list. So whoever
// changes another taint, or the same writer something else of the Node, once the node is
// silent makes an old taint look new. API servers whose clocks differ shift the stamps.

// HeardAt is when the kubelet last wrote its heartbeat, by the API server's clock. What
// the kubelet itself wrote there is the same moment by its own clock, so the two tell
// the difference of the clocks (to the second). Zero where the stamp is missing.
func HeardAt(node *v1.Node) time.Time {
	for _, f := range node.ManagedFields {
		if _, ok := readyFields(f)["f:lastHeartbeatTime"]; ok && f.Time != nil {
			return f.Time.Time
		}
	}
	return time.Time{}
}

// RegisteredByKubelet tells whether a kubelet has registered the Node itself, so that what it says
// is that kubelet's own from the first moment: who gave it the label of its host name owns that, and is
// the program that has written the node's status since, which a person is not who makes a Node from
// a file, nor a program that restores one. (The API server keeps no owners of the status that a Node
// is registered with: K pkg/registry/core/node/strategy.go, GetResetFields.)
func RegisteredByKubelet(node *v1.Node) bool {
	// The API server stamps owners and the creation one after the other.
	before := node.CreationTimestamp.Add(-fence.StampResolution)
	since := func(f metav1.ManagedFieldsEntry) bool { return f.Time != nil && f.Time.After(before) }
	for _, f := range node.ManagedFields {
		if _, ok := labelFields(f)["f:"+v1.LabelHostname]; ok && since(f) {
			return slices.ContainsFunc(node.ManagedFields, func(status metav1.ManagedFieldsEntry) bool {
				return status.Manager == f.Manager && status.Subresource == "status" && since(status)
			})
		}
	}
	return false
}

// RenewedAt is when the lease was last renewed, by the API server's clock. Zero where
// the stamp is missing.
func RenewedAt(lease *coordinationv1.Lease) time.Time {
	for _, f := range lease.ManagedFields {
		if _, ok := specFields(f)["f:renewTime"]; ok && f.Time != nil {
			return f.Time.Time
		}
	}
	return time.Time{}
}

// taintedAfter tells whether somebody is known to have changed a Node's taints after
// the node was last heard: after its kubelet's heartbeat, and after the last renewal of
// its lease (an empty leaseRV: there is none). The list has one owner
// (listType=atomic, K api/core/v1/types.go, NodeSpec.Taints), so the node controller,
// which adds its own taint to the list of a node that falls silent, hides who wrote the
// others, and when; and so does csi-fencepost with its own.
func taintedAfter(node *v1.Node, leaseRV string, lease *coordinationv1.Lease) bool {
	heard := []time.Time{HeardAt(node)}
	if lease != nil {
		heard = append(heard, RenewedAt(lease))
	} else if leaseRV != "" {
		return false
	}
	found := false
	for _, f := range node.ManagedFields {
		if _, ok := specFields(f)["f:taints"]; !ok {
			continue
		}
		if f.Time == nil || f.Manager == Manager || nodeController(node, f.Manager) {
			return false
		}
		for _, at := range heard {
			if at.IsZero() || !f.Time.After(at) {
				return false
			}
		}
		found = true
	}
	return found
}

// taintWriter names who has written a Node's taints last; empty: nobody says.
func taintWriter(node *v1.Node) string {
	var names []string
	for _, f := range node.ManagedFields {
		if _, ok := specFields(f)["f:taints"]; ok {
			names = append(names, f.Manager)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// nodeController tells whether that writer is the node controller: by the name of the
// program, or, where all controllers are in a program of another name (k3s), because
// it has written whether the node is ready. No person does.
func nodeController(node *v1.Node, manager string) bool {
	if manager == "kube-controller-manager" {
		return true
	}
	for _, f := range node.ManagedFields {
		if _, ok := readyFields(f)["f:status"]; ok && f.Manager == manager {
			return true
		}
	}
	return false
}

// readyFields are the fields of a Node's Ready condition that a writer owns.
func readyFields(f metav1.ManagedFieldsEntry) map[string]json.RawMessage {
	var fields struct {
		Status struct {
			Conditions map[string]map[string]json.RawMessage `json:"f:conditions"`
		} `json:"f:status"`
	}
	if f.Subresource != "status" || f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	return fields.Status.Conditions[`k:{"type":"Ready"}`]
}

// labelFields are an object's labels that a writer owns.
func labelFields(f metav1.ManagedFieldsEntry) map[string]json.RawMessage {
	var fields struct {
		Metadata struct {
			Labels map[string]json.RawMessage `json:"f:labels"`
		} `json:"f:metadata"`
	}
	if f.Subresource != "" || f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	return fields.Metadata.Labels
}

// specFields are the fields of an object's spec that a writer owns.
func specFields(f metav1.ManagedFieldsEntry) map[string]json.RawMessage {
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	return fields.Spec
}
