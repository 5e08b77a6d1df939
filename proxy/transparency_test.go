package proxy_test

import (
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/sanity/transparency/wire"
)

func TestEveryRPCLooksToCallerAndDriverAsItDoesDirectly(t *testing.T) {
	path := filepath.Join(shortDir(t), "driver.sock")
	driver, err := wire.StartDriver(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Stop)
	e := startEdge(t, t.Context(), nil, proxy.Options{Driver: dialSocket(t, path)})
	var conns []*grpc.ClientConn
	for _, socket := range []string{path, e.path} {
		conn, err := wire.Dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	// TestMessagesOfManyMegabytesPass has a call of each kind; 40 of them take long.
	properties := slices.DeleteFunc(slices.Clone(wire.Properties), func(p wire.Property) bool { return p.Name == "> 4 MiB" })
	compared := 0
	for _, o := range wire.Compare(t.Context(), driver, conns[0], conns[1], properties) {
		if o.Fits {
			compared++
		}
		if o.Err != nil {
			t.Errorf("%s, %s: %v", o.Method.Path, o.Property, o.Err)
		}
		for _, d := range o.Differences {
			if d.Exception == "" {
				t.Errorf("%s, %s: %s", o.Method.Path, o.Property, d)
			}
		}
	}
	if want := 40 * 12; compared < want {
		t.Errorf("%d comparisons, want %d at least: 36 RPCs of the spec and 4 of another service", compared, want)
	}
}
