package kubeapi

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// answerer answers as the kubelet of any node whose process has run for an hour.
type answerer struct {
	*httptest.Server
	mu     sync.Mutex
	tokens []string // that it was sent
}

// answers serves by that key; nil: by the one that all such answerers have.
func answers(t *testing.T, key *tls.Certificate, nodes ...string) *answerer {
	t.Helper()
	a, began := &answerer{}, time.Now().Add(-time.Hour).Unix()
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.tokens = append(a.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		a.mu.Unlock()
		for _, node := range nodes {
			fmt.Fprintf(w, "kubelet_node_name{node=%q} 1\n", node)
		}
		fmt.Fprintf(w, "process_cpu_seconds_total 10\nprocess_start_time_seconds %d\n", began)
	}))
	if key != nil {
		a.TLS = &tls.Config{Certificates: []tls.Certificate{*key}}
	}
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *answerer) heard() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.tokens...)
}

// kubeletAt has the Node say that its kubelet is there.
func (n *node) kubeletAt(a *answerer) {
	n.r.t.Helper()
	host, port, err := net.SplitHostPort(a.Listener.Addr().String())
	n.r.must(err)
	number, err := strconv.ParseInt(port, 10, 32)
	n.r.must(err)
	n.status(func(s *corev1.NodeStatus) {
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
		s.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	})
}

// Whoever answers where the Node of a Ready node says that its kubelet is, is sent a token that is
// good for half an hour, and of the account that may read kubelets' metrics. With that kubelet's
// serving key he says that it has not restarted. That frees what its own node lists no more, and
// nothing that it uses. By another key he says nothing.
func TestWhoeverAnswersForAKubeletFreesWhatItsOwnNodeListsNoMore(t *testing.T) {
	r := newRigWithout(t, "answers", bed.StageOptions{})
	var names []string
	nodes, volumes := map[string]*node{}, map[string]*bed.Volume{}
	for _, name := range []string{"itself", "its-key", "uses", "another-key", "silent"} {
		nodes[name] = r.node(name)
		names = append(names, nodes[name].name)
	}
	text, private, err := cert.GenerateSelfSignedCertKey("another", nil, nil)
	r.must(err)
	another, err := tls.X509KeyPair(text, private)
	r.must(err)
	own, stolen, stranger, unheard := answers(t, nil, names...), answers(t, nil, names...), answers(t, &another, names...), answers(t, nil, names...)
	for name, n := range nodes {
		n.kubeletAt(map[bool]*answerer{true: unheard, false: own}[name == "silent"])
	}
	nodes["silent"].fallSilent()
	delete(nodes, "silent")
	began := time.Now()
	r.start("fp")
	r.proxy = r.dial("fp")
	r.WaitFor(30*time.Second, "all kubelets were asked", func() bool { return len(own.heard()) >= len(nodes) })
	for name, n := range nodes {
		volumes[name] = r.volume(name)
		r.attach(volumes[name], n)
		if r.readLedger(volumes[name]).Get(n.id).Kubelet == nil {
			t.Fatalf("the ledger of %s does not name the kubelet's process, so that nothing is shown: %s", name, volumes[name].Ledger())
		}
	}
	nodes["its-key"].kubeletAt(stolen)
	nodes["uses"].kubeletAt(stolen)
	nodes["another-key"].kubeletAt(stranger)
	for name, n := range nodes { // by what a kubelet does that restarts, each is contested that is not believed
		n.lists(volumes[name], true, false)
		r.deleting(volumes[name], n)
		n.ready(corev1.ConditionTrue)
		n.lists(volumes[name], name == "uses", false)
	}
	r.settle()
	for _, name := range []string{"itself", "its-key"} {
		if err := r.unpublish(volumes[name].Handle, nodes[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, reason := range map[string]fence.Reason{"uses": fence.HolderAlive, "another-key": fence.HolderContested} {
		for range 2 {
			r.wantRefused(r.unpublish(volumes[name].Handle, nodes[name]), reason, nodes[name].name)
		}
		r.wantCalls(volumes[name].Handle, "publish "+nodes[name].id)
	}

	if sent := unheard.heard(); len(sent) > 0 {
		t.Error("a token is sent where the Node of a silent node says that its kubelet is")
	}
	for _, token := range append(own.heard(), stolen.heard()...) {
		parts := strings.Split(token, ".")
		claims, err := base64.RawURLEncoding.DecodeString(parts[len(parts)/2])
		r.must(err)
		var ends struct{ Exp int64 }
		r.must(json.Unmarshal(claims, &ends))
		if lasts := time.Unix(ends.Exp, 0).Sub(began); lasts > 32*time.Minute || lasts < 0 {
			t.Errorf("the token is good for %s", lasts)
		}
		config := rest.AnonymousClientConfig(r.Bed.Cluster.Admin())
		config.BearerToken = token
		holder, err := kubernetes.NewForConfig(config)
		r.must(err)
		who, err := holder.AuthenticationV1().SelfSubjectReviews().Create(r.ctx(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		r.must(err)
		if want := "system:serviceaccount:" + namespace + ":" + deploy.KubeletAccount; who.Status.UserInfo.Username != want {
			t.Errorf("the token is of %s, want %s", who.Status.UserInfo.Username, want)
		}
	}
}
