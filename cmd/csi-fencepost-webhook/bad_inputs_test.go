package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// badSecret stands where a secret may stand. No error may have it.
const badSecret = "hunter2"

// What is wrong with a flag is said with its name and what would be right, before the API server is asked
// anything or a port is served.
func TestABadInputIsRefusedInClearWordsAndNothingIsDone(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer api.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder := t.TempDir()
	kubeconfig := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--kubeconfig=" + file
	}
	const user = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: '%s'}}]\nusers: [{name: u, user: {%s}}]\n"
	good := []string{kubeconfig("good", fmt.Sprintf(user, api.URL, "token: "+badSecret)), "--listen=127.0.0.1:0", "--http-endpoint=127.0.0.1:0"}
	for _, c := range []struct {
		namespace string
		args      []string
		says      string
	}{
		{"a", []string{"--wat"}, "unknown flag: --wat"},
		{"a", []string{"junk"}, `argument "junk": there are only flags`},
		{"a", []string{""}, `argument "": there are only flags`},
		{"a", []string{"--listen"}, "flag needs an argument: --listen"},
		{"a", []string{"--listen="}, `--listen is "": it has to be host:port or :port, such as :8443`},
		{"a", []string{"--listen=8443"}, `--listen is "8443": it has to be host:port or :port`},
		{"a", []string{"--listen=:99999"}, `--listen is ":99999": it has to be`},
		{"a", []string{"--listen=https://a:8443"}, `--listen is "https://a:8443": it has to be`},
		{"a", []string{"--listen=" + taken.Addr().String()}, "--listen " + taken.Addr().String() + " cannot be served"},
		{"a", []string{"--http-endpoint="}, `--http-endpoint is "": it has to be`},
		{"a", []string{"--http-endpoint=::1:9810"}, `--http-endpoint is "::1:9810": it has to be`},
		{"a", []string{"--http-endpoint=" + taken.Addr().String()}, "--http-endpoint " + taken.Addr().String() + " cannot be served"},
		{"a", []string{"--service="}, `--service is "", which is no name`},
		{"a", []string{"--service=A_B"}, `--service is "A_B", which is no name`},
		{"a", []string{"--service=a.b"}, `--service is "a.b", which is no name`},
		{"a", []string{"--secret="}, `--secret is "", which is no name`},
		{"a", []string{"--secret=../x"}, `--secret is "../x", which is no name`},
		{"a", []string{"-v=loud"}, `-v is "loud": it has to be a whole number`},
		{"a", []string{"-v=1.5"}, `-v is "1.5": it has to be a whole number`},
		{"", nil, "POD_NAMESPACE is not set"},
		{"A b", nil, `POD_NAMESPACE is "A b", which is no name`},
		{"a", []string{"--kubeconfig=/no/such"}, "the Kubernetes API is not known: stat /no/such"},
		{"a", []string{"--kubeconfig=" + folder}, "the Kubernetes API is not known"},
		{"a", []string{kubeconfig("junk", "junk")}, "the Kubernetes API is not known"},
		{"a", []string{kubeconfig("list", fmt.Sprintf(user, api.URL, "token: ["+badSecret+"]"))}, "the Kubernetes API is not known"},
		{"a", []string{kubeconfig("key", fmt.Sprintf(user, api.URL, "client-key-data: "+badSecret))}, "the Kubernetes API is not known"},
		{"a", []string{kubeconfig("both", fmt.Sprintf(user, api.URL, "token: "+badSecret+", username: a, password: "+badSecret))}, "more than one authentication method"},
	} {
		t.Setenv("POD_NAMESPACE", c.namespace)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // it serves where it takes the input
		err := run(ctx, append(append([]string{}, good...), c.args...))
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v; it should say %q", c.args, err, c.says)
			continue
		}
		for _, word := range []string{badSecret, "strconv.", "panic", "%!"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%q: it says %q: %v", c.args, word, err)
			}
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the API server was asked %d times", n)
	}
}
