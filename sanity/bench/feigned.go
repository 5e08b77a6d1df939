package main

import (
	bigendian "encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// feigned is an API server that shows a cluster too large for a real one on this
// machine: over HTTP/2 and TLS, in protobuf, it streams the lists of the kinds that
// are watched (WatchList), or hands them out in pages, and then renews leases and
// Nodes as kubelets do. To all else it answers 404.
type feigned struct {
	*cluster
	*httptest.Server
	churns  atomic.Bool
	version atomic.Int64
	// How many were renewed so far, one after the other.
	leases, statuses atomic.Int64
}

// As kubelets do.
const (
	leaseEvery  = 10 * time.Second
	statusEvery = 5 * time.Minute
)

func feign(c *cluster) *feigned {
	f := &feigned{cluster: c}
	f.version.Store(1000)
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.EnableHTTP2 = true
	f.StartTLS()
	return f
}

// kubeconfig writes one for it.
func (f *feigned) kubeconfig(path string) error {
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, f.URL)
	return os.WriteFile(path, []byte(text), 0o600)
}

type protobuf interface{ Marshal() ([]byte, error) }

// enveloped is an object as the API server sends it.
func enveloped(apiVersion, kind string, obj protobuf) []byte {
	raw, err := obj.Marshal()
	if err != nil {
		panic(err) // it was made here
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	text, err := unknown.Marshal()
	if err != nil {
		panic(err)
	}
	return append([]byte("k8s\x00"), text...)
}

// shown is what is streamed of a kind.
type shown struct {
	apiVersion, kind string
	count            int
	object           func(i int) protobuf
	// every has each renewed once in that time, counted in renewed; 0: never.
	every   time.Duration
	renewed *atomic.Int64
}

func (f *feigned) shown(path string) (s shown, known bool) {
	next := func() int { return int(f.version.Add(1)) }
	switch path {
	case "/api/v1/persistentvolumes":
		return shown{"v1", "PersistentVolume", f.volumes, func(i int) protobuf { return f.volume(i) }, 0, nil}, true
	case "/api/v1/nodes":
		return shown{"v1", "Node", f.nodes, func(i int) protobuf { return f.node(i, next()) }, statusEvery, &f.statuses}, true
	case "/apis/storage.k8s.io/v1/volumeattachments":
		return shown{"storage.k8s.io/v1", "VolumeAttachment", f.volumes, func(i int) protobuf { return f.attachment(i) }, 0, nil}, true
	case "/apis/storage.k8s.io/v1/csinodes":
		return shown{"storage.k8s.io/v1", "CSINode", f.nodes, func(i int) protobuf { return f.csiNode(i) }, 0, nil}, true
	case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases":
		return shown{"coordination.k8s.io/v1", "Lease", f.nodes, func(i int) protobuf { return f.lease(i, next()) }, leaseEvery, &f.leases}, true
	case "/apis/coordination.k8s.io/v1/namespaces/csi-fencepost/leases":
		return shown{"coordination.k8s.io/v1", "Lease", 0, func(int) protobuf { return &coordinationv1.Lease{} }, 0, nil}, true
	}
	return s, false
}

func (f *feigned) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	s, known := f.shown(r.URL.Path)
	switch query := r.URL.Query(); {
	case known && f.paged && query.Get("sendInitialEvents") != "":
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	case known && f.paged && query.Get("watch") == "":
		_, _ = w.Write(s.listPage(query))
	case known && query.Get("watch") != "":
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		f.stream(w, r, s, query.Get("sendInitialEvents") == "true")
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		_, _ = w.Write(enveloped("v1", "Namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid(7, 0)}}))
	case strings.HasSuffix(r.URL.Path, "/namespaces/csi-fencepost/leases"):
		_, _ = w.Write(enveloped("coordination.k8s.io/v1", "LeaseList", &coordinationv1.LeaseList{}))
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "there is none")
	}
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_, _ = w.Write(enveloped("v1", "Status", &metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message}))
}

// encoded is what was marshalled already.
type encoded []byte

func (e encoded) Marshal() ([]byte, error) { return e, nil }

// listPage is as much of a list as is asked for. In protobuf each kind's list has
// its metadata as field 1 and its items as field 2.
func (s shown) listPage(query url.Values) []byte {
	from, _ := strconv.Atoi(query.Get("continue"))
	to := s.count
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 {
		to = min(to, from+limit)
	}
	meta := metav1.ListMeta{ResourceVersion: "1000"}
	if to < s.count {
		meta.Continue = strconv.Itoa(to)
	}
	var list encoded
	field := func(number protowire.Number, obj protobuf) {
		raw, err := obj.Marshal()
		if err != nil {
			panic(err) // it was made here
		}
		list = protowire.AppendBytes(protowire.AppendTag(list, number, protowire.BytesType), raw)
	}
	field(1, &meta)
	for i := from; i < to; i++ {
		field(2, s.object(i))
	}
	return enveloped(s.apiVersion, s.kind+"List", list)
}

// stream sends the list, if it is asked for, and then the renewals.
func (f *feigned) stream(w http.ResponseWriter, r *http.Request, s shown, initial bool) {
	send := func(event apiwatch.EventType, obj protobuf) bool {
		e := metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: enveloped(s.apiVersion, s.kind, obj)}}
		text, err := e.Marshal()
		if err != nil {
			panic(err)
		}
		_, err = w.Write(append(bigendian.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
		return err == nil && r.Context().Err() == nil
	}
	flush := http.NewResponseController(w).Flush
	if initial {
		for i := range s.count {
			if !send(apiwatch.Added, s.object(i)) {
				return
			}
		}
		end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(f.version.Add(1)), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		if !send(apiwatch.Bookmark, end) {
			return
		}
	}
	_ = flush()
	const tick = 100 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var began time.Time
	for sent := 0; ; {
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
		if s.every == 0 || !f.churns.Load() {
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		// By the clock: ticks are lost where the machine is busy.
		for due := float64(s.count) * time.Since(began).Seconds() / s.every.Seconds(); float64(sent+1) <= due; sent++ {
			at := int(s.renewed.Load()) % s.count
			if !send(apiwatch.Modified, s.object(at)) {
				return
			}
			s.renewed.Add(1)
		}
		_ = flush()
	}
}
