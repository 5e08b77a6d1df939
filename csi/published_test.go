package csi

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	listVolumes    = spec.ControllerServiceCapability_RPC_LIST_VOLUMES
	listPublished  = spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES
	getVolume      = spec.ControllerServiceCapability_RPC_GET_VOLUME
	publishVolumes = spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
)

// testDriver is a driver on a socket.
type testDriver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	name string

	mu           sync.Mutex
	capabilities []spec.ControllerServiceCapability_RPC_Type
	published    map[string][]string // of each volume
	page         int                 // volumes on a page; 0: all
	asked        int                 // for its capabilities
	silent       bool                // about them
	onAsked      func()              // for them
	list         func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error)
	get          func(volume string) (*spec.ControllerGetVolumeResponse, error)
}

func (d *testDriver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: d.name}, nil
}

func (d *testDriver) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onAsked != nil {
		d.onAsked()
	}
	if d.silent {
		return nil, status.Error(codes.Internal, "no")
	}
	d.asked++
	var out []*spec.ControllerServiceCapability
	for _, c := range d.capabilities {
		out = append(out, &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: c}}})
	}
	return &spec.ControllerGetCapabilitiesResponse{Capabilities: out}, nil
}

func (d *testDriver) ListVolumes(_ context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	if d.list != nil {
		return d.list(r)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	from := 0
	if r.StartingToken != "" {
		if _, err := fmt.Sscan(r.StartingToken, &from); err != nil {
			return nil, status.Error(codes.Aborted, "bad token")
		}
	}
	var entries []*spec.ListVolumesResponse_Entry
	for i := range 10 {
		volume := fmt.Sprintf("vol-%d", i)
		if nodes, there := d.published[volume]; there {
			entries = append(entries, listed(volume, nodes...))
		}
	}
	if d.page == 0 || from+d.page >= len(entries) {
		return &spec.ListVolumesResponse{Entries: entries[from:]}, nil
	}
	return &spec.ListVolumesResponse{Entries: entries[from : from+d.page], NextToken: fmt.Sprint(from + d.page)}, nil
}

func listed(volume string, nodes ...string) *spec.ListVolumesResponse_Entry {
	return &spec.ListVolumesResponse_Entry{Volume: &spec.Volume{VolumeId: volume}, Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes}}
}

func (d *testDriver) ControllerGetVolume(_ context.Context, r *spec.ControllerGetVolumeRequest) (*spec.ControllerGetVolumeResponse, error) {
	if d.get != nil {
		return d.get(r.VolumeId)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes, there := d.published[r.VolumeId]
	if !there {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	return got(r.VolumeId, nodes...), nil
}

func got(volume string, nodes ...string) *spec.ControllerGetVolumeResponse {
	return &spec.ControllerGetVolumeResponse{Volume: &spec.Volume{VolumeId: volume}, Status: &spec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodes}}
}

func (d *testDriver) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// serve starts the driver on a socket.
func (d *testDriver) serve(t *testing.T, socket string) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, d)
	spec.RegisterControllerServer(server, d)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return server
}

func connect(t *testing.T, d *testDriver) *Driver {
	t.Helper()
	if d.name == "" {
		d.name = anyDriver
	}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	d.serve(t, socket)
	return dial(t, socket)
}

func connectTo(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func dial(t *testing.T, socket string) *Driver {
	t.Helper()
	driver, err := NewDriver(t.Context(), connectTo(t, socket))
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

type capabilities = []spec.ControllerServiceCapability_RPC_Type

func TestPublishedNodesByWhatTheDriverCan(t *testing.T) {
	published := map[string][]string{"vol-1": {"b", "", "a", "b"}, "vol-2": {"c"}, "vol-3": nil}
	gone := status.Error(codes.NotFound, "no such volume")
	unimplemented := status.Error(codes.Unimplemented, "no")
	tests := []struct {
		name   string
		driver *testDriver
		volume string
		nodes  []string
		listed bool
		code   codes.Code
	}{
		{"nothing", &testDriver{capabilities: capabilities{publishVolumes}}, "vol-1", nil, false, 0},
		{"lists volumes without nodes", &testDriver{capabilities: capabilities{listVolumes}}, "vol-1", nil, false, 0},
		{"lists", &testDriver{capabilities: capabilities{listVolumes, listPublished}}, "vol-1", []string{"a", "b"}, true, 0},
		{"lists, published nowhere", &testDriver{capabilities: capabilities{listVolumes, listPublished}}, "vol-3", nil, true, 0},
		{"lists, unknown volume", &testDriver{capabilities: capabilities{listVolumes, listPublished}}, "vol-9", nil, true, 0},
		{"lists in pages", &testDriver{capabilities: capabilities{listVolumes, listPublished}, page: 1}, "vol-2", []string{"c"}, true, 0},
		{"gets", &testDriver{capabilities: capabilities{getVolume, listPublished}}, "vol-1", []string{"a", "b"}, true, 0},
		{"gets, published nowhere", &testDriver{capabilities: capabilities{getVolume, listPublished}}, "vol-3", nil, true, 0},
		{"gets, unknown volume", &testDriver{capabilities: capabilities{getVolume, listPublished}}, "vol-9", nil, true, 0},
		{"gets, nodes are optional", &testDriver{capabilities: capabilities{getVolume}}, "vol-1", []string{"a", "b"}, true, 0},
		{"gets, nodes are optional and silent", &testDriver{capabilities: capabilities{getVolume}}, "vol-3", nil, false, 0},
		{"gets, nodes are optional and the volume unknown", &testDriver{capabilities: capabilities{getVolume}}, "vol-9", nil, false, 0},
		{"says that it gets, and lists", &testDriver{
			capabilities: capabilities{getVolume, listVolumes, listPublished},
			get:          func(string) (*spec.ControllerGetVolumeResponse, error) { return nil, unimplemented },
		}, "vol-1", []string{"a", "b"}, true, 0},
		{"the list has the last word on an unknown volume", &testDriver{
			capabilities: capabilities{getVolume, listVolumes, listPublished},
			get:          func(string) (*spec.ControllerGetVolumeResponse, error) { return nil, gone },
		}, "vol-1", []string{"a", "b"}, true, 0},
		{"says that it lists, and does not", &testDriver{
			capabilities: capabilities{listVolumes, listPublished},
			list:         func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) { return nil, unimplemented },
		}, "vol-1", nil, false, 0},
		{"get fails", &testDriver{
			capabilities: capabilities{getVolume, listVolumes, listPublished},
			get: func(string) (*spec.ControllerGetVolumeResponse, error) {
				return nil, status.Error(codes.Internal, "no")
			},
		}, "vol-1", nil, false, codes.Internal},
		{"list fails", &testDriver{
			capabilities: capabilities{listVolumes, listPublished},
			list: func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
				return nil, status.Error(codes.Unavailable, "no")
			},
		}, "vol-1", nil, false, codes.Unavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.driver.published = published
			nodes, listed, err := connect(t, test.driver).PublishedNodes(t.Context(), test.volume)
			if len(nodes)+len(test.nodes) > 0 && !reflect.DeepEqual(nodes, test.nodes) || listed != test.listed || status.Code(err) != test.code {
				t.Errorf("got %q, %v, %v, want %q, %v, %s", nodes, listed, err, test.nodes, test.listed, test.code)
			}
		})
	}
}

func TestAMigratedVolumeIsFoundInTheList(t *testing.T) {
	d := connect(t, &testDriver{
		name: gceDriver, capabilities: capabilities{listVolumes, listPublished},
		list: func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
			return &spec.ListVolumesResponse{Entries: []*spec.ListVolumesResponse_Entry{
				listed("projects/p/zones/a/disks/d", "n1"), listed("projects/p/zones/b/disks/d", "n2"), listed("projects/p/zones/a/disks/e", "n3"),
			}}, nil
		},
	})
	for volume, want := range map[string][]string{
		"projects/UNSPECIFIED/zones/a/disks/d":           {"n1"},
		"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d": {"n1", "n2"},
		"projects/p/zones/b/disks/d":                     {"n2"},
	} {
		if nodes, listed, err := d.PublishedNodes(t.Context(), volume); !reflect.DeepEqual(nodes, want) || !listed || err != nil {
			t.Errorf("%s: %v, %v, %v", volume, nodes, listed, err)
		}
	}
}

func TestAListWithoutEndIsAnError(t *testing.T) {
	d := connect(t, &testDriver{
		capabilities: capabilities{listVolumes, listPublished},
		list: func(r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
			return &spec.ListVolumesResponse{NextToken: map[string]string{"": "1", "1": "2", "2": "1"}[r.StartingToken]}, nil
		},
	})
	_, _, err := d.PublishedNodes(t.Context(), "vol-1")
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), `next_token "1" twice`) {
		t.Errorf("got %v", err)
	}
}

func TestAListWhoseTokenExpiredIsBegunAnew(t *testing.T) {
	expired := 1
	var tokens []string
	driver := &testDriver{
		capabilities: capabilities{listVolumes, listPublished},
		list: func(r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
			tokens = append(tokens, r.StartingToken)
			switch {
			case r.StartingToken == "":
				return &spec.ListVolumesResponse{NextToken: "x", Entries: []*spec.ListVolumesResponse_Entry{listed("vol-1", "a")}}, nil
			case expired > 0:
				expired--
				return nil, status.Error(codes.Aborted, "token expired")
			}
			return &spec.ListVolumesResponse{Entries: []*spec.ListVolumesResponse_Entry{listed("vol-2", "b")}}, nil
		},
	}
	d := connect(t, driver)
	nodes, listed, err := d.PublishedNodes(t.Context(), "vol-2")
	if !reflect.DeepEqual(nodes, []string{"b"}) || !listed || err != nil {
		t.Errorf("got %v, %v, %v", nodes, listed, err)
	}
	if got := strings.Join(tokens, ","); got != ",x,,x" {
		t.Errorf("tokens %s", got)
	}
	expired, tokens = 1000, nil
	if _, _, err := d.PublishedNodes(t.Context(), "vol-2"); status.Code(err) != codes.Aborted {
		t.Errorf("got %v", err)
	}
	if got, want := strings.Join(tokens, ","), ",x"+strings.Repeat(",,x", listRestarts); got != want {
		t.Errorf("tokens %s, want %s", got, want)
	}
}

func TestAnAnswerIsNeverOlderThanTheQuestionAndIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = time.Minute
		state, count, running := "first", 0, 0
		var l listings
		l.list = func(context.Context) (published, error) {
			// The oldest that a listing can be: what was when it began.
			now := published{"vol-1": {"vol-1": {nodes: []string{state}}}}
			count++
			if running++; running > 1 {
				t.Errorf("the driver lists %d times at once", running)
			}
			time.Sleep(takes)
			running--
			return now, nil
		}
		ask := func(want string) {
			go func() {
				all, err := l.of(t.Context(), t.Context(), "vol-1")
				if got := all["vol-1"]["vol-1"]; err != nil || len(got.nodes) != 1 || got.nodes[0] != want {
					t.Errorf("got %v, %v, want %s", got, err, want)
				}
			}()
		}
		ask("first")
		synctest.Wait()
		state = "second"
		for range 5 {
			ask("second")
		}
		// An impatient caller leaves without spoiling it for the others.
		ctx, cancel := context.WithTimeout(t.Context(), takes/4)
		defer cancel()
		if _, err := l.of(ctx, t.Context(), "vol-2"); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		time.Sleep(takes)
		synctest.Wait()
		state = "third"
		ask("third")
		time.Sleep(3 * takes)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if count != 3 {
			t.Errorf("%d listings for 8 callers", count)
		}
		if l.next != nil || l.last != nil || len(l.left) > 0 {
			t.Error("an old listing is kept")
		}
	})
}

// TestAListingListsOnce: and what is asked for anew is asked of the driver, and says nothing of
// a volume that it does not name.
func TestAListingListsOnce(t *testing.T) {
	lists := 0
	d := &testDriver{capabilities: []spec.ControllerServiceCapability_RPC_Type{listVolumes, listPublished}}
	d.list = func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
		lists++
		return &spec.ListVolumesResponse{Entries: []*spec.ListVolumesResponse_Entry{listed("vol-1", fmt.Sprint(lists))}}, nil
	}
	l := connect(t, d).List(t.Context())
	for _, c := range []struct {
		ctx    context.Context
		volume string
		nodes  []string
		listed bool
	}{
		{t.Context(), "vol-1", []string{"1"}, true},
		{t.Context(), "vol-2", nil, true},
		{Anew(t.Context()), "vol-1", []string{"2"}, true},
		{Anew(t.Context()), "vol-2", nil, false},
		{t.Context(), "vol-1", []string{"1"}, true},
	} {
		if nodes, listed, err := l.PublishedNodes(c.ctx, c.volume); err != nil || listed != c.listed || !slices.Equal(nodes, c.nodes) {
			t.Errorf("%s: got %v, %t, %v, want %v, %t", c.volume, nodes, listed, err, c.nodes, c.listed)
		}
	}
	if lists != 3 {
		t.Errorf("the driver listed %d times, want 3", lists)
	}
	// A driver that says that it can list its volumes, and cannot.
	d = &testDriver{capabilities: d.capabilities, list: func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
		return nil, status.Error(codes.Unimplemented, "no")
	}}
	if nodes, listed, err := connect(t, d).List(t.Context()).PublishedNodes(t.Context(), "vol-1"); err != nil || listed || len(nodes) > 0 {
		t.Errorf("got %v, %t, %v, want that it cannot tell", nodes, listed, err)
	}
}

// TestAListThatTakesLongerThanACallCounts: for whoever asks for that volume again, for a while,
// and for nobody else.
func TestAListThatTakesLongerThanACallCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, patience = 12 * time.Second, 10 * time.Second
		var l listings
		began := 0
		var fails atomic.Bool
		l.list = func(context.Context) (published, error) {
			began++
			now := published{"vol-1": {"vol-1": {nodes: []string{fmt.Sprint(began)}}}}
			failing := fails.Load()
			if time.Sleep(takes); failing {
				return nil, status.Error(codes.Unavailable, "no")
			}
			return now, nil
		}
		ask := func(volume string, want string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			all, err := l.of(ctx, t.Context(), volume)
			if want == "" && status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("after %d lists: got %v, %v, want that it takes too long", began, all, err)
			} else if want != "" && (err != nil || all["vol-1"]["vol-1"].nodes[0] != want) {
				t.Errorf("after %d lists: got %v, %v, want list %s", began, all, err, want)
			}
		}
		ask("vol-1", "")
		ask("vol-1", "1") // in two seconds
		ask("vol-1", "1")
		ask("vol-2", "") // it began before this was asked
		time.Sleep(takes / 2)
		ask("vol-2", "2")
		ask("vol-1", "2") // a newer one has ended
		time.Sleep(listKept + takes)
		ask("vol-1", "") // too old
		fails.Store(true)
		time.Sleep(2*listKept + takes)
		ask("vol-1", "")
		time.Sleep(takes)
		fails.Store(false)
		ask("vol-1", "") // what failed is not kept
		time.Sleep(2*listKept + takes)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.left) > 0 {
			t.Error("an old listing is kept")
		}
	})
}

// A list that failed takes nothing from whoever one that ended before was left to.
func TestAListThatFailsDoesNotReplaceOneThatWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, patience = 12 * time.Second, 10 * time.Second
		var l listings
		began := 0
		l.list = func(context.Context) (published, error) {
			began++
			n := began
			if time.Sleep(takes); n > 1 {
				return nil, status.Error(codes.Unavailable, "no")
			}
			return published{"vol-1": {"vol-1": {nodes: []string{"a"}}}}, nil
		}
		for _, volume := range []string{"vol-1", "vol-2"} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if all, err := l.of(ctx, t.Context(), volume); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: got %v, %v, want that it takes too long", volume, all, err)
			}
			cancel()
			time.Sleep(takes - patience + time.Second) // until it ends
		}
		if all, err := l.of(t.Context(), t.Context(), "vol-1"); err != nil || all["vol-1"]["vol-1"].nodes[0] != "a" || began != 2 {
			t.Errorf("after %d lists: got %v, %v", began, all, err)
		}
		time.Sleep(2*listKept + takes)
	})
}

// What is asked anew is not answered by a list that was left to the volume.
func TestAListThatWasLeftDoesNotAnswerWhatIsAskedAnew(t *testing.T) {
	d := connect(t, &testDriver{capabilities: capabilities{listVolumes, listPublished}, published: map[string][]string{"vol-1": {"now"}}})
	left := &listing{done: make(chan struct{}), all: published{"vol-1": {"vol-1": {nodes: []string{"before"}}}}}
	close(left.done)
	d.listings.left = map[string]*listing{"vol-1": left}
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{{t.Context(), "before"}, {Anew(t.Context()), "now"}} { // and then the newer one is left
		if nodes, listed, err := d.PublishedNodes(c.ctx, "vol-1"); err != nil || !listed || !slices.Equal(nodes, []string{c.want}) {
			t.Errorf("got %v, %t, %v, want %s", nodes, listed, err, c.want)
		}
	}
}

// Whoever waits for a list that goes on is told so, and so is whoever asks one that failed.
func TestAListThatGoesOnIsToldFromOneThatFailed(t *testing.T) {
	over := make(chan struct{})
	d := connect(t, &testDriver{capabilities: capabilities{listVolumes, listPublished}, list: func(*spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
		<-over
		return nil, status.Error(codes.Unavailable, "no")
	}})
	if _, err := d.readCapabilities(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, listed, err := d.PublishedNodes(ctx, "vol-1")
	if listed || err == nil || !strings.Contains(err.Error(), "is still listing its volumes") {
		t.Errorf("while it goes on: %t, %v", listed, err)
	}
	close(over)
	_, listed, err = d.PublishedNodes(Anew(t.Context()), "vol-1")
	if listed || status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "still") {
		t.Errorf("once it has failed: %t, %v", listed, err)
	}
}

func TestCallersAtOnceGetTheirListing(t *testing.T) {
	driver := &testDriver{capabilities: capabilities{listVolumes, listPublished}, published: map[string][]string{"vol-1": {"a"}}, page: 1}
	d := connect(t, driver)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if nodes, listed, err := d.PublishedNodes(t.Context(), "vol-1"); !reflect.DeepEqual(nodes, []string{"a"}) || !listed || err != nil {
				t.Errorf("got %v, %v, %v", nodes, listed, err)
			}
		})
	}
	group.Wait()
}

func TestCapabilitiesAreReadOnceAndAgainAfterEachReconnect(t *testing.T) {
	driver := &testDriver{name: anyDriver, capabilities: capabilities{publishVolumes}, published: map[string][]string{"vol-1": {"a"}}}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	server := driver.serve(t, socket)
	d := dial(t, socket)
	if d.Name() != anyDriver || d.Identity().Driver != anyDriver {
		t.Errorf("name %q", d.Name())
	}
	for range 3 {
		if has, err := d.Has(t.Context(), publishVolumes); !has || err != nil {
			t.Errorf("%v, %v", has, err)
		}
		if _, listed, err := d.PublishedNodes(t.Context(), "vol-1"); listed || err != nil {
			t.Errorf("%v, %v", listed, err)
		}
	}
	driver.set(func() {
		if driver.asked > 2 {
			t.Errorf("asked %d times", driver.asked)
		}
	})
	// Updated, and rolled back.
	for _, version := range []capabilities{{listVolumes, listPublished}, {publishVolumes}} {
		tells := len(version) > 1
		driver.set(func() { driver.capabilities = version })
		server.Stop() // as a crash does
		server = driver.serve(t, socket)
		waitFor(t, func() bool {
			nodes, listed, err := d.PublishedNodes(t.Context(), "vol-1")
			return err == nil && listed == tells && reflect.DeepEqual(nodes, []string{"a"}) == tells
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connection > 50 { // a few states for each of two reconnects
		t.Errorf("the connection was looked at %d times", d.connection)
	}
}

// A driver that is being replaced answers the call in flight, and then ends.
func TestWhatADriverSaysThatIsLeavingIsNotKept(t *testing.T) {
	for name, reads := range map[string]int{"at the start": 0, "later": 1} {
		t.Run(name, func(t *testing.T) {
			driver := &testDriver{name: anyDriver, capabilities: capabilities{publishVolumes}, published: map[string][]string{"vol-1": {"a"}}}
			socket := filepath.Join(t.TempDir(), "csi.sock")
			server := driver.serve(t, socket)
			conn, gone := connectTo(t, socket), make(chan struct{})
			leave := sync.OnceFunc(func() {
				go func() { defer close(gone); server.GracefulStop() }()
				waitFor(t, func() bool { return conn.GetState() != connectivity.Ready })
			})
			driver.onAsked = func() {
				if driver.asked >= reads {
					leave()
				}
			}
			d, err := NewDriver(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			if reads > 0 {
				server.Stop()
				server = driver.serve(t, socket)
				waitFor(t, func() bool { _, _ = d.Has(t.Context(), publishVolumes); return isClosed(gone) })
			}
			<-gone
			driver.set(func() { driver.capabilities = capabilities{listVolumes, listPublished} })
			driver.serve(t, socket)
			waitFor(t, func() bool {
				nodes, listed, err := d.PublishedNodes(t.Context(), "vol-1")
				return err == nil && listed && reflect.DeepEqual(nodes, []string{"a"})
			})
		})
	}
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestADriverThatIsAwayIsAnErrorAndNotSilence(t *testing.T) {
	driver := &testDriver{name: anyDriver, capabilities: capabilities{listVolumes, listPublished}}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	server := driver.serve(t, socket)
	d := dial(t, socket)
	server.Stop()
	for range 3 {
		if nodes, listed, err := d.PublishedNodes(t.Context(), "vol-1"); status.Code(err) != codes.Unavailable || listed || nodes != nil {
			t.Errorf("got %v, %v, %v", nodes, listed, err)
		}
	}
}

func TestADriverThatDoesNotSayWhoItIsIsNotTakenForOne(t *testing.T) {
	away := connectTo(t, filepath.Join(t.TempDir(), "none.sock"))
	nameless, speechless := filepath.Join(t.TempDir(), "csi.sock"), filepath.Join(t.TempDir(), "csi.sock")
	(&testDriver{}).serve(t, nameless)
	(&testDriver{name: anyDriver, silent: true}).serve(t, speechless)
	for want, conn := range map[string]*grpc.ClientConn{
		"for its name (GetPluginInfo): rpc error":                      away,
		"for its name (GetPluginInfo): driver name is empty":           connectTo(t, nameless),
		"asking driver d.example.com for its controller capabilities:": connectTo(t, speechless),
	} {
		if d, err := NewDriver(t.Context(), conn); d != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", d, err, want)
		}
	}
}

func TestADriverWithoutAControllerCannotTell(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, &testDriver{name: anyDriver})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	if _, listed, err := dial(t, socket).PublishedNodes(t.Context(), "vol-1"); listed || err != nil {
		t.Errorf("%v, %v", listed, err)
	}
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !what(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for 10 s")
		}
	}
}

// What a driver names counts, whatever it says that it can do. Of whom it does not name that says
// nothing where it does not say that it can.
func TestSilenceOfADriverThatTellsOfItsOwnAccordSaysNothing(t *testing.T) {
	d := connect(t, &testDriver{capabilities: capabilities{getVolume}, get: func(volume string) (*spec.ControllerGetVolumeResponse, error) {
		return got(volume, "a"), nil
	}})
	for _, c := range []struct {
		ctx    context.Context
		listed bool
	}{{t.Context(), true}, {Anew(t.Context()), false}} {
		if nodes, listed, err := d.PublishedNodes(c.ctx, "vol-1"); err != nil || listed != c.listed || !slices.Equal(nodes, []string{"a"}) {
			t.Errorf("got %q, %t, %v, want a, %t", nodes, listed, err, c.listed)
		}
	}
}
