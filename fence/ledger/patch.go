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

// exchange is the patch that sets the annotation from what was read to text
// (nil: takes it off). An annotation is tested by its text, so that others may
// change the rest of the PV; the absence of one only by the PV's
// resourceVersion, because RFC 6902 has no test for it.
func exchange(from *corev1.PersistentVolume, was page, text *string) []byte {
	ops := []operation{{"test", "/metadata/uid", string(from.UID)}}
	switch {
	case was.there && text != nil:
		ops = append(ops, operation{"test", annotationPath, was.text}, operation{"replace", annotationPath, *text})
	case was.there:
		ops = append(ops, operation{"test", annotationPath, was.text}, operation{Op: "remove", Path: annotationPath})
	default:
		ops = append(ops, operation{"test", "/metadata/resourceVersion", from.ResourceVersion})
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
