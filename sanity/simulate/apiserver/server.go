package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Options of a Server.
type Options struct {
	// Now is the server's clock; nil: time.Now, which in a synctest bubble is
	// the bubble's.
	Now func() time.Time
	// Absent are the paths of resources that the cluster does not have: they are
	// answered 404. nil: DefaultAbsent.
	Absent []string
}

// DefaultAbsent are the custom resources that csi-fencepost looks for and most
// clusters do not have.
var DefaultAbsent = []string{
	"/apis/csiaddons.openshift.io/v1alpha1/networkfences",
	"/apis/csiaddons.openshift.io/v1alpha1/networkfenceclasses",
	"/apis/fence-agents-remediation.medik8s.io/v1alpha1/fenceagentsremediations",
	"/apis/self-node-remediation.medik8s.io/v1alpha1/selfnoderemediations",
}

// firstVersion is the version before the first write. It is not 0, which means
// something else in a request.
const firstVersion = 100

// Server is the API server. It starts no goroutine and no timer. It may be used by
// many at once.
type Server struct {
	now    func() time.Time
	absent []string

	mu         sync.Mutex
	version    uint64 // of the last write
	oldest     uint64 // what happened up to here is compacted
	uids       uint64
	tables     []table // by kind.id
	watches    []*WatchStream
	complaints []string
}

// New makes a Server with the namespaces that every cluster has.
func New(o Options) *Server {
	s := &Server{now: o.Now, absent: o.Absent, version: firstVersion, oldest: firstVersion, tables: make([]table, len(kinds))}
	if s.now == nil {
		s.now = time.Now
	}
	if s.absent == nil {
		s.absent = DefaultAbsent
	}
	for i := range s.tables {
		s.tables[i].objects = map[string]*stored{}
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, corev1.NamespaceNodeLease, metav1.NamespacePublic} {
		Put(s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return s
}

// Transport is a client's way to the server, as rest.Config.Transport. gate nil is
// Open.
func (s *Server) Transport(client string, gate Gate) http.RoundTripper {
	if gate == nil {
		gate = Open
	}
	return &transport{server: s, client: client, gate: gate}
}

// Config is what a client needs, with the content types that csi-fencepost asks for, and
// no limit on its requests.
func (s *Server) Config(client string, gate Gate) *rest.Config {
	return &rest.Config{
		Host:      "http://apiserver.invalid",
		Transport: s.Transport(client, gate),
		UserAgent: client,
		QPS:       -1,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	}
}

// Version is that of the last write.
func (s *Server) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Compact forgets how the present came about: a watch or an exact list from
// before answers 410 Gone from now on. Watches that run are not touched unless they
// are further behind.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
	for i := range s.tables {
		t := &s.tables[i]
		t.forgotten += len(t.log)
		t.log = nil
	}
	for _, w := range s.watches {
		w.nudge()
	}
}

// Complaints are the requests that asked for something that is not modelled, and
// the fates that no API server could bring about. A test that finds one has shown
// nothing.
func (s *Server) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.complaints)
}

func (s *Server) complainLocked(format string, args ...any) {
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
}

// stamp is the present as an object carries it: whole seconds.
func (s *Server) stamp() metav1.Time { return metav1.NewTime(s.now().Truncate(time.Second)) }

// newUIDLocked counts: the same schedule has the same UIDs.
func (s *Server) newUIDLocked() types.UID {
	s.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.uids))
}
