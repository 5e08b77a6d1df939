package csi

import (
	"context"
	"fmt"
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
// answer is never older than the call, and may name too many nodes. listed is
// false where the driver cannot tell; then nothing follows from an empty answer.
// A volume that the driver does not know is published nowhere. volumeID may have
// UNSPECIFIED parts (see Identity.Same). Errors are the driver's, wrapped.
func (d *Driver) PublishedNodes(ctx context.Context, volumeID string) (nodes []string, listed bool, err error) {
	has, err := d.readCapabilities(ctx)
	if err != nil {
		return nil, false, err
	}
	tells := has[spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES]
	lists := tells && has[spec.ControllerServiceCapability_RPC_LIST_VOLUMES]
	if has[spec.ControllerServiceCapability_RPC_GET_VOLUME] {
		nodes, err = d.get(ctx, volumeID)
		switch code := status.Code(err); {
		case err == nil:
			// Without the capability the field is optional: what is named
			// counts, and silence says nothing.
			return nodes, tells || len(nodes) > 0, nil
		case code == codes.NotFound && !lists:
			return nil, tells, nil
		case code != codes.Unimplemented && code != codes.NotFound:
			return nil, false, fmt.Errorf("asking driver %s about volume %s (ControllerGetVolume): %w", d.Name(), volumeID, err)
		}
	}
	if !lists {
		return nil, false, nil
	}
	all, err := d.listings.fresh(ctx, d.life)
	if status.Code(err) == codes.Unimplemented {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("asking driver %s for its volumes (ListVolumes): %w", d.Name(), err)
	}
	return d.among(all, volumeID), true, nil
}

func (d *Driver) get(ctx context.Context, volumeID string) ([]string, error) {
	answer, err := spec.NewControllerClient(d.conn).ControllerGetVolume(ctx, &spec.ControllerGetVolumeRequest{VolumeId: volumeID})
	if err != nil {
		return nil, err
	}
	return nodeSet(answer.GetStatus().GetPublishedNodeIds()), nil
}

// published are the node IDs that a listing names, by Identity.Key and handle.
type published map[string]map[string][]string

func (d *Driver) among(all published, volumeID string) []string {
	var nodes []string
	for handle, ids := range all[d.ids.Key(volumeID)] {
		if d.ids.Same(handle, volumeID) {
			nodes = append(nodes, ids...)
		}
	}
	return nodeSet(nodes)
}

func nodeSet(ids []string) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

const (
	// listTimeout bounds one whole listing, which serves many callers.
	listTimeout = time.Minute
	// listRestarts: how often a listing is begun anew because the driver
	// calls its own token invalid (ABORTED), as the specification asks.
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
				all[key] = map[string][]string{}
			}
			all[key][handle] = append(all[key][handle], entry.GetStatus().GetPublishedNodeIds()...)
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
// one that runs, and one that waits for it with everybody who asked meanwhile.
type listings struct {
	list func(context.Context) (published, error)

	mu   sync.Mutex
	next *listing
	last *listing
}

type listing struct {
	done chan struct{}
	all  published
	err  error
}

// fresh returns a listing that begins after the call. It ends with ctx; the
// listing itself goes on for the others, until life ends.
func (l *listings) fresh(ctx, life context.Context) (published, error) {
	l.mu.Lock()
	if l.next == nil {
		before := l.last
		l.next = &listing{done: make(chan struct{})}
		l.last = l.next
		go l.run(life, l.next, before)
	}
	mine := l.next
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.all, mine.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
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
	defer l.mu.Unlock()
	if l.last == mine {
		l.last = nil
	}
}
