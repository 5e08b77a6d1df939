package csi

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A frame is a message as it stands on the wire, whatever is in it.
type frame []byte

// frames is the codec of a server whose answers are no messages.
type frames struct{}

func (frames) Name() string                  { return "proto" }
func (frames) Marshal(v any) ([]byte, error) { return *v.(*frame), nil }
func (frames) Unmarshal(text []byte, v any) error {
	*v.(*frame) = slices.Clone(text)
	return nil
}

// bytesDriver is a driver that answers with bytes, on a real socket.
type bytesDriver struct {
	mu sync.Mutex
	// info, capabilities and got are what it answers to the three calls that have one answer.
	info, capabilities, got []byte
	// pages are what ListVolumes answers, one call after the other; then the last one again.
	pages [][]byte
	// gets and lists are the errors of ControllerGetVolume, and of ListVolumes in place of the page
	// at; failures is how often the latter comes.
	gets, lists  *status.Status
	at, failures int
	page, calls  int
}

func (d *bytesDriver) serve(_ any, stream grpc.ServerStream) error {
	var request frame
	if err := stream.RecvMsg(&request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	d.mu.Lock()
	answer, err := d.answer(method, request)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return stream.SendMsg((*frame)(&answer))
}

func (d *bytesDriver) answer(method string, request []byte) ([]byte, error) {
	switch method {
	case spec.Identity_GetPluginInfo_FullMethodName:
		return d.info, nil
	case spec.Controller_ControllerGetCapabilities_FullMethodName:
		return d.capabilities, nil
	case spec.Controller_ControllerGetVolume_FullMethodName:
		return d.got, d.gets.Err()
	case spec.Controller_ListVolumes_FullMethodName:
		var asked spec.ListVolumesRequest
		if err := proto.Unmarshal(request, &asked); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if d.calls++; asked.GetStartingToken() == "" {
			d.page = 0
		}
		if d.page == d.at && d.failures > 0 && d.lists.Code() != codes.OK {
			d.failures--
			return nil, d.lists.Err()
		}
		page := d.pages[min(d.page, len(d.pages)-1)]
		d.page++
		return page, nil
	}
	return nil, status.Error(codes.Unimplemented, method)
}

// listens is the connection to a bytesDriver.
func (d *bytesDriver) listens(f *testing.F) *grpc.ClientConn {
	f.Helper()
	dir, err := os.MkdirTemp("", "driver") // short: a socket is in it
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		f.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(d.serve))
	go server.Serve(listener)
	f.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	return conn
}

// listing is what an honest reader makes of the pages: the entries of the volume, and whether the list
// has an end that can be reached.
func (d *bytesDriver) listing(ids *Identity, volume string) (entries []*spec.ListVolumesResponse_Entry, whole bool) {
	for i, seen := 0, map[string]bool{}; ; i++ {
		var page spec.ListVolumesResponse
		if proto.Unmarshal(d.pages[min(i, len(d.pages)-1)], &page) != nil {
			return nil, false
		}
		for _, e := range page.GetEntries() {
			if ids.Same(e.GetVolume().GetVolumeId(), volume) {
				entries = append(entries, e)
			}
		}
		token := page.GetNextToken()
		if token == "" {
			return entries, true
		}
		if seen[token] {
			return nil, false
		}
		seen[token] = true
	}
}

// Whatever a driver answers, to every call whose answer is read: it is a driver only if it says its name;
// a volume is published where an answer names it for that volume, and nowhere else; of an answer that
// cannot be read, is an error, has no end or stops before it nothing is taken; that a volume is published
// nowhere is taken anew only of a driver that says it of the volume; and each question ends after a bounded number of calls.
func FuzzDriver(f *testing.F) {
	wire := func(m proto.Message) []byte {
		out, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return out
	}
	can := func(all ...spec.ControllerServiceCapability_RPC_Type) []byte {
		var answer spec.ControllerGetCapabilitiesResponse
		for _, one := range all {
			answer.Capabilities = append(answer.Capabilities, &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: one}}})
		}
		return wire(&answer)
	}
	page := func(token string, entries ...*spec.ListVolumesResponse_Entry) []byte {
		return wire(&spec.ListVolumesResponse{NextToken: token, Entries: entries})
	}
	details := wire(&anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.StringValue", Value: wire(wrapperspb.String("why"))})
	named, lists, gets := wire(&spec.GetPluginInfoResponse{Name: anyDriver}), can(listVolumes, listPublished), can(getVolume, listPublished)
	silent := &spec.ListVolumesResponse_Entry{Volume: &spec.Volume{VolumeId: "vol-1"}}
	one, two := page("2", listed("vol-1", "b", "", "a"), listed("")), page("", listed("vol-1", "c"), &spec.ListVolumesResponse_Entry{}, listed("vol-2", "d"))
	none := wire(&spec.ControllerGetVolumeResponse{})
	f.Add(named, lists, none, one, two, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add(named, lists, none, one, one, one, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1") // the same token again
	f.Add(named, lists, none, one, page("3"), page("2"), uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add(named, lists, none, one, []byte{0xff}, two, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1") // which cannot be read
	f.Add(named, lists, none, one, two, []byte{}, uint32(0), uint32(codes.Aborted), uint8(1), uint8(1), details, "vol-1")
	f.Add(named, lists, none, one, two, []byte{}, uint32(0), uint32(codes.Aborted), uint8(1), uint8(9), []byte{}, "vol-1")
	f.Add(named, lists, none, one, two, []byte{}, uint32(0), uint32(codes.Unavailable), uint8(1), uint8(1), details, "vol-1")
	f.Add(named, lists, none, one, two, []byte{}, uint32(0), uint32(codes.NotFound), uint8(0), uint8(1), details, "vol-1")
	f.Add(named, lists, none, page("", silent), []byte{}, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1") // lists the volume, and not its nodes
	f.Add(named, lists, none, page("", listed("vol-2", "a")), []byte{}, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add(named, gets, wire(got("vol-1", "b", "a", "", "b")), one, two, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add(named, gets, none, one, two, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1") // gets it, and says nothing of it
	f.Add(named, gets, none, one, two, []byte{}, uint32(codes.NotFound), uint32(0), uint8(0), uint8(0), details, "vol-1")
	f.Add(named, can(getVolume, listVolumes, listPublished), none, one, two, []byte{}, uint32(codes.Unimplemented), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add(named, can(getVolume), wire(got("vol-1", "a")), one, two, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add(wire(&spec.GetPluginInfoResponse{}), lists, none, one, two, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "vol-1")
	f.Add([]byte{0x0a, 0x01, 0xff}, []byte{0x0a, 0x00, 0x0a, 0x04, 0x0a, 0x02, 0x08, 0x63}, none, one, two, []byte{}, uint32(0), uint32(0), uint8(0), uint8(0), []byte{}, "")
	d := &bytesDriver{}
	conn := d.listens(f)
	f.Fuzz(func(t *testing.T, info, capabilities, got, first, second, third []byte, getCode, listCode uint32, at, failures uint8, details []byte, volume string) {
		if !utf8.ValidString(volume) {
			return // no request
		}
		failure := func(code uint32) *status.Status {
			s := status.New(codes.Code(code%17), "the driver says so\x1b[2J")
			p := s.Proto()
			var any anypb.Any
			if proto.Unmarshal(details, &any) == nil {
				p.Details = append(p.Details, &any)
			}
			return status.FromProto(p)
		}
		d.mu.Lock()
		d.info, d.capabilities, d.got, d.pages = info, capabilities, got, [][]byte{first, second, third}
		d.gets, d.lists, d.at, d.failures = failure(getCode), failure(listCode), int(at%3), int(failures)
		d.mu.Unlock()

		life, end := context.WithCancel(t.Context())
		defer end()
		driver, err := NewDriver(life, conn)
		var who spec.GetPluginInfoResponse
		var can spec.ControllerGetCapabilitiesResponse
		sound := proto.Unmarshal(info, &who) == nil && who.GetName() != "" && proto.Unmarshal(capabilities, &can) == nil
		if (err == nil) != sound || (driver != nil) != sound {
			t.Fatalf("it is a driver: %t, %v, and it says %v, %v", driver != nil, err, &who, &can)
		}
		if err != nil {
			return
		}
		if driver.Name() != who.GetName() {
			t.Errorf("it is called %q, and says %q", driver.Name(), who.GetName())
		}
		has := func(want spec.ControllerServiceCapability_RPC_Type) bool {
			said := slices.ContainsFunc(can.GetCapabilities(), func(c *spec.ControllerServiceCapability) bool {
				return c.GetRpc() != nil && c.GetRpc().GetType() == want
			})
			if has, err := driver.Has(t.Context(), want); has != said || err != nil {
				t.Errorf("it can %s: %t, %v, and says %v", want, has, err, &can)
			}
			return said
		}
		for _, ctx := range []context.Context{t.Context(), Anew(t.Context())} {
			d.mu.Lock()
			d.failures, d.calls = int(failures), 0
			d.mu.Unlock()
			nodes, told, err := driver.PublishedNodes(ctx, volume)
			want, tells, fails := d.expect(driver.Identity(), volume, has, int(failures), anew(ctx))
			if (err != nil) != fails || told != tells || !slices.Equal(nodes, want) {
				t.Errorf("anew %t: volume %q is published to %q (told %t, %v), and what it answers amounts to %q (told %t, an error: %t)", anew(ctx), volume, nodes, told, err, want, tells, fails)
			}
			if d.mu.Lock(); d.calls > (1+listRestarts)*(len(d.pages)+1) {
				t.Errorf("%d calls for a list of %d pages", d.calls, len(d.pages))
			}
			d.mu.Unlock()
		}
	})
}

// expect is what the answers amount to, read by the specification.
func (d *bytesDriver) expect(ids *Identity, volume string, has func(spec.ControllerServiceCapability_RPC_Type) bool, failures int, anew bool) (nodes []string, told, fails bool) {
	tells, lists := has(listPublished), has(listPublished) && has(listVolumes)
	if has(getVolume) {
		var answer spec.ControllerGetVolumeResponse
		wrong := proto.Unmarshal(d.got, &answer) != nil
		switch code := d.gets.Code(); {
		case code == codes.OK && wrong:
			return nil, false, true
		case code == codes.OK:
			nodes = idsOf(answer.GetStatus().GetPublishedNodeIds())
			if anew { // status is required
				return nodes, tells && answer.GetStatus() != nil, false
			}
			return nodes, tells || len(nodes) > 0, false
		case code == codes.NotFound && !lists:
			return nil, tells && !anew, false
		case code != codes.NotFound && code != codes.Unimplemented:
			return nil, false, true
		}
	}
	if !lists {
		return nil, false, false
	}
	entries, whole := d.listing(ids, volume)
	switch code, reached := d.lists.Code(), d.reaches(d.at); {
	case code == codes.OK || failures == 0 || !reached:
	case code == codes.Unimplemented:
		return nil, false, false
	case code != codes.Aborted || failures > listRestarts:
		return nil, false, true
	}
	if !whole {
		return nil, false, true
	}
	there := len(entries) > 0
	for _, e := range entries {
		nodes = append(nodes, e.GetStatus().GetPublishedNodeIds()...)
		there = there && e.GetStatus() != nil // required of a driver that says that it lists nodes
	}
	return idsOf(nodes), there || !anew, false
}

// reaches tells whether a reader comes as far as that page.
func (d *bytesDriver) reaches(at int) bool {
	seen := map[string]bool{}
	for i := range at {
		var page spec.ListVolumesResponse
		if proto.Unmarshal(d.pages[min(i, len(d.pages)-1)], &page) != nil || page.GetNextToken() == "" || seen[page.GetNextToken()] {
			return false
		}
		seen[page.GetNextToken()] = true
	}
	return true
}

func idsOf(said []string) (ids []string) {
	for _, id := range said {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
