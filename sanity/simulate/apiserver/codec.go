package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// magic is before every object in protobuf
// (apimachinery/pkg/runtime/serializer/protobuf).
const magic = "k8s\x00"

// envelope puts an object's protobuf into a runtime.Unknown that names its kind.
func envelope(apiVersion, kind string, proto []byte) []byte {
	out := make([]byte, 0, len(magic)+len(apiVersion)+len(kind)+len(proto)+16)
	out = append(out, magic...)
	meta := protowire.SizeBytes(len(apiVersion)) + protowire.SizeBytes(len(kind)) + 2
	out = protowire.AppendTag(out, 1, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(meta))
	out = appendBytes(out, 1, apiVersion)
	out = appendBytes(out, 2, kind)
	return appendBytes(out, 2, proto)
}

func appendBytes[T string | []byte](out []byte, number protowire.Number, value T) []byte {
	out = protowire.AppendTag(out, number, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(len(value)))
	return append(out, value...)
}

// encode is an object as a client gets it. The server's lock is held.
func (c *call) encode(o *stored) []byte { return encode(c.kind, o, c.proto) }

func encode(k *kind, o *stored, proto bool) []byte {
	if proto {
		return envelope(k.apiVersion(), k.kind, o.proto)
	}
	return withKind(k.kind, k.apiVersion(), o.json())
}

// withKind puts kind and apiVersion into a JSON object.
func withKind(kind, apiVersion string, text []byte) []byte {
	out := make([]byte, 0, len(text)+len(kind)+len(apiVersion)+32)
	out = append(out, `{"kind":"`...)
	out = append(out, kind...)
	out = append(out, `","apiVersion":"`...)
	out = append(out, apiVersion...)
	out = append(out, '"')
	if len(text) > 2 {
		out = append(out, ',')
	}
	return append(out, text[1:]...)
}

// encodeList puts together what the objects' own encodings say. In all lists of
// Kubernetes the metadata is field 1, the items are field 2.
func (c *call) encodeList(items []*stored, meta metav1.ListMeta) []byte {
	if c.proto {
		head, err := meta.Marshal()
		if err != nil {
			panic(err) // strings and numbers only
		}
		size := len(head) + 8
		for _, o := range items {
			size += len(o.proto) + 8
		}
		out := appendBytes(make([]byte, 0, size), 1, head)
		for _, o := range items {
			out = appendBytes(out, 2, o.proto)
		}
		return envelope(c.kind.apiVersion(), c.kind.kind+"List", out)
	}
	head, err := json.Marshal(meta)
	if err != nil {
		panic(err) // strings and numbers only
	}
	out := bytes.NewBufferString(`{"metadata":`)
	out.Write(head)
	out.WriteString(`,"items":[`)
	for i, o := range items {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(o.json())
	}
	out.WriteString("]}")
	return withKind(c.kind.kind+"List", c.kind.apiVersion(), out.Bytes())
}

// encodeStatus is a Status as a client gets it.
func encodeStatus(status *metav1.Status, proto bool) []byte {
	if proto {
		out, err := status.Marshal()
		if err != nil {
			panic(err) // strings and numbers only
		}
		return envelope("v1", "Status", out)
	}
	out, err := json.Marshal(status)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return withKind("Status", "v1", out)
}

// decode reads the body of a Create or Update.
func (c *call) decode(into Object, kind, apiVersion string) error {
	switch c.content {
	case runtime.ContentTypeProtobuf:
		raw, ok := bytes.CutPrefix(c.body, []byte(magic))
		var u runtime.Unknown
		if !ok || u.Unmarshal(raw) != nil {
			return apierrors.NewBadRequest("the body is not a Kubernetes object in protobuf")
		}
		if u.Kind != kind || u.APIVersion != apiVersion {
			return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", u.Kind, u.APIVersion, kind))
		}
		if err := into.Unmarshal(u.Raw); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	case runtime.ContentTypeJSON, "":
		if err := kjson.UnmarshalCaseSensitivePreserveInts(c.body, into); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		gvk := into.GetObjectKind().GroupVersionKind()
		if (gvk.Kind != "" && gvk.Kind != kind) || (gvk.Version != "" && gvk.GroupVersion().String() != apiVersion) {
			return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", gvk.Kind, gvk.GroupVersion(), kind))
		}
		dropKind(into)
	default:
		return unmodelledf("a body of the type %s", c.content)
	}
	return nil
}

func (c *call) decodeDeleteOptions() error {
	switch c.content {
	case runtime.ContentTypeProtobuf:
		raw, ok := bytes.CutPrefix(c.body, []byte(magic))
		var u runtime.Unknown
		if !ok || u.Unmarshal(raw) != nil || c.deletion.Unmarshal(u.Raw) != nil {
			return apierrors.NewBadRequest("the body is not DeleteOptions in protobuf")
		}
	case runtime.ContentTypeJSON, "":
		if err := kjson.UnmarshalCaseSensitivePreserveInts(c.body, c.deletion); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	default:
		return unmodelledf("a body of the type %s", c.content)
	}
	//lint:ignore SA1019 what is deprecated can still be asked for
	if d := c.deletion; len(d.DryRun) > 0 || d.OrphanDependents != nil || d.PropagationPolicy != nil && *d.PropagationPolicy != metav1.DeletePropagationBackground {
		return unmodelledf("the deletion options %s", d)
	}
	return nil
}

// dropKind leaves out kind and apiVersion, which stored objects do not carry.
func dropKind(o Object) { o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) }

// respond makes an HTTP answer.
func respond(r *http.Request, code int, contentType string, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: http.Header{"Content-Type": {contentType}},
		Body:   body, ContentLength: length, Request: r,
	}
}

func contentType(proto, stream bool) string {
	switch {
	case proto && stream:
		return runtime.ContentTypeProtobuf + ";stream=watch"
	case proto:
		return runtime.ContentTypeProtobuf
	default:
		return runtime.ContentTypeJSON
	}
}
