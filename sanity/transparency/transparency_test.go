package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/transparency/wire"
)

// asMeddler makes the test binary a proxy that is not transparent, to be run in
// csi-fencepost's place.
const asMeddler = "CSI_FENCEPOST_TEST_AS_MEDDLER"

func TestMain(m *testing.M) {
	if os.Getenv(asMeddler) != "" {
		meddle(os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

func TestNothingDiffersButTheNamedExceptions(t *testing.T) {
	if err := controlplane.NoteSources(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), nil, &out, os.Stderr); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, exception := range wire.Exceptions {
		if !strings.Contains(out.String(), exception.Name) {
			t.Errorf("the exception %q is not named", exception.Name)
		}
	}
	t.Log("\n" + out.String())
}

// A comparison that finds nothing is worth what it could have found.
func TestProxyThatMeddlesIsFound(t *testing.T) {
	t.Setenv(asMeddler, "1")
	folder, err := os.MkdirTemp("", "meddler-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "driver.sock")
	driver, err := wire.StartDriver(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Stop()
	proxied, stop, err := startProxy(t.Context(), folder, "meddler", os.Args[0], socket)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	spoiled := []string{"metadata", "header, trailer", "error at once", "error, details", "no deadline"}
	properties := slices.DeleteFunc(slices.Clone(wire.Properties), func(p wire.Property) bool {
		return p.Name != "bytes" && !slices.Contains(spoiled, p.Name)
	})
	outcomes, err := compare(t.Context(), driver, socket, proxied, properties)
	if err != nil {
		t.Fatal(err)
	}
	// What the meddler does to each call, by the property that finds it.
	found := map[string]int{}
	for _, o := range outcomes {
		if o.Fault() {
			found[o.Property]++
		}
	}
	if found["bytes"] > 0 {
		t.Errorf("bytes: found for %d methods, and the meddler does not touch them", found["bytes"])
	}
	for _, property := range spoiled {
		if found[property] != len(wire.Methods()) {
			t.Errorf("%s: found for %d methods of %d", property, found[property], len(wire.Methods()))
		}
	}
	if faults := printCalls(io.Discard, properties, outcomes); faults == 0 {
		t.Error("the table has no fault")
	}
}

// meddle is a proxy that sorts metadata, adds a deadline, and drops trailers and
// details: what a careless proxy does.
func meddle(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var listen, target string
	for _, arg := range args {
		if path, ok := strings.CutPrefix(arg, "--listen="); ok {
			listen = path
		}
		if path, ok := strings.CutPrefix(arg, "--csi-address="); ok {
			target = path
		}
	}
	driver, err := grpc.NewClient("unix://"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	server := meddlingServer(driver)
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	if err := serveUnix(server, listen); err != nil {
		panic(err)
	}
}

// sorted is what a map of single values leaves of metadata.
func sorted(md metadata.MD) metadata.MD {
	kept := metadata.MD{}
	for key, values := range md {
		if !strings.HasPrefix(key, ":") && key != "grpc-accept-encoding" {
			kept.Set(key, values[len(values)-1])
		}
	}
	return kept
}
