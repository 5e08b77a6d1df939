package array

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// DefaultDriverName is the CSI driver name when Options names none.
const DefaultDriverName = "array.csi-fencepost.io"

// DefaultWriteEvery is how often a machine writes when Options does not say.
const DefaultWriteEvery = 5 * time.Millisecond

// DefaultCapacity is the size of the array in bytes when Options names none.
const DefaultCapacity = 1 << 50

// Options of an Array. The zero value is a well-behaved array.
type Options struct {
	// DriverName is the name of the CSI driver; DefaultDriverName if empty.
	DriverName string
	// WriteEvery is the time between two writes of a machine to a volume; with Mounts,
	// between two looks at what real ones have written.
	WriteEvery time.Duration
	// Capacity of the whole array in bytes.
	Capacity int64
	// RequireSecrets, if any, must be in each ControllerPublishVolume and
	// ControllerUnpublishVolume, or the answer is UNAUTHENTICATED.
	RequireSecrets map[string]string
	// Disks are attached and detached with the volumes, if set.
	Disks Disks
	// Mounts are mounted and unmounted by the Node service; imagined ones if nil.
	Mounts Mounts
	// Now stamps calls, events and violations; time.Now if nil.
	Now func() time.Time
}

// Array is a storage array, the machines that use it and their CSI driver.
// Make one with New and end it with Close.
type Array struct {
	options Options
	stop    context.CancelFunc
	running context.Context // ends at Close
	work    sync.WaitGroup  // everything that outlives a call

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change
	ordinal   int           // of the volume or snapshot made last
	session   int           // of the mount made last
	volumes   map[string]*volume
	machines  map[string]*machine
	snapshots map[string]*snapshot
	groups    map[string]*group
	switches  Switches
	faults    []*Injection
	calls     []*Call
	events    []Event
	found     []*Violation
	server    *server
	nodes     map[*Node]bool
	fences    []netip.Prefix // sorted
}

// New returns an array without volumes and machines, whose driver does not
// serve yet. Its switches are DefaultSwitches.
func New(options Options) *Array {
	if options.DriverName == "" {
		options.DriverName = DefaultDriverName
	}
	if options.WriteEvery <= 0 {
		options.WriteEvery = DefaultWriteEvery
	}
	if options.Capacity <= 0 {
		options.Capacity = DefaultCapacity
	}
	if options.Mounts == nil {
		options.Mounts = &imagined{}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	a := &Array{
		options:   options,
		changed:   make(chan struct{}),
		volumes:   map[string]*volume{},
		machines:  map[string]*machine{},
		snapshots: map[string]*snapshot{},
		groups:    map[string]*group{},
		switches:  DefaultSwitches(),
		nodes:     map[*Node]bool{},
	}
	a.running, a.stop = context.WithCancel(context.Background())
	a.work.Go(a.runWriters)
	return a
}

// DriverName is the name that the driver reports.
func (a *Array) DriverName() string { return a.options.DriverName }

// Close ends all servers and writers at once and waits for them. What the
// array has recorded can still be read.
func (a *Array) Close() {
	a.stop()
	a.Kill()
	for _, n := range a.liveNodes() {
		n.Kill()
	}
	a.work.Wait()
}

func (a *Array) liveNodes() []*Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var nodes []*Node
	for n := range a.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// changedLocked wakes everyone who waits for a change of state.
func (a *Array) changedLocked() {
	close(a.changed)
	a.changed = make(chan struct{})
}
