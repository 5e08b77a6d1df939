package controlplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Networks have the addresses that RFC 2544 sets aside for tests, a /30 each.
const (
	firstAddress  = 198<<24 | 18<<16 // 198.18.0.0/15
	networkCount  = 1 << 15
	networkPrefix = "fencepost" // of the namespace, and of the host's end of the cable
	networkFolder = "/run/netns"
	networkPort   = 6443 // of the API server, as the node sees it
)

// serverName is a name in the API server's certificate, for those who reach it
// at another address.
const serverName = "localhost"

// network is a network namespace with one cable (a veth pair) to the host. The
// API server listens on the host's loopback, so a forwarder stands at the host's
// end.
//
//	namespace: kubelet ── eth0 ══ veth ── forwarder ── 127.0.0.1: API server
//	                      DROP     └──── who asks the kubelet at the node's address
//
// It belongs to this process while that holds the lock, an abstract unix socket,
// which vanishes with it in whatever way it ends.
type network struct {
	name       string
	host, node netip.Addr
	lock       net.Listener

	forward *forwarder // nil: not set up
}

// newNetwork makes a network whose forwarder leads to the TCP address target.
func newNetwork(target string) (*network, error) {
	n, err := takeNetwork()
	if err != nil {
		return nil, err
	}
	if err := n.setUp(target); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// takeNetwork reserves a network that no living process has, and whose
// addresses this host has nowhere else.
func takeNetwork() (*network, error) {
	inUse, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("this host's addresses: %w", err)
	}
	start := rand.IntN(networkCount)
	for i := range networkCount {
		n, err := lockNetwork((start + i) % networkCount)
		if err != nil {
			continue
		}
		if !n.overlaps(inUse) {
			return n, nil
		}
		n.lock.Close()
	}
	return nil, errors.New("no free network in 198.18.0.0/15")
}

func lockNetwork(number int) (*network, error) {
	name := networkPrefix + strconv.Itoa(number)
	lock, err := net.Listen("unix", "@csi-fencepost-sanity-network-"+strconv.Itoa(number))
	if err != nil {
		return nil, err
	}
	base := uint32(firstAddress + 4*number)
	return &network{name: name, host: ipv4(base + 1), node: ipv4(base + 2), lock: lock}, nil
}

func ipv4(number uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, number)))
}

// overlaps says whether an interface other than what a dead owner left of this
// network has its addresses.
func (n *network) overlaps(inUse []net.Addr) bool {
	if _, err := net.InterfaceByName(n.name); err == nil {
		return false // a dead owner's, which setUp removes
	}
	for _, a := range inUse {
		if subnet, ok := a.(*net.IPNet); ok && subnet.Contains(n.host.AsSlice()) {
			return true
		}
	}
	return false
}

// setUp makes the namespace, the cable and the forwarder. The kubelet takes its
// node's address from the default route, and asks DNS for its node's name first:
// that has to fail at once instead of running into the void.
func (n *network) setUp(target string) error {
	if err := n.clear(); err != nil {
		return err
	}
	if err := run("ip", "", "netns", "add", n.name); err != nil {
		return fmt.Errorf("a network namespace for a node needs root or CAP_SYS_ADMIN and CAP_NET_ADMIN: %w", err)
	}
	host := fmt.Sprintf("link add %[1]s type veth peer name eth0 netns %[1]s\naddress add %[2]s/30 dev %[1]s\nlink set %[1]s up\n", n.name, n.host)
	if err := run("ip", host, "-batch", "-"); err != nil {
		return fmt.Errorf("cable of network namespace %s: %w", n.name, err)
	}
	node := fmt.Sprintf("link set lo up\naddress add %s/30 dev eth0\nlink set eth0 up\nroute add default via %s\nrule add ipproto udp dport 53 unreachable\n", n.node, n.host)
	if err := run("ip", node, "-netns", n.name, "-batch", "-"); err != nil {
		return fmt.Errorf("network namespace %s: %w", n.name, err)
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(n.host, networkPort).String())
	if err != nil {
		return fmt.Errorf("the API server's forwarder for network namespace %s: %w", n.name, err)
	}
	n.forward = startForwarder(listener, target)
	return nil
}

// server is the API server's URL as the node sees it.
func (n *network) server() string {
	return "https://" + netip.AddrPortFrom(n.host, networkPort).String()
}

// enter makes a process run in the namespace. Not `ip netns exec`: that gives it
// mounts of its own too.
func (n *network) enter(options ProcessOptions) (ProcessOptions, error) {
	nsenter, err := tool("nsenter")
	if err != nil {
		return options, err
	}
	options.Args = append([]string{"--net=" + filepath.Join(networkFolder, n.name), "--", options.Path}, options.Args...)
	options.Path = nsenter
	options.Env = append(options.Env, "NO_PROXY=*") // the forwarder is not on loopback
	return options, nil
}

// The rules of a partition. Each text is one transaction, and begins with what
// makes it fit for a table that is there as for one that is not.
const (
	healed      = "add table inet partition\ndelete table inet partition\n"
	partitioned = healed + `table inet partition {
	chain in { type filter hook input priority filter; iifname "eth0" counter drop; }
	chain out { type filter hook output priority filter; oifname "eth0" counter drop; }
}
`
)

// setPartition drops every packet in and out, or none.
func (n *network) setPartition(on bool) error {
	rules := healed
	if on {
		rules = partitioned
	}
	nft, err := tool("nft")
	if err != nil {
		return err
	}
	return run("nsenter", rules, "--net="+filepath.Join(networkFolder, n.name), "--", nft, "-f", "-")
}

// remove takes everything away. A process that still runs in the namespace has
// no network from then on.
func (n *network) remove() error {
	defer n.lock.Close()
	if n.forward != nil {
		n.forward.close()
	}
	return n.clear()
}

// clear removes namespace and cable where they are there.
func (n *network) clear() error {
	var errs []error
	if _, err := net.InterfaceByName(n.name); err == nil {
		errs = append(errs, run("ip", "", "link", "delete", n.name))
	}
	if _, err := os.Stat(filepath.Join(networkFolder, n.name)); err == nil {
		errs = append(errs, run("ip", "", "netns", "delete", n.name))
	}
	return errors.Join(errs...)
}

// removeOrphanNetworks takes away what processes that were killed have left.
func removeOrphanNetworks() {
	paths, _ := filepath.Glob(filepath.Join(networkFolder, networkPrefix+"*"))
	for _, path := range paths {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), networkPrefix))
		if err != nil || number < 0 || number >= networkCount {
			continue
		}
		n, err := lockNetwork(number)
		if err != nil {
			continue // its owner lives
		}
		_ = n.remove() // another user's, perhaps
	}
}

// forwarder passes TCP connections on.
type forwarder struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func startForwarder(listener net.Listener, target string) *forwarder {
	f := &forwarder{listener: listener, target: target, conns: map[net.Conn]bool{}}
	go f.serve()
	return f
}

func (f *forwarder) serve() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		go f.pass(conn)
	}
}

// pass ends both connections as soon as one of them ends.
func (f *forwarder) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", f.target)
	if err != nil {
		return // no API server: the connection is closed, as if refused
	}
	defer to.Close()
	if !f.note(from, to) {
		return
	}
	defer f.forget(from, to)
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{to, from}, {from, to}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
}

func (f *forwarder) note(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = true
	}
	return !f.closed
}

func (f *forwarder) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.conns, c)
	}
}

func (f *forwarder) close() {
	f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
}

// run runs a program with that standard input. Its error says what the program
// said.
func run(name, stdin string, args ...string) error {
	path, err := tool(name)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// tool finds a program of the system's, whose folder may not be in a user's PATH.
func tool(name string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed (Debian: iproute2, nftables, util-linux): run make deps", name)
}
