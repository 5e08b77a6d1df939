package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// Whoever reaches a port keeps nobody else out by holding connections, over TLS or not.
func TestOfTooManyConnectionsTheOneThatStoodStillTheLongestEnds(t *testing.T) {
	for _, secure := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config = newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		var all []net.Conn
		for i := range maxConnections + 3 {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			all = append(all, conn)
			if i == 0 { // so that it is the first that the server sees
				time.Sleep(100 * time.Millisecond)
			}
		}
		all[0].SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := all[0].Read(make([]byte, 1)); errors.Is(err, io.ErrNoProgress) || err == nil || isTimeout(err) {
			t.Errorf("TLS %t: the first of %d connections is held on: %v", secure, len(all), err)
		}
		all[len(all)-1].SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := all[len(all)-1].Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("TLS %t: the last one is not held: %v", secure, err)
		}
		if resp, err := server.Client().Get(server.URL); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("TLS %t: %v", secure, err)
		}
		for _, conn := range all {
			conn.Close()
		}
		server.Close()
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

func TestNoServerWaitsWithoutAnEnd(t *testing.T) {
	s := newServer(nil)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.IdleTimeout > 2*time.Minute || s.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", s)
	}
}

// Names and reasons that others have chosen act on no terminal, neither in an answer nor in the log.
func TestWhatOthersWriteIsPlain(t *testing.T) {
	const escape = "\x1b]0;owned\x07\u202e"
	odd := strings.Replace(refuses, `"nobody has changed " + object.metadata.name`, `"nobody has changed " + object.metadata.labels["a"]`, 1)
	p, err := load([]byte(odd))
	if err != nil {
		t.Fatal(err)
	}
	r := request(strings.Replace(pod, `"name":"p",`, `"name":"p","labels":{"a":"\u001b]0;owned\u0007\u202e"},`, 1), "storage")
	a := p["/validate/judge"].review(t.Context(), r)
	if a.Allowed || !strings.Contains(a.Result.Message, "nobody has changed  ]0;owned  ") || strings.ContainsAny(a.Result.Message, escape[:1]+"\a\u202e") {
		t.Errorf("%+q", a.Result)
	}
	n := &noted{}
	n.AddWarning("", escape)
	if err := n.AddAnnotation("a/b", escape); err != nil || n.warnings[0] != " ]0;owned  " || n.audit["b"] != n.warnings[0] {
		t.Errorf("%q, %q", n.warnings, n.audit)
	}
	var said bytes.Buffer
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = write
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := logPlainly(flags, &said); err != nil {
		t.Fatal(err)
	}
	defer klog.LogToStderr(true)
	klog.ErrorS(errors.New("a\n"+escape), "A policy is wrong", "name", "b\n"+escape)
	klog.Flush()
	os.Stderr = stderr
	write.Close()
	if past, _ := io.ReadAll(read); len(past) > 0 {
		t.Errorf("past it goes %q", past)
	}
	if text := said.String(); strings.Count(text, "owned") != 2 || plain(text) != text {
		t.Errorf("%q", text)
	}
}

// A certificate that ended is served for want of a better one, and no call by it succeeds: this replica
// is not ready then, and says why.
func TestWithoutACertificateThatHoldsItIsNotReady(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		from, until time.Duration
		want        int
		says        string
	}{
		"none yet":     {0, 0, 503, "the Secret ns/s was not read yet"},
		"one holds":    {-time.Hour, time.Hour, 200, "ok"},
		"it ended":     {-2 * time.Hour, -time.Minute, 503, "the certificate of the Secret ns/s ended at " + now.Add(-time.Minute).UTC().Format(time.RFC3339)},
		"it will hold": {time.Hour, 2 * time.Hour, 503, "set this node's clock right"},
	} {
		i := &identity{namespace: "ns", secret: "s"}
		if c.until != 0 {
			i.current.Store(&tls.Certificate{Leaf: &x509.Certificate{NotBefore: now.Add(c.from), NotAfter: now.Add(c.until)}})
		}
		w := httptest.NewRecorder()
		i.probes().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d, %s", name, w.Code, w.Body)
		}
	}
}
