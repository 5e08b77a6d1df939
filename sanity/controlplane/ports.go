package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken below Linux's range of ephemeral ports (from 32768), so that
// no outgoing connection takes the API server's port during an outage.
const (
	firstPort = 20000
	lastPort  = 32000
)

// portSet holds the loopback ports of one cluster until it is closed.
type portSet struct {
	mu    sync.Mutex
	locks []net.Listener
}

// take reserves one free TCP port of 127.0.0.1. Other clusters on this machine,
// of this user or another, will not take it: the reservation is an abstract
// unix socket, which vanishes with this process.
func (s *portSet) take() (int, error) {
	start := rand.IntN(lastPort - firstPort)
	for i := range lastPort - firstPort {
		port := firstPort + (start+i)%(lastPort-firstPort)
		lock, err := net.Listen("unix", fmt.Sprintf("@csi-fencepost-sanity-port-%d", port))
		if err != nil {
			continue
		}
		probe, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			lock.Close()
			continue
		}
		probe.Close()
		s.mu.Lock()
		s.locks = append(s.locks, lock)
		s.mu.Unlock()
		return port, nil
	}
	return 0, fmt.Errorf("no free loopback port between %d and %d", firstPort, lastPort)
}

func (s *portSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lock := range s.locks {
		lock.Close()
	}
	s.locks = nil
}
