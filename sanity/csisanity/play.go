package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const (
	startLimit = 60 * time.Second // of a csi-fencepost, its driver up
	suiteLimit = 15 * time.Minute // of one run of csi-sanity

	// referenceNode is the reference driver's machine. No Kubernetes knows it.
	referenceNode = "node-of-csi-sanity"
)

// player runs csi-sanity on a driver in one way after the other.
type player struct {
	t         bed.T
	options   options
	folder    string
	suite     string // the csi-sanity binary
	fencepost string
}

// play runs all ways, the direct one first.
func play(t bed.T, o options, progress io.Writer) []result {
	// csi-sanity waits a minute in each test for a driver that is not there.
	for _, socket := range []string{o.driver, o.controller} {
		if socket != "" {
			driverName(t, socket)
		}
	}
	p := prepare(t, o, progress)
	if o.driver == "" {
		p.startReference()
	}
	results := []result{p.direct(), p.withoutKubernetes()}
	if o.kubernetes {
		results = append(results, p.withKubernetes(progress))
	}
	return results
}

// prepare builds the programs.
func prepare(t bed.T, o options, progress io.Writer) *player {
	folder, err := os.MkdirTemp("", "csisanity-") // short: sockets are in it
	must(t, "folder", err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	p := &player{t: t, options: o, folder: folder, suite: filepath.Join(folder, "csi-sanity"), fencepost: filepath.Join(folder, "csi-fencepost")}
	must(t, "csi-sanity", buildSuite(t.Context(), p.suite))
	must(t, "csi-fencepost", controlplane.BuildFencepost(t.Context(), progress, p.fencepost, controlplane.FencepostBuild{}))
	return p
}

// buildSuite builds csi-sanity from its nested module.
func buildSuite(ctx context.Context, output string) error {
	_, file, _, _ := runtime.Caller(0)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", output, "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")
	build.Dir = filepath.Join(filepath.Dir(file), "suite")
	build.Env = append(os.Environ(), "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, text)
	}
	return nil
}

// startReference serves the reference driver with all that it can do.
func (p *player) startReference() *array.Array {
	a := array.New(array.Options{})
	p.t.Cleanup(a.Close)
	a.Set(func(s *array.Switches) { s.Everything = true })
	p.options.driver = filepath.Join(p.folder, "driver.sock")
	must(p.t, "reference driver", a.ServeAll(context.Background(), p.options.driver, referenceNode))
	p.options.extra = append([]string{"-csi.testnodevolumeattachlimit"}, p.options.extra...)
	return a
}

func (p *player) direct() result {
	return p.run("direct", p.options.driver, p.options.controller)
}

func (p *player) withoutKubernetes() result {
	driver := p.proxy("proxied", p.options.driver, "--no-kubernetes")
	controller := ""
	if p.options.controller != "" {
		controller = p.proxy("proxied-controller", p.options.controller, "--no-kubernetes")
	}
	return p.run("--no-kubernetes", driver, controller)
}

// withKubernetes runs csi-fencepost with the rights that deploy/ ships, in mode
// Enforce, on an API server that knows no node.
func (p *player) withKubernetes(progress io.Writer) result {
	driver, controller := p.guarded(progress)
	return p.run("Kubernetes API", driver, controller)
}

// guarded starts a real API server and csi-fencepost with it, and returns the
// sockets to call.
func (p *player) guarded(progress io.Writer) (driver, controller string) {
	binaries, err := controlplane.Build(p.t.Context(), progress)
	must(p.t, "control plane", err)
	b, err := bed.StartBare(p.t.Context(), bed.Programs{ControlPlane: binaries, Fencepost: p.fencepost}, p.t.Failed)
	must(p.t, "control plane", err)
	p.t.Cleanup(func() { must(p.t, "stop of the control plane", b.Stop()) })

	target := p.options.driver
	if p.options.controller != "" {
		driver = p.proxy("node", p.options.driver, "--no-kubernetes")
		target = p.options.controller
	}
	// The stage is there for its rights: the driver is ours.
	stage := b.Stage(p.t, "sanity", bed.StageOptions{Manual: true, Nodes: -1, Driver: driverName(p.t, target)})
	guarded := p.proxy("guarded", target, "--kubeconfig="+stage.ServiceAccountKubeconfig())
	if p.options.controller != "" {
		return driver, guarded
	}
	return guarded, ""
}

// proxy starts a csi-fencepost before a socket and returns the path of its own.
func (p *player) proxy(name, target string, args ...string) string {
	socket := filepath.Join(p.folder, name+".sock")
	log := filepath.Join(p.folder, name+".log")
	process, err := controlplane.StartProcess(controlplane.ProcessOptions{
		Name: name, Path: p.fencepost, LogFile: log,
		Args: append([]string{"run", "--csi-address=" + target, "--listen=" + socket}, args...),
	})
	must(p.t, "csi-fencepost", err)
	p.t.Cleanup(func() { process.Stop(5 * time.Second) })
	must(p.t, "csi-fencepost", process.Serving(p.t.Context(), socket, startLimit))
	return socket
}

// run runs csi-sanity on one pair of sockets and reads its report.
func (p *player) run(way, driver, controller string) result {
	p.t.Logf("csi-sanity, %s", way)
	work := filepath.Join(p.folder, strings.ReplaceAll(way, " ", "-"))
	must(p.t, "folder", os.MkdirAll(work, 0o755))
	report := filepath.Join(work, "junit.xml")
	args := []string{
		"-csi.endpoint=" + endpoint(driver), "-csi.mountdir=" + filepath.Join(work, "mount"), "-csi.stagingdir=" + filepath.Join(work, "staging"),
		"-ginkgo.junit-report=" + report, "-ginkgo.no-color",
		"-ginkgo.seed=1", // the same order in each way
	}
	if controller != "" {
		args = append(args, "-csi.controllerendpoint="+endpoint(controller))
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), suiteLimit)
	defer cancel()
	suite := exec.CommandContext(ctx, p.suite, append(args, p.options.extra...)...)
	text, runErr := suite.CombinedOutput() // its exit code says the same as the report
	r, err := readReport(way, report)
	if err != nil {
		p.t.Fatalf("csi-sanity, %s: %v, %v; it printed:\n%s", way, runErr, err, text)
	}
	return r
}

// endpoint is a socket as csi-sanity takes it.
func endpoint(socket string) string { return "unix:" + strings.TrimPrefix(socket, "unix://") }

// driverName asks the driver for its name.
func driverName(t bed.T, socket string) string {
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(socket, "unix://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, "driver", err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	info, err := spec.NewIdentityClient(conn).GetPluginInfo(ctx, &spec.GetPluginInfoRequest{})
	must(t, "no driver tells its name on "+socket, err)
	return info.GetName()
}

func must(t bed.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
