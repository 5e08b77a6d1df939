package ledger

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const patchType = types.JSONPatchType

// operation of a JSON patch (RFC 6902). The API server applies all of a patch
// or, when one test fails, answers 422 and applies nothing.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

var annotationPath = "/metadata/annotations/" + strings.ReplaceAll(Annotation, "/", "~1")

// exchange is the patch that sets the annotation from what was read to text (nil: takes
// it off). It is tested by its text, and the PV by its resourceVersion: RFC 6902 has no
// test for what is absent, such as an annotation or a deletionTimestamp.
func exchange(from *corev1.PersistentVolume, was page, text *string) []byte {
	ops := []operation{{"test", "/metadata/uid", string(from.UID)}}
	ops = append(ops, operation{"test", "/metadata/resourceVersion", from.ResourceVersion})
	if was.there {
		ops = append(ops, operation{"test", annotationPath, was.text})
	}
	if text == nil {
		ops = append(ops, operation{Op: "remove", Path: annotationPath})
	} else {
		if len(from.Annotations) == 0 {
			ops = append(ops, operation{"add", "/metadata/annotations", map[string]string{}})
		}
		ops = append(ops, operation{"add", annotationPath, *text})
	}
	out, err := json.Marshal(ops)
	if err != nil {
		panic(err) // strings only
	}
	return out
}
