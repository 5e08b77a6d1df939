package kubeapi

import (
	"fmt"
	"strings"
)

// playedKind is one kind of objects to play with.
type playedKind struct {
	name, path string
	namespaced bool
	status     bool
	selectors  []string // of lists
	watched    []string // selectors of watches; the last object of a run is selected by all
	// make is an object of that name.
	make func(name string) map[string]any
	// spec and statusPatch are merge patches that may be valid or not.
	specs, statuses []string
}

func (k *playedKind) collection() string {
	if !k.namespaced {
		return k.path
	}
	i := strings.LastIndexByte(k.path, '/')
	return k.path[:i] + "/namespaces/default" + k.path[i:]
}

// everywhere is where all of them are: the real server has leases of its own in
// another namespace.
func (k *playedKind) everywhere() string {
	if k.name == "lease" {
		return k.collection()
	}
	return k.path
}

func (k *playedKind) key(name string) string {
	if k.namespaced {
		return "default/" + name
	}
	return "<nil>/" + name
}

func object(k *playedKind, apiVersion, kindName, name string, rest map[string]any) map[string]any {
	meta := map[string]any{"name": name, "labels": map[string]any{"of": k.name}}
	if k.namespaced {
		meta["namespace"] = "default"
	}
	o := map[string]any{"apiVersion": apiVersion, "kind": kindName, "metadata": meta}
	for field, value := range rest {
		o[field] = value
	}
	return o
}

type m = map[string]any

func kinds() []*playedKind {
	node := &playedKind{name: "node", path: "/api/v1/nodes", status: true, selectors: []string{"spec.unschedulable=true"}, watched: []string{"spec.unschedulable=false"},
		specs: []string{`{"spec":{"taints":[{"key":"k","value":"v","effect":"NoSchedule"}]}}`, `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"},{"key":"k","effect":"NoSchedule"}]}}`,
			`{"spec":{"taints":[]}}`, `{"spec":{"taints":[{"key":"k","effect":"Sometimes"}]}}`, `{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`,
			`{"spec":{"providerID":"p://1"}}`, `{"spec":{"providerID":"p://2"}}`},
		statuses: []string{`{"status":{"volumesInUse":["v1"]}}`, `{"status":{"volumesInUse":null,"volumesAttached":[{"name":"v1","devicePath":""}]}}`,
			`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`, `{"status":{"nodeInfo":{"bootID":"another"}}}`, `{"metadata":{"annotations":{"by":"status"}}}`}}
	node.make = func(name string) m {
		return object(node, "v1", "Node", name, m{"spec": m{}, "status": m{"conditions": []any{m{"type": "Ready", "status": "True"}}, "nodeInfo": m{"bootID": "b1", "systemUUID": "s1"}}})
	}
	pod := &playedKind{name: "pod", path: "/api/v1/pods", namespaced: true, status: true, selectors: []string{"spec.nodeName=node-a", "spec.nodeName!=node-a", "status.phase=Running", "spec.unknown=x"}, watched: []string{"spec.nodeName=node-a", "status.phase!=Running"},
		specs:    []string{`{"spec":{"nodeName":"node-c"}}`},
		statuses: []string{`{"status":{"phase":"Running"}}`, `{"status":{"phase":"Failed"}}`, `{"status":{"phase":"Pending","reason":"NodeLost"}}`}}
	pod.make = func(name string) m {
		spec := m{"containers": []any{m{"name": "c", "image": "image:1"}}, "terminationGracePeriodSeconds": 40, "automountServiceAccountToken": false}
		if name != "pod-c" {
			spec["nodeName"] = "node-" + name[len(name)-1:]
		}
		return object(pod, "v1", "Pod", name, m{"spec": spec})
	}
	pv := &playedKind{name: "pv", path: "/api/v1/persistentvolumes", status: true, selectors: []string{"metadata.name=pv-a"},
		specs: []string{`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`, `{"spec":{"csi":{"volumeHandle":"another"}}}`, `{"spec":{"volumeMode":"Block"}}`,
			`{"spec":{"claimRef":{"namespace":"default","name":"c"}}}`, `{"spec":{"accessModes":[]}}`},
		statuses: []string{`{"status":{"phase":"Bound"}}`, `{"status":{"phase":"Released"}}`}}
	pv.make = func(name string) m {
		return object(pv, "v1", "PersistentVolume", name, m{"spec": m{"capacity": m{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "csi": m{"driver": "d.example", "volumeHandle": name}}})
	}
	claim := &playedKind{name: "claim", path: "/api/v1/persistentvolumeclaims", namespaced: true, status: true, selectors: []string{"metadata.namespace=default"},
		specs:    []string{`{"spec":{"volumeName":"pv-a"}}`, `{"spec":{"accessModes":["ReadWriteMany"]}}`},
		statuses: []string{`{"status":{"phase":"Bound"}}`}}
	claim.make = func(name string) m {
		return object(claim, "v1", "PersistentVolumeClaim", name, m{"spec": m{"accessModes": []any{"ReadWriteOnce"}, "resources": m{"requests": m{"storage": "1Gi"}}, "storageClassName": ""}})
	}
	lease := &playedKind{name: "lease", path: "/apis/coordination.k8s.io/v1/leases", namespaced: true, selectors: []string{"metadata.name!=lease-a"},
		specs: []string{`{"spec":{"holderIdentity":"other"}}`, `{"spec":{"leaseDurationSeconds":0}}`, `{"spec":{"leaseTransitions":-1}}`, `{"spec":{"renewTime":"2026-01-02T03:04:05.000006Z"}}`}}
	lease.make = func(name string) m {
		return object(lease, "coordination.k8s.io/v1", "Lease", name, m{"spec": m{"holderIdentity": "me", "leaseDurationSeconds": 40}})
	}
	attachment := &playedKind{name: "attachment", path: "/apis/storage.k8s.io/v1/volumeattachments", status: true, selectors: []string{"metadata.name=attachment-b"},
		specs:    []string{`{"spec":{"nodeName":"another"}}`, `{"spec":{"attacher":"d.example"}}`},
		statuses: []string{`{"status":{"attached":true}}`, `{"status":{"attached":false,"attachError":{"message":"refused"}}}`, `{"metadata":{"annotations":{"by":"status"}},"status":{"attached":true}}`}}
	attachment.make = func(name string) m {
		return object(attachment, "storage.k8s.io/v1", "VolumeAttachment", name, m{"spec": m{"attacher": "d.example", "nodeName": "node-a", "source": m{"persistentVolumeName": "pv-a"}}})
	}
	csiNode := &playedKind{name: "csinode", path: "/apis/storage.k8s.io/v1/csinodes",
		specs: []string{`{"spec":{"drivers":[]}}`, `{"spec":{"drivers":[{"name":"d.example","nodeID":"another","topologyKeys":null}]}}`, `{"spec":{"drivers":[{"name":"d.example","nodeID":"id","topologyKeys":null},{"name":"e.example","nodeID":"id","topologyKeys":null}]}}`}}
	csiNode.make = func(name string) m {
		return object(csiNode, "storage.k8s.io/v1", "CSINode", name, m{"spec": m{"drivers": []any{m{"name": "d.example", "nodeID": "id", "topologyKeys": nil}}}})
	}
	driver := &playedKind{name: "driver", path: "/apis/storage.k8s.io/v1/csidrivers",
		specs: []string{`{"spec":{"podInfoOnMount":true}}`, `{"spec":{"attachRequired":false}}`}}
	driver.make = func(name string) m {
		return object(driver, "storage.k8s.io/v1", "CSIDriver", name, m{"spec": m{}})
	}
	event := &playedKind{name: "event", path: "/api/v1/events", namespaced: true, selectors: []string{"reason=R", "involvedObject.kind=Node"}, watched: []string{"reason=R"}, specs: []string{`{"count":2}`, `{"message":"other"}`}}
	event.make = func(name string) m {
		return object(event, "v1", "Event", name, m{"involvedObject": m{"kind": "Node", "name": "node-a"}, "reason": "R", "message": "words", "type": "Normal", "source": m{"component": "test"}, "count": 1})
	}
	return []*playedKind{node, pod, pv, claim, lease, attachment, csiNode, driver, event}
}

func nameOf(k *playedKind, i int) string { return fmt.Sprintf("%s-%c", k.name, 'a'+i) }
