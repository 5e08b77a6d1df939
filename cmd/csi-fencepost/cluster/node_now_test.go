package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// A machine of one template that was installed anew may be another one: a person has to be
// able to speak of the one before.
func TestAHoldingIsOlderWhereTheSystemUUIDThatWouldTellIsShared(t *testing.T) {
	node := func(name, system string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-1"}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-2", SystemUUID: system, MachineID: "installed-2"}
		return n
	}
	h := Holding{Driver: "disk.example.com", Machine: fence.Machine{NodeName: "n1", NodeUID: "uid-1", NodeID: "id-1", BootID: "boot-1", SystemUUID: "system-1", MachineID: "installed-1"}}
	for system, older := range map[string]bool{"SYSTEM-1": true, "system-2": false} {
		now := &Node{Name: "n1", Node: node("n1", "system-1")}
		if err := now.askShared(t.Context(), fake.NewClientset(now.Node, node("n2", system)), []Holding{h}); err != nil {
			t.Fatal(err)
		}
		if got := now.IsOlder(h); got != older {
			t.Errorf("the other Node reports %s: older: %v, want %v", system, got, older)
		}
	}
}
