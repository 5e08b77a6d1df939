package bed

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotate puts an annotation on the Node; an empty value takes it off.
func (n *Node) Annotate(key, value string) {
	n.stage.T.Helper()
	n.update(func(node *corev1.Node) {
		if value == "" {
			delete(node.Annotations, key)
			return
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	})
}

// Annotate puts an annotation on the pod.
func (p *Pod) Annotate(key, value string) {
	p.stage.T.Helper()
	_, err := p.stage.Client.CoreV1().Pods(p.stage.Name).Patch(p.stage.ctx(), p.Name, types.MergePatchType, annotation(key, value), metav1.PatchOptions{})
	p.stage.must("annotation of pod "+p.Name, err)
}

// AnnotateClaim puts an annotation on the volume's claim.
func (v *Volume) AnnotateClaim(key, value string) {
	v.stage.T.Helper()
	_, err := v.stage.Client.CoreV1().PersistentVolumeClaims(v.stage.Name).Patch(v.stage.ctx(), v.Claim(), types.MergePatchType, annotation(key, value), metav1.PatchOptions{})
	v.stage.must("annotation of claim "+v.Claim(), err)
}

func annotation(key, value string) []byte {
	return []byte(`{"metadata":{"annotations":{` + quote(key) + `:` + quote(value) + `}}}`)
}
