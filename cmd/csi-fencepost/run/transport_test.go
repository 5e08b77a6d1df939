package run

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// The lists of a large cluster are streamed faster than they are decoded.
func TestAnAnswerIsNotReadFarAhead(t *testing.T) {
	const chunk = 16 << 10
	var sent atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, chunk)
		for http.NewResponseController(w).Flush() == nil && r.Context().Err() == nil && sent.Load() < 100*readAhead {
			n, _ := w.Write(text)
			sent.Add(int64(n))
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client, err := rest.HTTPClientFor(restConfigFor(t, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 {
		t.Fatalf("it is asked in %s, not HTTP/2", answer.Proto)
	}
	for before := int64(-1); before < sent.Load(); time.Sleep(500 * time.Millisecond) {
		before = sent.Load()
	}
	if n := sent.Load(); n < readAhead/2 || n > readAhead+2*chunk {
		t.Errorf("%d bytes were sent of an answer that nobody reads, want about %d", n, readAhead)
	}
}

// restConfigFor is how `run` reaches an API server.
func restConfigFor(t *testing.T, url string) *rest.Config {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, url)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := parseRunFlags([]string{"--csi-address=/d.sock", "--listen=/l.sock", "--kubeconfig=" + kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	config, err := restConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Others in the process, such as tests, use Go's own transport.
func TestGosOwnTransportIsNotChanged(t *testing.T) {
	before := http.DefaultTransport.(*http.Transport).HTTP2
	if limitReadAhead(http.DefaultTransport); http.DefaultTransport.(*http.Transport).HTTP2 != before {
		t.Error("http.DefaultTransport was changed")
	}
}
