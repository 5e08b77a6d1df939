package run

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxConnections of the HTTP endpoint. A kubelet's probes and a few scrapers have one
// each; a process may have a thousand files, and the calls of the attacher need some.
const maxConnections = 100

// connections bounds those of a server. One more than maxConnections has the one closed
// that has stood still the longest. Let it wait in their stead, as a listener with a limit
// does, and whoever holds that many would keep the probes out, and have the pod restarted.
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
