package controlplane

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKubeletsTellWhomTheAPIServerLetsAskWhichProcessTheyAre: with TLS, at the address
// and port that the Node says, on the host's network and on one of its own.
func TestKubeletsTellWhomTheAPIServerLetsAskWhichProcessTheyAre(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	nobody, reader := tokenOf(t, c, "nobody"), tokenOf(t, c, "reader")
	letReadMetrics(t, c, "reader")
	keys := map[string]bool{}
	for name, options := range map[string]NodeOptions{"host": {}, "apart": {Network: true}} {
		n, err := c.AddNode(t.Context(), name, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, refused := range []struct {
			who, token string
			code       int
		}{
			{"a caller without a token", "", http.StatusUnauthorized},
			{"an invented token", "invented", http.StatusUnauthorized},
			{"an account without rights", nobody, http.StatusForbidden},
		} {
			if got := ask(t, n, refused.token); got.code != refused.code || got.start != 0 {
				t.Errorf("node %s answers %s with %d and start time %.2f, want %d", name, refused.who, got.code, got.start, refused.code)
			}
		}
		first := ask(t, n, reader)
		first.check(t, n)
		keys[first.key] = true
		n.KillKubelet()
		if err := n.StartKubelet(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := ask(t, n, reader)
		second.check(t, n)
		if second.start <= first.start || second.key != first.key {
			t.Errorf("node %s: the kubelet's start time was %.2f and is %.2f after it was restarted, its key was %.8s and is %.8s", name, first.start, second.start, first.key, second.key)
		}
		if options.Network {
			hangsWhilePartitioned(t, n, reader)
		} else {
			listensNowhereElse(t, c, n)
		}
	}
	if len(keys) != 2 {
		t.Errorf("two kubelets have %d serving keys", len(keys))
	}
}

// tokenOf makes a service account and a token of it.
func tokenOf(t *testing.T, c *Cluster, name string) string {
	t.Helper()
	accounts := c.Client().CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// letReadMetrics lets a service account read kubelets' metrics, and nothing else.
func letReadMetrics(t *testing.T, c *Cluster, account string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: account}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}}}
	rbac := c.Client().RbacV1()
	_, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	_, err2 := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
}

// told is what a kubelet answers.
type told struct {
	err        error // no answer
	code       int
	key        string // digest of the server's
	date, node string
	start, cpu float64
}

// ask asks a kubelet for its metrics, at the address and port that its Node says.
func ask(t *testing.T, n *Node, token string) (got told) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+endpoint(t, n.cluster, n)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return told{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return told{err: err}
	}
	got = told{code: response.StatusCode, date: response.Header.Get("Date"), key: fmt.Sprintf("%x", sha256.Sum256(response.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo))}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		number, _ := strconv.ParseFloat(value, 64)
		switch {
		case name == "process_start_time_seconds":
			got.start = number
		case name == "process_cpu_seconds_total":
			got.cpu = number
		case strings.HasPrefix(name, "kubelet_node_name{"):
			got.node = name
		}
	}
	return got
}

// endpoint is where a Node says that its kubelet serves.
func endpoint(t *testing.T, c *Cluster, n *Node) string {
	t.Helper()
	node := getNode(t, c, n.Name())
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return net.JoinHostPort(a.Address, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)))
		}
	}
	t.Fatalf("node %s says no address: %+v", n.Name(), node.Status.Addresses)
	return ""
}

// check looks whether the answer is that of the node's kubelet, which has run for a
// minute at most. Its start time moves with the clock by a second or so.
func (got told) check(t *testing.T, n *Node) {
	t.Helper()
	if got.err != nil || got.code != http.StatusOK {
		t.Fatalf("node %s: %v, code %d", n.Name(), got.err, got.code)
	}
	if want := `kubelet_node_name{node="` + n.Name() + `"}`; got.node != want {
		t.Errorf("node %s says it is %q, want %q", n.Name(), got.node, want)
	}
	now := time.Now()
	age := float64(now.UnixMilli())/1000 - got.start
	if age < -2 || age > 60 || got.cpu <= 0 || got.cpu > 2*age+1 {
		t.Errorf("node %s says its kubelet started %.2f s ago and took %.2f s of CPU time", n.Name(), age, got.cpu)
	}
	date, err := http.ParseTime(got.date)
	if err != nil || now.Sub(date).Abs() > 10*time.Second {
		t.Errorf("node %s says that it is %q", n.Name(), got.date)
	}
}

// hangsWhilePartitioned: whoever asks a partitioned node gets no answer, not even that
// nobody is there, until the partition heals.
func hangsWhilePartitioned(t *testing.T, n *Node, token string) {
	t.Helper()
	if err := n.Partition(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, n, token); !os.IsTimeout(got.err) {
		t.Errorf("partitioned node %s: %v, code %d, want no answer", n.Name(), got.err, got.code)
	}
	if err := n.Heal(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the healed node answers", func() (bool, string) {
		got := ask(t, n, token)
		return got.code == http.StatusOK, got.date
	})
}

// listensNowhereElse: nobody reaches a kubelet on the host's network at another of the
// host's addresses.
func listensNowhereElse(t *testing.T, c *Cluster, n *Node) {
	t.Helper()
	_, port, err := net.SplitHostPort(endpoint(t, c, n))
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.String() == loopback || ip.IsLinkLocalUnicast() {
			continue
		}
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), port), time.Second); err == nil {
			conn.Close()
			t.Errorf("node %s listens on %s", n.Name(), conn.RemoteAddr())
		}
	}
}
