package bed

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// LogOf is everything that a process has printed.
func (s *Stage) LogOf(p *controlplane.Process) string {
	s.T.Helper()
	text, err := os.ReadFile(p.LogFile())
	s.must("log of "+p.Name(), err)
	return string(text)
}

// WaitLog waits until a process has printed a line that matches.
func (s *Stage) WaitLog(p *controlplane.Process, limit time.Duration, pattern string) string {
	s.T.Helper()
	line, wanted := "", regexp.MustCompile(pattern)
	s.WaitFor(limit, p.Name()+" logs "+pattern, func() bool {
		line = wanted.FindString(s.LogOf(p))
		return line != ""
	})
	return line
}

var servingHTTP = regexp.MustCompile(`"Serving metrics and health" address="([^"]+)"`)

// HTTPAddress is where a csi-fencepost serves HTTP; empty while it does not.
func (s *Stage) HTTPAddress(p *controlplane.Process) string {
	s.T.Helper()
	found := servingHTTP.FindAllStringSubmatch(s.LogOf(p), -1)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1][1]
}

// HTTP asks a path of a csi-fencepost that was started with
// --http-endpoint=127.0.0.1:0. The code is 0 while nothing answers.
func (s *Stage) HTTP(p *controlplane.Process, path string) (code int, body string) {
	s.T.Helper()
	address := s.HTTPAddress(p)
	if address == "" {
		return 0, ""
	}
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// Caller calls the controller service on one of the stage's sockets ("fp.sock",
// "csi.sock"), as external-attacher does.
func (s *Stage) Caller(socket string) spec.ControllerClient {
	s.T.Helper()
	conn, err := grpc.NewClient("unix://"+s.socket(socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must("connection to "+socket, err)
	s.T.Cleanup(func() { conn.Close() })
	return spec.NewControllerClient(conn)
}

// PublishRequest is a request for the volume on that node, as external-attacher
// makes it for a ReadWriteOnce filesystem.
func (v *Volume) PublishRequest(n *Node) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: v.Handle, NodeId: n.ID, VolumeCapability: &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}}
}

// DriverSocket is the path of the driver's socket; Socket that of another one in
// the stage's folder.
func (s *Stage) DriverSocket() string             { return s.socket("csi.sock") }
func (s *Stage) Socket(name string) string        { return s.socket(name) }
func (s *Stage) ServiceAccountKubeconfig() string { return s.serviceAccount() }
