package bed

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastLines of csi-fencepost's log that a failed story shows.
const lastLines = 12

// decisions are the lines of csi-fencepost's log that say what it decided, what lets it watch
// the nodes anew, and what its fence agents read.
var decisions = regexp.MustCompile(`(?m)^.*"(Decided|Took over|Storm: |Every node's lease|Fence agents answered|Failover is tried again).*$`)

// tellIfFailed logs what csi-fencepost decided last, and what the API server says of the
// stage, of a story that failed: what was waited for in vain is most often told by a pod's
// conditions or a node's taints.
func (s *Stage) tellIfFailed() {
	if !s.T.Failed() {
		return
	}
	if s.Fencepost != nil {
		text, err := os.ReadFile(s.Fencepost.LogFile())
		if err != nil {
			s.T.Logf("%s: the log of csi-fencepost cannot be read: %v", s.Name, err)
		}
		said := decisions.FindAllString(string(text), -1)
		for _, line := range said[max(0, len(said)-lastLines):] {
			s.T.Logf("%s: csi-fencepost: %s", s.Name, line)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pods, err := s.Client.CoreV1().Pods(s.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.T.Logf("%s: the pods cannot be listed: %v", s.Name, err)
		return
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		s.T.Logf("%s: pod %s on %q, %s, deleting: %t%s", s.Name, p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp != nil, unmet(p.Status.Conditions))
	}
	nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		s.T.Logf("%s: the nodes cannot be listed: %v", s.Name, err)
		return
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; strings.HasPrefix(n.Name, s.Name+"-") {
			s.T.Logf("%s: node %s, cordoned: %t, taints %v, in use %v%s", s.Name, n.Name, n.Spec.Unschedulable, n.Spec.Taints, n.Status.VolumesInUse, readiness(n))
		}
	}
	attachments, err := s.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		s.T.Logf("%s: the VolumeAttachments cannot be listed: %v", s.Name, err)
		return
	}
	for i := range attachments.Items {
		if va := &attachments.Items[i]; va.Spec.Attacher == s.Driver {
			s.T.Logf("%s: VolumeAttachment to %s, attached: %t%s", s.Name, va.Spec.NodeName, va.Status.Attached, detaching(va))
		}
	}
}

func detaching(va *storagev1.VolumeAttachment) (text string) {
	if va.DeletionTimestamp != nil {
		text = "; deleted at " + va.DeletionTimestamp.UTC().Format(time.TimeOnly)
	}
	for _, e := range []*storagev1.VolumeError{va.Status.AttachError, va.Status.DetachError} {
		if e != nil {
			text += fmt.Sprintf("; at %s: %s", e.Time.UTC().Format(time.TimeOnly), e.Message)
		}
	}
	return text
}

func unmet(conditions []corev1.PodCondition) (text string) {
	for _, c := range conditions {
		if c.Status != corev1.ConditionTrue {
			text += fmt.Sprintf("; %s %s: %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}

func readiness(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return fmt.Sprintf("; Ready %s since %s", c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly))
		}
	}
	return ""
}
