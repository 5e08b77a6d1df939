package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
)

const account = "csi-fencepost-kubelet"

// metrics are those of a kubelet among the others that it has.
const metrics = `# HELP kubelet_node_name [ALPHA] The node's name. The count is always 1.
# TYPE kubelet_node_name gauge
kubelet_node_name{node="n1"} 1
# HELP process_cpu_seconds_total [ALPHA] Total user and system CPU time spent in seconds.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.25
process_resident_memory_bytes 1.2345e+08
# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.76400000025e+09
process_virtual_memory_bytes 1.5e+09
`

// started is when that process started.
var started = time.UnixMilli(1764000000250)

// served is a kubelet at the outermost wire, and its Node.
func served(t *testing.T, answer http.HandlerFunc) *corev1.Node {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return node(host, int32(number))
}

func node(address string, port int32) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: address}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1764000000, 0)}}
	return n
}

// says that text, an hour after the process started.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", started.Add(time.Hour).UTC().Format(http.TimeFormat))
		fmt.Fprint(w, text)
	}
}

// tokensOf is an API server that makes tokens; asked counts them.
func tokensOf(t *testing.T, fails error) (api *fake.Clientset, asked *int) {
	api, asked = fake.NewClientset(), new(int)
	api.PrependReactor("create", "serviceaccounts", func(action k8stesting.Action) (bool, runtime.Object, error) {
		create := action.(k8stesting.CreateActionImpl)
		if create.Subresource != "token" || create.Namespace != "records" || create.Name != account {
			t.Errorf("it asks for %s of %s/%s", create.Subresource, create.Namespace, create.Name)
		}
		*asked++
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "token-" + strconv.Itoa(*asked)}}, fails
	})
	return api, asked
}

// renewed is a client with a token.
func renewed(t *testing.T, api *fake.Clientset) *Client {
	t.Helper()
	c := NewClient(api, "records", account)
	if err := c.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAKubeletIsAskedWithATokenForItsProcess(t *testing.T) {
	var heard []string
	n := served(t, func(w http.ResponseWriter, r *http.Request) {
		heard = append(heard, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		says(metrics)(w, r)
	})
	api, asked := tokensOf(t, nil)
	client := renewed(t, api)
	first, err := client.Ask(t.Context(), n, "")
	if err != nil {
		t.Fatal(err)
	}
	if p := first.Process; p.Start != 1764000000.25 || p.CPU != 12.25 || len(p.Key) != 44 {
		t.Errorf("it is %+v", p)
	}
	if first.Age != time.Hour-250*time.Millisecond {
		t.Errorf("its age is %s", first.Age)
	}
	again, err := client.Ask(t.Context(), n, "")
	if err != nil || !first.Process.Is(&again.Process) {
		t.Errorf("asked again it is %+v (%v)", again, err)
	}
	if *asked != 1 || len(heard) != 2 || heard[0] != "GET /metrics Bearer token-1" || heard[1] != heard[0] {
		t.Errorf("%d tokens, and it heard %q", *asked, heard)
	}
}

// selfSigned is a certificate as a kubelet makes its own.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	text, key, err := cert.GenerateSelfSignedCertKey("n1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestTwoKubeletsThatStartedAtOneTimeAreTwo(t *testing.T) {
	// httptest has one certificate for all of its servers.
	other := httptest.NewUnstartedServer(says(metrics))
	other.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	other.StartTLS()
	defer other.Close()
	host, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	number, _ := strconv.Atoi(port)
	api, _ := tokensOf(t, nil)
	client := renewed(t, api)
	one, err := client.Ask(t.Context(), served(t, says(metrics)), "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := client.Ask(t.Context(), node(host, int32(number)), "")
	if err != nil {
		t.Fatal(err)
	}
	if one.Process.Is(&two.Process) {
		t.Errorf("%+v is %+v", one, two)
	}
}

func TestWhatIsNoAnswerOfThatKubeletSaysNothing(t *testing.T) {
	api, _ := tokensOf(t, nil)
	client := renewed(t, api)
	line := func(old, changed string) string { return strings.Replace(metrics, old, changed, 1) }
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"another node's":       {says(line(`node="n1"`, `node="n2"`)), "it is not of node n1's kubelet"},
		"a longer name":        {says(line(`node="n1"`, `node="n10"`)), "it is not of node n1's kubelet"},
		"nobody's":             {says(line(`kubelet_node_name{node="n1"} 1`, "")), "it is not of node n1's kubelet"},
		"no start":             {says(line("process_start_time_seconds 1", "process_begin_time_seconds 1")), "not one process_start_time_seconds, but 0"},
		"two starts":           {says(metrics + "process_start_time_seconds{of=\"another\"} 5\n"), "not one process_start_time_seconds, but 2"},
		"a start that is none": {says(line("1.76400000025e+09", "NaN")), "process_start_time_seconds cannot be NaN"},
		"an endless one":       {says(line("12.25", "+Inf")), "process_cpu_seconds_total cannot be +Inf"},
		"a negative one":       {says(line("12.25", "-1")), "process_cpu_seconds_total cannot be -1"},
		"no number":            {says(line("12.25", "a lot")), "text format parsing error"},
		"nothing":              {says(""), "it is not of node n1's kubelet"},
		"no time":              {func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil; fmt.Fprint(w, metrics) }, "no time at which it was answered"},
		"forbidden":            {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, metrics, http.StatusForbidden) }, "403 Forbidden"},
		"sent elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
				return
			}
			t.Errorf("it follows to %s", r.URL)
			says(metrics)(w, r)
		}, "302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			if answer, err := client.Ask(t.Context(), served(t, c.answer), ""); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it is %+v, %v", answer, err)
			}
		})
	}
}

func TestOfALongAnswerThreeLinesAreRead(t *testing.T) {
	long := strings.Repeat("kubelet_runtime_operations_total{of=\""+strings.Repeat("x", 9000)+"\"} 1\n", 300)
	api, _ := tokensOf(t, nil)
	answer, err := renewed(t, api).Ask(t.Context(), served(t, says(long+metrics+long)), "")
	if err != nil || answer.Process.CPU != 12.25 {
		t.Errorf("it is %+v, %v", answer, err)
	}
}

func TestAKubeletIsAskedAtASingleAddressOfItsNode(t *testing.T) {
	for name, c := range map[string]struct {
		node *corev1.Node
		want string // of an error, if it begins so
	}{
		"IPv4":         {node("10.0.0.1", 10250), "10.0.0.1:10250"},
		"IPv6":         {node("fd00::1", 10250), "[fd00::1]:10250"},
		"a zone":       {node("fe80::1%eth0", 10250), "node n1 says no address"},
		"a network":    {node("10.0.0.0/16", 10250), "node n1 says no address"},
		"a name":       {node("n1.example.com", 10250), "node n1 says no address"},
		"a path":       {node("10.0.0.1/metrics?", 10250), "node n1 says no address"},
		"link-local":   {node("169.254.169.254", 443), "node n1 says no address"},
		"none at all":  {node("0.0.0.0", 10250), "node n1 says no address"},
		"a group":      {node("ff02::1", 10250), "node n1 says no address"},
		"no port":      {node("10.0.0.1", 0), "node n1 says no port"},
		"a large port": {node("10.0.0.1", 70000), "node n1 says no port"},
	} {
		got, err := Address(c.node)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWithoutAnAccountNoKubeletIsAsked(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, account)
	api, asked := tokensOf(t, missing)
	n := served(t, func(http.ResponseWriter, *http.Request) { t.Error("it is asked") })
	c := NewClient(api, "records", account)
	if err := c.Renew(t.Context()); !errors.Is(err, ErrNoToken) || !strings.Contains(err.Error(), "records/"+account) {
		t.Errorf("it says %v", err)
	}
	if _, err := c.Ask(t.Context(), n, ""); !errors.Is(err, ErrNoToken) || *asked != 1 {
		t.Errorf("it says %v, and %d tokens were asked for", err, *asked)
	}
}

func TestATokenIsRenewedWhenHalfOfItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, asked := tokensOf(t, nil)
		c := renewed(t, api)
		time.Sleep(lifetime/2 - time.Second)
		if err := c.Renew(t.Context()); err != nil || *asked != 1 {
			t.Errorf("before it is over: %v, %d tokens", err, *asked)
		}
		time.Sleep(2 * time.Second)
		if err := c.Renew(t.Context()); err != nil || *asked != 2 {
			t.Errorf("once it is over: %v, %d tokens", err, *asked)
		}
		time.Sleep(lifetime + time.Second)
		if _, err := c.Ask(t.Context(), node("192.0.2.1", 10250), ""); !errors.Is(err, ErrNoToken) {
			t.Errorf("with one that has run out: %v", err)
		}
	})
}

func TestWhoServesByAnotherKeyIsToldNothing(t *testing.T) {
	api, _ := tokensOf(t, nil)
	c := renewed(t, api)
	answers := true
	n := served(t, func(w http.ResponseWriter, r *http.Request) {
		if !answers {
			t.Error("it is told the token")
		}
		says(metrics)(w, r)
	})
	first, err := c.Ask(t.Context(), n, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Ask(t.Context(), n, first.Process.Key); err != nil || !first.Process.Is(&again.Process) {
		t.Errorf("by its own key it is %+v, %v", again, err)
	}
	answers = false
	if again, err := c.Ask(t.Context(), n, "another"); err == nil {
		t.Errorf("by another key it is %+v", again)
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	api, _ := tokensOf(t, nil)
	c := renewed(t, api)
	for name, text := range map[string]string{
		"far more nodes": metrics + strings.Repeat(`kubelet_node_name{node="n1"} 1`+"\n", 1000),
		"a line in two":  strings.Replace(metrics, "process_start_time_seconds 1", strings.Repeat("x", 4096)+"process_start_time_seconds 1", 1),
		"no end of line": strings.TrimSuffix(strings.Replace(metrics, "process_virtual_memory_bytes 1.5e+09\n", "", 1), "\n"),
	} {
		if answer, err := c.Ask(t.Context(), served(t, says(text)), ""); err == nil || len(err.Error()) > 400 {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

func TestAKubeletThatHangsIsNotWaitedFor(t *testing.T) {
	api, _ := tokensOf(t, nil)
	hangs := make(chan struct{})
	n := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-hangs
	})
	defer close(hangs)
	began := time.Now()
	_, err := renewed(t, api).Ask(t.Context(), n, "")
	if took := time.Since(began); err == nil || took > timeout+time.Second {
		t.Errorf("%v after %s", err, took)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it says %v", err)
	}
}
