package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

// 5,000 nodes are a screen, not 5,000 lines, and are judged in seconds, also where each is spoken of by its name.
func TestFiveThousandNodesAreAScreen(t *testing.T) {
	if testing.Short() {
		t.Skip("it puts 85,000 objects together")
	}
	const cloud = "failover: {enabled: true}\nfencing: {fenceAfter: 60s, levels: [{agents: [{name: cloud, exec: {agent: fence_x, parameters: {uuid: \"$(SYSTEM_UUID)\"}}}]}]}\n"
	w, _ := guarded(t, cloud, deploy.Failover)
	for i := range 5000 {
		name := fmt.Sprintf("node-%04d", i)
		n := w.node(name, block)
		if i%100 == 0 {
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		for j := range 4 {
			w.volume(fmt.Sprintf("pv-%d-%d", i, j), block, name, j%2 == 0)
		}
	}
	client := w.client()
	began := time.Now()
	d := w.lookWith(client, "")
	took := time.Since(began)
	began = time.Now()
	files := d.collect(t.Context()).files
	t.Logf("it took %s, and %s to collect a bundle with %d bytes of volumes", took, time.Since(began), len(files["objects/PersistentVolume.yaml"]))
	if lines := strings.Count(d.text(), "\n"); lines > 50 || took > 20*time.Second {
		t.Errorf("%d lines, in %s:\n%s", lines, took, d.text())
	}
	if len(d.Fates) != 1 || len(d.Fates[0].Nodes) != 5000 || d.Fates[0].Volumes != 20000 || d.Fates[0].Pods != 20000 || !strings.Contains(d.Fates[0].What, "of node NODE may be another") {
		t.Errorf("nodes that are alike are not together: %d groups\n%s", len(d.Fates), d.text())
	}
}
