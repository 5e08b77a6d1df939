package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// maxOperations of a JSON patch (apiserver/pkg/endpoints/handlers/patch.go).
const maxOperations = 10000

// patchLocked is PATCH. As the patch is applied to the newest version, only one
// that names a resourceVersion itself can be in conflict.
func (s *Server) patchLocked(c *call) (*stored, error) {
	if s.tables[c.kind.id].objects[keyOf(c.Namespace, c.Name)] == nil {
		return nil, apierrors.NewNotFound(c.kind.resource(), c.Name)
	}
	out, _, err := s.updateLocked(updating{kind: c.kind, subresource: c.Subresource, manager: c.manager, namespace: c.Namespace, name: c.Name,
		change: func(old *stored) (Object, error) { return c.patched(old) }})
	return out, err
}

// patched is the object that the patch makes of the old one.
func (c *call) patched(old *stored) (Object, error) {
	text, err := c.applied(encode(c.kind, old, false))
	if err != nil {
		return nil, err
	}
	o := c.kind.empty()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, o); err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(text), err.Error())})
	}
	dropKind(o)
	if o.GetName() != c.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), c.Name))
	}
	if ns := o.GetNamespace(); ns != "" && ns != c.Namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	o.SetNamespace(c.Namespace)
	return o, nil
}

// applied is the JSON of the object after the patch, by the libraries that the
// API server uses.
func (c *call) applied(text []byte) ([]byte, error) {
	switch c.patch {
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(c.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(patch) > maxOperations {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(patch)))
		}
		if text, err = patch.Apply(text); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return text, nil
	case types.MergePatchType:
		text, err := jsonpatch.MergePatch(text, c.body)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return text, err
	default:
		return c.strategic(text)
	}
}

func (c *call) strategic(text []byte) ([]byte, error) {
	var patch map[string]any
	if err := json.Unmarshal(c.body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	text, err := strategicpatch.StrategicMergePatch(text, c.body, c.kind.empty())
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList):
		return nil, apierrors.NewBadRequest(err.Error())
	case err != nil:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return text, nil
}
