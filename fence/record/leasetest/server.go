// Package leasetest serves Leases over HTTP as kube-apiserver does, as far as
// optimistic concurrency goes, for tests of what reads and writes them.
//
// It guarantees that each write gets a new resourceVersion, that an update with
// another resourceVersion than the stored one is a Conflict, that a create of
// what exists is AlreadyExists, and that a namespace has to be created first.
// It also gives out the Nodes that were put there. It knows no watches, no
// validation and no authorization but Forbid.
package leasetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// Server is an API server for Leases.
type Server struct {
	client kubernetes.Interface

	mu          sync.Mutex
	version     int
	namespaces  map[string]bool
	objects     map[string]*coordinationv1.Lease // by namespace/name
	writes      int
	forbidden   string
	beforeWrite func()
	nodes       map[string]*corev1.Node
	down        bool
	requests    int
}

// New starts a Server with these namespaces; it ends with the test.
func New(t testing.TB, namespaces ...string) *Server {
	s := newServer(namespaces)
	web := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(web.Close)
	s.client = client(t, &rest.Config{Host: web.URL})
	return s
}

// NewInMemory is New without a socket, so that it can be used in a bubble of
// testing/synctest.
func NewInMemory(t testing.TB, namespaces ...string) *Server {
	s := newServer(namespaces)
	s.client = client(t, &rest.Config{Host: "http://leases.invalid", Transport: memory{s}})
	return s
}

func newServer(namespaces []string) *Server {
	s := &Server{version: 100, namespaces: map[string]bool{}, objects: map[string]*coordinationv1.Lease{}, nodes: map[string]*corev1.Node{}}
	for _, ns := range namespaces {
		s.namespaces[ns] = true
	}
	return s
}

func client(t testing.TB, config *rest.Config) kubernetes.Interface {
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// memory is a connection to the Server.
type memory struct{ *Server }

// RoundTrip implements http.RoundTripper.
func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if m.isDown() {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	m.serve(w, r)
	return w.Result(), nil
}

// SetDown refuses every connection of a Server in memory.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// PutNode stores a Node past all checks.
func (s *Server) PutNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	node = node.DeepCopy()
	node.ResourceVersion = strconv.Itoa(s.version)
	s.nodes[node.Name] = node
}

// DeleteNode takes a Node away.
func (s *Server) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// Requests counts all requests.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *Server) serveNode(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	node := s.nodes[name]
	if node == nil {
		fail(w, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name))
		return
	}
	c := node.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	answer(w, http.StatusOK, c)
}

// Client talks to the Server.
func (s *Server) Client() kubernetes.Interface { return s.client }

// Forbid answers every request with this verb (get, list, create, update, delete) with
// Forbidden; empty: none.
func (s *Server) Forbid(verb string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden = verb
}

// BeforeNextWrite calls f once, between the next write's arrival and its
// handling: what another client does at that moment.
func (s *Server) BeforeNextWrite(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beforeWrite = f
}

// Writes counts the writes that succeeded.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Put stores a Lease past all checks, as if it had always been there.
func (s *Server) Put(lease *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeLocked(lease.DeepCopy())
}

// Lease returns the stored Lease; nil: none.
func (s *Server) Lease(namespace, name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.objects[namespace+"/"+name]; lease != nil {
		return lease.DeepCopy()
	}
	return nil
}

// Delete takes a Lease away.
func (s *Server) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, namespace+"/"+name)
}

func (s *Server) storeLocked(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	s.objects[lease.Namespace+"/"+lease.Name] = lease
	return lease
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok && r.Method == http.MethodGet {
		s.serveNode(w, name)
		return
	}
	namespace, name, ok := split(r.URL.Path)
	if !ok {
		fail(w, apierrors.NewNotFound(leases, r.URL.Path))
		return
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
	}
	if verb == "create" || verb == "update" || verb == "delete" {
		s.interlude()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if verb == s.forbidden {
		fail(w, apierrors.NewForbidden(leases, name, fmt.Errorf("user \"sidecar\" cannot %s resource \"leases\"", verb)))
		return
	}
	out, err := s.handleLocked(verb, namespace, name, r)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, out)
}

func (s *Server) interlude() {
	s.mu.Lock()
	f := s.beforeWrite
	s.beforeWrite = nil
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

func (s *Server) handleLocked(verb, namespace, name string, r *http.Request) (any, *apierrors.StatusError) {
	switch verb {
	case "list":
		return s.listLocked(namespace), nil
	case "get":
		if lease := s.objects[namespace+"/"+name]; lease != nil {
			return lease, nil
		}
		return nil, apierrors.NewNotFound(leases, name)
	case "delete":
		return s.deleteLocked(namespace, name, r)
	}
	var in coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored := s.objects[namespace+"/"+in.Name]
	switch {
	case verb == "create" && !s.namespaces[namespace]:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
	case verb == "create" && stored != nil:
		return nil, apierrors.NewAlreadyExists(leases, in.Name)
	case verb == "update" && stored == nil:
		return nil, apierrors.NewNotFound(leases, in.Name)
	case verb == "update" && in.ResourceVersion != "" && in.ResourceVersion != stored.ResourceVersion:
		return nil, apierrors.NewConflict(leases, in.Name, fmt.Errorf("the object has been modified"))
	}
	in.Namespace = namespace
	s.writes++
	return s.storeLocked(&in), nil
}

// deleteLocked heeds the resourceVersion that is asked for.
func (s *Server) deleteLocked(namespace, name string, r *http.Request) (any, *apierrors.StatusError) {
	var in metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored := s.objects[namespace+"/"+name]
	switch p := in.Preconditions; {
	case stored == nil:
		return nil, apierrors.NewNotFound(leases, name)
	case p != nil && p.ResourceVersion != nil && *p.ResourceVersion != stored.ResourceVersion:
		return nil, apierrors.NewConflict(leases, name, fmt.Errorf("the object has been modified"))
	}
	s.writes++
	delete(s.objects, namespace+"/"+name)
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func (s *Server) listLocked(namespace string) *coordinationv1.LeaseList {
	list := &coordinationv1.LeaseList{}
	for _, lease := range s.objects {
		if namespace == lease.Namespace {
			list.Items = append(list.Items, *lease)
		}
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
	return list
}

// split takes the namespace and the name (empty for a collection) from a path.
func split(path string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/apis/coordination.k8s.io/v1/namespaces/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 2 || len(parts) > 3 || parts[1] != "leases" {
		return "", "", false
	}
	if len(parts) == 3 {
		name = parts[2]
	}
	return parts[0], name, true
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	answer(w, int(status.Code), &status)
}

func answer(w http.ResponseWriter, code int, out any) {
	switch o := out.(type) {
	case *coordinationv1.Lease:
		c := *o
		c.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: coordinationv1.SchemeGroupVersion.String()}
		out = &c
	case *coordinationv1.LeaseList:
		o.TypeMeta = metav1.TypeMeta{Kind: "LeaseList", APIVersion: coordinationv1.SchemeGroupVersion.String()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that is gone cannot be told.
	_ = json.NewEncoder(w).Encode(out)
}
