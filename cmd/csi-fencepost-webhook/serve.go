package main

import (
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// maxConnections of each port. API servers have a few each, with many calls in one; a kubelet's probes
// and a few scrapers have one each.
const maxConnections = 100

// newServer serves a handler to whoever reaches its port.
func newServer(handler http.Handler) *http.Server {
	open := &connections{moved: map[net.Conn]int64{}}
	return &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ConnState: open.follow, ErrorLog: log.New(plainWriter{os.Stderr}, "", log.LstdFlags)}
}

// connections bounds those of a server, as those of the sidecar's HTTP endpoint are (csi-fencepost/run):
// one more than maxConnections has the one closed that has stood still the longest. Let it wait in their
// stead, and whoever holds that many would keep the API server and the probes out.
type connections struct {
	mu    sync.Mutex
	moves int64
	// moved is when each last changed its state, by the count of all moves.
	moved map[net.Conn]int64
}

// follow is the server's ConnState.
func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.moved, conn)
		return
	}
	c.moves++
	c.moved[conn] = c.moves
	if len(c.moved) > maxConnections {
		still := conn
		for other, at := range c.moved {
			if at < c.moved[still] {
				still = other
			}
		}
		delete(c.moved, still)
		if secure, ok := still.(*tls.Conn); ok {
			still = secure.NetConn() // to close TLS is to wait for the other side, up to five seconds
		}
		still.Close() // its reader says the rest
	}
}
