package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory, so that their time-outs take no time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours
}

// open serves the endpoint in memory; the test's end ends it.
func open(t *testing.T) pipes {
	t.Helper()
	listener := make(pipes)
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	}))
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-served })
	return listener
}

func ask(conn net.Conn, path string) (*http.Response, error) {
	go fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

// endsAfter is how long the server keeps a connection on which nothing goes on.
func endsAfter(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	since := time.Now()
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	return time.Since(since)
}

func TestNobodyHoldsAConnectionForLongerThanAScrapeTakes(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(conn net.Conn)
		most  time.Duration
	}{
		"says nothing":     {func(net.Conn) {}, httpReadTimeout},
		"ends no header":   {func(conn net.Conn) { io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nX: ") }, httpReadTimeout},
		"sends no body":    {func(conn net.Conn) { io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n") }, httpReadTimeout},
		"is idle":          {func(conn net.Conn) { ask(conn, "/") }, 2 * time.Minute},
		"does not read on": {func(conn net.Conn) { ask(conn, "/large"); time.Sleep(httpWriteTimeout + time.Second) }, 0},
		"sends a long header": {func(conn net.Conn) {
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 40<<10))
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := open(t).dial()
				defer conn.Close()
				c.begin(conn)
				if after := endsAfter(t, conn); after > c.most+time.Second || after < c.most-time.Second {
					t.Errorf("it is kept for %s, want %s", after, c.most)
				}
			})
		})
	}
}

func TestOfTooManyConnectionsTheOneThatStoodStillTheLongestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := open(t)
		var all []net.Conn
		for range maxConnections {
			all = append(all, listener.dial())
		}
		defer func() {
			for _, conn := range all {
				conn.Close()
			}
		}()
		if resp, err := ask(all[0], "/"); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal("not one too many yet:", err)
		}
		synctest.Wait()
		for range 3 {
			all = append(all, listener.dial())
		}
		synctest.Wait()
		for i, conn := range all {
			conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := conn.Read(make([]byte, 1))
			if closed, want := errors.Is(err, io.EOF), i >= 1 && i <= 3; closed != want {
				t.Errorf("connection %d of %d: closed %t (%v), want %t", i, len(all), closed, err, want)
			}
		}
	})
}
