package bed

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Secret makes a Secret in the stage's namespace, for VolumeOptions.Secret.
func (s *Stage) Secret(name string, data map[string]string) {
	s.T.Helper()
	_, err := s.Client.CoreV1().Secrets(s.Name).Create(s.ctx(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
	s.must("secret "+name, err)
}

// Told is the text, as JSON, of everything in which csi-fencepost tells people
// something: all Events, VolumeAttachments, PersistentVolumes with their
// ledgers, and the nodes' records.
func (s *Stage) Told() map[string]string {
	s.T.Helper()
	all, told := metav1.ListOptions{}, map[string]string{}
	add := func(what string, list any, err error) {
		s.T.Helper()
		s.must(what, err)
		text, err := json.Marshal(list)
		s.must(what, err)
		told[what] = string(text)
	}
	events, err := s.Client.CoreV1().Events(metav1.NamespaceAll).List(s.ctx(), all)
	add("Events", events, err)
	attachments, err := s.Client.StorageV1().VolumeAttachments().List(s.ctx(), all)
	add("VolumeAttachments", attachments, err)
	volumes, err := s.Client.CoreV1().PersistentVolumes().List(s.ctx(), all)
	add("PersistentVolumes", volumes, err)
	records, err := s.Client.CoordinationV1().Leases("csi-fencepost").List(s.ctx(), all)
	add("records", records, err)
	return told
}
