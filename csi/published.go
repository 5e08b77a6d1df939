package csi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Driver is the CSI driver as far as its own word is asked for. It may be used
// by many at once.
type Driver struct {
	conn *grpc.ClientConn
	ids  *Identity
	life context.Context

	mu sync.Mutex
	// capabilities; nil: to be read (again).
	capabilities rpc.ControllerCapabilitySet
	// connection counts the changes of the connection's state, so that what
	// was read before one is not kept after it.
	connection int

	listings listings
}

// NewDriver asks the driver behind conn for its name and controller
// capabilities. The capabilities are read again after the connection was lost,
// because another version of the driver may have come back; the name is not.
// life ends what goes on in the background. Errors are the driver's, wrapped.
func NewDriver(life context.Context, conn *grpc.ClientConn) (*Driver, error) {
	name, err := rpc.GetDriverName(life, conn)
	if err != nil {
		return nil, fmt.Errorf("asking the driver for its name (GetPluginInfo): %w", err)
	}
	d := &Driver{conn: conn, ids: &Identity{Driver: name}, life: life}
	d.listings.list = d.list
	// Before they are read: a connection lost meanwhile would not be noticed.
	state := conn.GetState()
	if _, err := d.readCapabilities(life); err != nil {
		return nil, err
	}
	go d.forgetOnReconnect(life, state)
	return d, nil
}

// Name of the driver.
func (d *Driver) Name() string { return d.ids.Driver }

// Identity of the driver's volumes.
func (d *Driver) Identity() *Identity { return d.ids }

// Has tells whether the driver has a controller capability. An error means that
// it had to be asked again and did not answer.
func (d *Driver) Has(ctx context.Context, capability spec.ControllerServiceCapability_RPC_Type) (bool, error) {
	all, err := d.readCapabilities(ctx)
	return all[capability], err
}

func (d *Driver) readCapabilities(ctx context.Context) (rpc.ControllerCapabilitySet, error) {
	d.mu.Lock()
	known, connection := d.capabilities, d.connection
	d.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := rpc.GetControllerCapabilities(ctx, d.conn)
	if status.Code(err) == codes.Unimplemented {
		read, err = rpc.ControllerCapabilitySet{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking driver %s for its controller capabilities: %w", d.Name(), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connection == connection {
		d.capabilities = read
	}
	return read, nil
}

func (d *Driver) forgetOnReconnect(ctx context.Context, state connectivity.State) {
	for d.conn.WaitForStateChange(ctx, state) {
		state = d.conn.GetState() // first: what is read after the next line is of this state, or a later one
		d.mu.Lock()
		d.capabilities = nil
		d.connection++
		d.mu.Unlock()
		if state == connectivity.Shutdown {
			return
		}
	}
}

// PublishedNodes asks the driver to which node IDs a volume is published. The
// answer is never older than the call, and may name too many nodes; but a list
// (ListVolumes) that takes longer than whoever asked could wait goes on, and what it says
// is the answer of whoever asks for that volume until listKept after it. listed is
// false where the driver cannot tell; then nothing follows from an empty answer.
// A volume that the driver does not know is published nowhere. volumeID may have
// UNSPECIFIED parts (see Identity.Same). Errors are the driver's, wrapped.
func (d *Driver) PublishedNodes(ctx context.Context, volumeID string) (nodes []string, listed bool, err error) {
	return d.published(ctx, volumeID, func() (published, error) {
		if anew(ctx) {
			return d.listings.of(ctx, d.life, "")
		}
		return d.listings.of(ctx, d.life, volumeID)
	})
}

// published is PublishedNodes; list says where all volumes are.
func (d *Driver) published(ctx context.Context, volumeID string, list func() (published, error)) (nodes []string, listed bool, err error) {
	has, err := d.readCapabilities(ctx)
	if err != nil {
		return nil, false, err
	}
	tells := has[spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES]
	lists := tells && has[spec.ControllerServiceCapability_RPC_LIST_VOLUMES]
	if has[spec.ControllerServiceCapability_RPC_GET_VOLUME] {
		var said bool
		nodes, said, err = d.get(ctx, volumeID)
		switch code := status.Code(err); {
		case err == nil && anew(ctx):
			return nodes, tells && said, nil
		case err == nil:
			// Without the capability the field is optional: what is named
			// counts, and silence says nothing, of those that are not named either.
			return nodes, tells || len(nodes) > 0, nil
		case code == codes.NotFound && !lists:
			return nil, tells && !anew(ctx), nil
		case code != codes.Unimplemented && code != codes.NotFound:
			return nil, false, fmt.Errorf("asking driver %s about volume %s (ControllerGetVolume): %w", d.Name(), volumeID, err)
		}
	}
	if !lists {
		return nil, false, nil
	}
	all, err := list()
	if status.Code(err) == codes.Unimplemented {
		return nil, false, nil
	}
	if err != nil && ctx.Err() != nil {
		return nil, false, fmt.Errorf("driver %s is still listing its volumes (ListVolumes); what it says will count when this is asked again: %w", d.Name(), err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("asking driver %s for its volumes (ListVolumes): %w", d.Name(), err)
	}
	nodes, said := d.among(all, volumeID)
	return nodes, said || !anew(ctx), nil
}

// Listing is a Driver that is asked where many volumes are: what needs a list of all of them is
// listed once, when it is first needed. In Anew it is as the Driver.
type Listing struct {
	*Driver
	list func() (published, error)
}

// List begins a Listing. Its list ends with ctx.
func (d *Driver) List(ctx context.Context) *Listing {
	return &Listing{d, sync.OnceValues(func() (published, error) { return d.listings.of(ctx, d.life, "") })}
}

// PublishedNodes is the Driver's.
func (l *Listing) PublishedNodes(ctx context.Context, volumeID string) (nodes []string, listed bool, err error) {
	if anew(ctx) {
		return l.Driver.PublishedNodes(ctx, volumeID)
	}
	return l.published(ctx, volumeID, l.list)
}

type anewKey struct{}

// Anew is a context in which an answer is never older than the question, and says nothing of
// a volume that the driver does not name, or names without the status in which the nodes would
// stand: a driver that lists nodes has to give one, be it empty.
func Anew(ctx context.Context) context.Context { return context.WithValue(ctx, anewKey{}, true) }

func anew(ctx context.Context) bool { return ctx.Value(anewKey{}) != nil }

// get asks for one volume. said: the answer has the status in which its nodes stand.
func (d *Driver) get(ctx context.Context, volumeID string) (nodes []string, said bool, err error) {
	answer, err := spec.NewControllerClient(d.conn).ControllerGetVolume(ctx, &spec.ControllerGetVolumeRequest{VolumeId: volumeID})
	if err != nil {
		return nil, false, err
	}
	return nodeSet(answer.GetStatus().GetPublishedNodeIds()), answer.GetStatus() != nil, nil
}

// published is what a listing says of each volume, by Identity.Key and handle.
type published map[string]map[string]*entries

// entries are those of one handle.
type entries struct {
	nodes []string
	// silent tells that one of them has no status, in which its nodes would stand.
	silent bool
}

// among are the nodes of the volume; said: it is in the list, and each of its entries has a status.
func (d *Driver) among(all published, volumeID string) (nodes []string, said bool) {
	silent := false
	for handle, of := range all[d.ids.Key(volumeID)] {
		if d.ids.Same(handle, volumeID) {
			nodes, said, silent = append(nodes, of.nodes...), true, silent || of.silent
		}
	}
	return nodeSet(nodes), said && !silent
}

func nodeSet(ids []string) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

const (
	// listTimeout bounds one whole listing, which serves many callers.
	listTimeout = 2 * time.Minute
	// listKept is how long what nobody could wait for is kept: external-attacher's back-off
	// is as long by then.
	listKept = time.Minute
	// listRestarts is how often a listing is begun anew because the driver calls its own token
	// invalid (ABORTED), as the specification asks.
	listRestarts = 3
)

func (d *Driver) list(ctx context.Context) (published, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for try := 1; ; try++ {
		all, err := d.listOnce(ctx)
		if status.Code(err) != codes.Aborted || try > listRestarts {
			return all, err
		}
	}
}

func (d *Driver) listOnce(ctx context.Context) (published, error) {
	all := published{}
	token, seen := "", map[string]bool{}
	for {
		page, err := spec.NewControllerClient(d.conn).ListVolumes(ctx, &spec.ListVolumesRequest{StartingToken: token})
		if err != nil {
			return nil, err
		}
		for _, entry := range page.GetEntries() {
			handle := entry.GetVolume().GetVolumeId()
			key := d.ids.Key(handle)
			if all[key] == nil {
				all[key] = map[string]*entries{}
			}
			of := all[key][handle]
			if of == nil {
				of = &entries{}
				all[key][handle] = of
			}
			of.nodes = append(of.nodes, entry.GetStatus().GetPublishedNodeIds()...)
			of.silent = of.silent || entry.GetStatus() == nil
		}
		token = page.GetNextToken()
		if token == "" {
			return all, nil
		}
		if seen[token] {
			return nil, status.Errorf(codes.Internal, "the driver's ListVolumes gives next_token %.64q twice, so its list has no end", token)
		}
		seen[token] = true
	}
}

// listings lets callers share a listing that began after each of them asked:
// one that runs, and one that waits for it with everybody who asked meanwhile. A listing that
// took too long for whoever asked is left to those who ask for the same volume again.
type listings struct {
	list func(context.Context) (published, error)

	mu   sync.Mutex
	next *listing
	last *listing
	left map[string]*listing // by volume
}

type listing struct {
	done chan struct{}
	all  published
	err  error
}

// of returns the listing that was left to that volume, or else one that begins after the
// call; always the latter of no volume. It ends with ctx; the listing itself goes on for the
// others, until life ends.
func (l *listings) of(ctx, life context.Context, volume string) (published, error) {
	l.mu.Lock()
	mine := l.left[volume] // none of no volume
	if mine == nil {
		mine = l.freshLocked(life)
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.all, mine.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-mine.done: // meanwhile; whoever takes it away again may have looked already
		return mine.all, mine.err
	default:
	}
	if l.left == nil {
		l.left = map[string]*listing{}
	}
	if volume != "" {
		l.left[volume] = mine
	}
	return nil, status.FromContextError(ctx.Err()).Err()
}

// freshLocked is a listing that begins after the call.
func (l *listings) freshLocked(life context.Context) *listing {
	if l.next == nil {
		before := l.last
		l.next = &listing{done: make(chan struct{})}
		l.last = l.next
		go l.run(life, l.next, before)
	}
	return l.next
}

func (l *listings) run(life context.Context, mine, before *listing) {
	if before != nil {
		<-before.done
	}
	// From here on it may be too old for those who ask.
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	mine.all, mine.err = l.list(life)
	close(mine.done)
	l.mu.Lock()
	if l.last == mine {
		l.last = nil
	}
	for volume, left := range l.left {
		if mine.err == nil && left != l.next && left != l.last {
			l.left[volume] = mine // it is newer
		}
	}
	waited := slices.Contains(slices.Collect(maps.Values(l.left)), mine)
	l.mu.Unlock()
	if waited && mine.err == nil {
		select {
		case <-life.Done():
		case <-time.After(listKept):
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.left, func(_ string, left *listing) bool { return left == mine })
}
