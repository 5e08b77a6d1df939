package apiserver

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// call is a request as it came in.
type call struct {
	Request
	kind    *kind
	proto   bool // answer as protobuf
	body    []byte
	content string // type of the body
	manager string // who is written down as the manager of fields

	patch     types.PatchType
	options   listOptions
	sent      Object                // of a Create or Update
	deletion  *metav1.DeleteOptions // of a Delete
	notCalled bool                  // the resource does not exist
}

// listOptions are those of reads.
type listOptions struct {
	version   uint64 // 0: any, unless newest
	newest    bool   // no version was asked for
	match     metav1.ResourceVersionMatch
	limit     int64
	next      *continuation
	initial   *bool // sendInitialEvents
	bookmarks bool
	labels    labels.Selector
	fields    fields.Selector
}

// unmodelled is a request that a real API server may well serve.
type unmodelled struct{ what string }

func (u *unmodelled) Error() string { return "not modelled: " + u.what }

func unmodelledf(format string, args ...any) error { return &unmodelled{fmt.Sprintf(format, args...)} }

// parse makes a call of a request. An error with a Status is the API server's own
// answer.
func (t *transport) parse(r *http.Request, body []byte) (*call, error) {
	c := &call{body: body}
	c.Client, c.Label = t.client, labelOf(r.Context())
	c.manager, _, _ = strings.Cut(r.UserAgent(), "/")
	c.Verb, c.Resource, c.Digest = Verb(strings.ToLower(r.Method)), r.URL.Path, digest(body)
	var err error
	if c.proto, err = negotiate(r.Header.Get("Accept")); err != nil {
		return c, err
	}
	for _, path := range t.server.absent {
		if r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/") {
			c.Resource, c.notCalled = path[strings.LastIndexByte(path, '/')+1:], true
			return c, nil
		}
	}
	if err := c.parsePath(r.URL.Path); err != nil {
		return c, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	if err := c.parseVerb(r, query); err != nil {
		return c, err
	}
	if err := c.parseQuery(query); err != nil {
		return c, err
	}
	return c, c.parseBody(r)
}

// negotiate takes the first of the accepted types that is modelled.
func negotiate(accept string) (proto bool, err error) {
	for _, a := range strings.Split(accept, ",") {
		switch strings.TrimSpace(a) {
		case runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf + ";stream=watch":
			return true, nil
		case runtime.ContentTypeJSON, runtime.ContentTypeJSON + ";stream=watch", "*/*", "":
			return false, nil
		}
	}
	return false, unmodelledf("Accept: %s", accept)
}

// parsePath understands /api/v1/… and /apis/GROUP/v1/…
func (c *call) parsePath(path string) error {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api" && parts[1] == "v1":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis" && parts[2] == "v1":
		group, parts = parts[1], parts[3:]
	default:
		return unmodelledf("the path %s", path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.Namespace, parts = parts[1], parts[2:]
		if parts[0] == "status" || parts[0] == "finalize" {
			return unmodelledf("the path %s", path)
		}
	}
	c.kind = kindsByPath[group+"/"+parts[0]]
	if c.kind == nil || len(parts) > 3 || !c.kind.namespaced && c.Namespace != "" {
		return unmodelledf("the path %s", path)
	}
	c.Resource = c.kind.plural
	if len(parts) > 1 {
		c.Name = parts[1]
	}
	if len(parts) > 2 {
		c.Subresource = parts[2]
		if c.Subresource != "status" || !c.kind.status {
			return unmodelledf("the subresource of %s", path)
		}
	}
	return nil
}

func (c *call) parseVerb(r *http.Request, query url.Values) error {
	one := c.Name != "" && (c.Namespace != "" || !c.kind.namespaced)
	all := c.Name == ""
	switch {
	case r.Method == http.MethodGet && one:
		c.Verb = Get
	case r.Method == http.MethodGet && all && (query.Get("watch") == "true" || query.Get("watch") == "1"):
		c.Verb = Watch
	case r.Method == http.MethodGet && all:
		c.Verb = List
	case r.Method == http.MethodPost && all && (c.Namespace != "") == c.kind.namespaced:
		c.Verb = Create
	case r.Method == http.MethodPut && one:
		c.Verb = Update
	case r.Method == http.MethodPatch && one:
		c.Verb = Patch
	case r.Method == http.MethodDelete && one && c.Subresource == "":
		c.Verb = Delete
	default:
		return unmodelledf("%s %s", r.Method, r.URL.Path)
	}
	if c.kind.plural == "namespaces" && c.Verb == Delete {
		return unmodelledf("the deletion of a namespace")
	}
	return nil
}

func (c *call) parseQuery(query url.Values) error {
	o := &c.options
	o.newest, o.labels, o.fields = true, labels.Everything(), fields.Everything()
	selector := ""
	var err error
	for name, values := range query {
		value := values[0]
		switch name {
		case "watch", "timeout", "timeoutSeconds", "pretty":
		case "fieldManager":
			c.manager = value
		case "fieldValidation":
			if value == metav1.FieldValidationStrict {
				return unmodelledf("fieldValidation=%s", value)
			}
		case "resourceVersion":
			if value != "" {
				o.newest = false
				if o.version, err = strconv.ParseUint(value, 10, 64); err != nil {
					return apierrors.NewBadRequest("invalid resource version " + strconv.Quote(value))
				}
			}
		case "resourceVersionMatch":
			o.match = metav1.ResourceVersionMatch(value)
		case "limit":
			if o.limit, err = strconv.ParseInt(value, 10, 64); err != nil {
				return apierrors.NewBadRequest(err.Error())
			}
		case "continue":
			if o.next, err = parseContinuation(value); err != nil {
				return apierrors.NewBadRequest(err.Error())
			}
		case "sendInitialEvents":
			o.initial = new(value == "true")
		case "allowWatchBookmarks":
			o.bookmarks = value == "true"
		case "labelSelector":
			if o.labels, err = labels.Parse(value); err != nil {
				return apierrors.NewBadRequest(err.Error())
			}
		case "fieldSelector":
			selector = value
		default:
			return unmodelledf("the parameter %s=%s", name, value)
		}
	}
	if err := c.checkOptions(); err != nil {
		return err
	}
	if o.fields, err = c.parseFields(selector); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if !c.Verb.Writes() {
		c.staleness()
		c.Digest = c.selection()
	}
	return nil
}

func (c *call) parseFields(text string) (fields.Selector, error) {
	if text == "" {
		return fields.Everything(), nil
	}
	s, err := fields.ParseSelector(text)
	if err != nil {
		return nil, err
	}
	for _, r := range s.Requirements() {
		if !c.kind.knows(r.Field) {
			return nil, fmt.Errorf("field label not supported: %s", r.Field)
		}
	}
	return s, nil
}

// staleness says from which states a read may be answered.
func (c *call) staleness() {
	o := &c.options
	exact := o.match == metav1.ResourceVersionMatchExact || c.Verb == List && o.match == "" && o.limit > 0 && o.version > 0
	switch {
	case c.Verb == Watch && o.initial == nil && o.version > 0: // from where exactly is said
	case o.newest || exact || o.next != nil:
	default:
		c.Stale, c.Floor = true, o.version
	}
}

// selection stands for what a read selects, apart from versions, which the
// description of a stale read and the events of a watch name, and from time limits.
func (c *call) selection() string {
	if c.options.labels.Empty() && c.options.fields.Empty() && c.options.next == nil {
		return ""
	}
	text := c.options.labels.String() + "|" + c.options.fields.String()
	if c.options.next != nil {
		text += "|" + c.options.next.String()
	}
	return digest([]byte(text))
}

// checkOptions are the API server's own rules
// (apimachinery/pkg/apis/meta/internalversion/validation).
func (c *call) checkOptions() error {
	o := &c.options
	wrong := ""
	switch {
	case o.match != "" && o.match != metav1.ResourceVersionMatchExact && o.match != metav1.ResourceVersionMatchNotOlderThan:
		wrong = "resourceVersionMatch: Unsupported value"
	case o.match != "" && o.next != nil:
		wrong = "resourceVersionMatch is forbidden when continue is provided"
	case c.Verb == List && o.initial != nil:
		wrong = "sendInitialEvents is forbidden for list"
	case c.Verb == List && o.match != "" && o.newest:
		wrong = "resourceVersionMatch is forbidden unless resourceVersion is provided"
	case c.Verb == List && o.match == metav1.ResourceVersionMatchExact && o.version == 0:
		wrong = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
	case c.Verb == Watch && o.initial != nil && o.match != metav1.ResourceVersionMatchNotOlderThan:
		wrong = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
	case c.Verb == Watch && o.initial == nil && o.match != "":
		wrong = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
	}
	if wrong == "" {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{field.Forbidden(field.NewPath("resourceVersionMatch"), wrong)})
}

func (c *call) parseBody(r *http.Request) error {
	c.content, _, _ = mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch c.Verb {
	case Create, Update:
		c.sent = c.kind.empty()
		if err := c.decode(c.sent, c.kind.kind, c.kind.apiVersion()); err != nil {
			return err
		}
		return c.checkNames()
	case Patch:
		c.patch = types.PatchType(c.content)
		switch c.patch {
		case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
			// Since Kubernetes 1.37 before the object is looked for.
			if !json.Valid(c.body) {
				return apierrors.NewBadRequest("invalid JSON patch")
			}
			return nil
		}
		return unmodelledf("a patch of the type %s", c.content)
	case Delete:
		c.deletion = &metav1.DeleteOptions{}
		if len(c.body) == 0 {
			return nil
		}
		return c.decodeDeleteOptions()
	}
	return nil
}

// checkNames holds the name and namespace of the body against those of the path.
func (c *call) checkNames() error {
	if ns := c.sent.GetNamespace(); ns != "" && ns != c.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	c.sent.SetNamespace(c.Namespace)
	switch name := c.sent.GetName(); {
	case c.Verb == Create:
		c.Name = name
		if name == "" && c.sent.GetGenerateName() == "" {
			return nil // found by the validation
		}
	case name == "":
		return apierrors.NewBadRequest("the name of the object (empty) does not match the name on the URL (" + c.Name + ")")
	case name != c.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, c.Name))
	}
	return nil
}

func digest(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	h := fnv.New32a()
	h.Write(body)
	return fmt.Sprintf("%08x", h.Sum32())
}
