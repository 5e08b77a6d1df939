package proxy_test

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

func TestAuthorityOfTheCallerReachesTheDriver(t *testing.T) {
	d := startDriver(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	for name, socket := range map[string]string{"direct": d.path, "proxied": e.path} {
		t.Run(name, func(t *testing.T) {
			for want, options := range map[string][]grpc.DialOption{
				"localhost":               nil, // grpc-go's own for a unix socket
				"driver.example.com:443":  {grpc.WithAuthority("driver.example.com:443")},
				"%2Fvar%2Flib%2Fcsi.sock": {grpc.WithAuthority("%2Fvar%2Flib%2Fcsi.sock")}, // of old grpc-go
				"[2001:db8::1]:1":         {grpc.WithAuthority("[2001:db8::1]:1")},
			} {
				conn := connect(t, socket, options...)
				if _, err := callUnary(t.Context(), conn, nil); err != nil {
					t.Errorf("%s: %v", want, err)
					continue
				}
				if _, err := spec.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &publishRequest{}); err != nil {
					t.Errorf("%s: publish: %v", want, err)
					continue
				}
				for _, method := range []string{echoUnary, publishMethod} {
					calls := d.calls(method)
					if got := values(calls[len(calls)-1].Header, ":authority"); got != `["`+want+`"]` {
						t.Errorf("%s: the driver saw :authority %s, want %q", method, got, want)
					}
				}
			}
		})
	}
}
