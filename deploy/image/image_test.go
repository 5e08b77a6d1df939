package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	agentprogram "github.com/csi-fencepost/csi-fencepost/fence/agent/program"
)

const (
	testName    = "registry.example.com/csi-fencepost"
	testVersion = "v0.0.1-test"
)

var testFolder string

func TestMain(m *testing.M) {
	var err error
	if testFolder, err = os.MkdirTemp("", "csi-fencepost-image-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(testFolder)
	os.Exit(code)
}

// built is a release of this checkout, built once, and the folder that holds it.
var built = sync.OnceValues(func() (string, error) { return build("../..", "first") })

func build(source, name string) (string, error) {
	folder := filepath.Join(testFolder, name)
	return folder, run(context.Background(), []string{"-source", source, "-o", folder, "-name", testName, "-version", testVersion, "-date", "1700000000"}, io.Discard)
}

func folder(t *testing.T) string {
	t.Helper()
	f, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// program is the name of the file of one.
func program(c command, arch string) string { return c.name + "_" + testVersion + "_linux_" + arch }

// archive is the name of that of the plugin.
func archive(arch string) string {
	return "kubectl-fencepost_" + testVersion + "_linux_" + arch + ".tar.gz"
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Another folder, another time, another setting of Go's: the same bytes.
func TestTheSameSourcesGiveTheSameBytesEverywhere(t *testing.T) {
	first := folder(t)
	elsewhere := filepath.Join(testFolder, "elsewhere", "checkout")
	for _, name := range []string{"cmd", "csi", "deploy", "fence", "proxy", "sanity/fitness"} {
		if err := os.CopyFS(filepath.Join(elsewhere, name), os.DirFS(filepath.Join("../..", name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
		if err := os.WriteFile(filepath.Join(elsewhere, name), read(t, filepath.Join("../..", name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-race")
	second, err := build(elsewhere, "second")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"SHA256SUMS", "csi-fencepost_" + testVersion + ".oci.tar", "csi-fencepost-" + strings.TrimPrefix(testVersion, "v") + ".tgz", "fencepost.yaml"}
	for _, arch := range architectures {
		for _, c := range commands {
			name := program(c, arch)
			want = append(want, name, name+".cdx.json")
		}
		want = append(want, archive(arch))
	}
	for _, folder := range []string{first, second} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", folder, got, want)
		}
	}
	for _, name := range want {
		if a, b := read(t, filepath.Join(first, name)), read(t, filepath.Join(second, name)); !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes in one folder, %d others in another", name, len(a), len(b))
		}
	}
}

func TestChecksumsAreThoseOfTheFiles(t *testing.T) {
	f, seen := folder(t), 0
	for line := range strings.Lines(string(read(t, filepath.Join(f, "SHA256SUMS")))) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if got := sha256.Sum256(read(t, filepath.Join(f, name))); !ok || hex.EncodeToString(got[:]) != sum {
			t.Errorf("%q: it is %x", line, got)
		}
		seen++
	}
	if seen != 17 {
		t.Errorf("%d files, want 17", seen)
	}
}

// untar reads an archive whole.
func untar(t *testing.T, content io.Reader) (map[string][]byte, []*tar.Header) {
	t.Helper()
	files, headers := map[string][]byte{}, []*tar.Header{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		} else if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, header)
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func digest(content []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(content))}
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
}

// imageLayout is the image as a container engine reads it.
type imageLayout struct {
	t     *testing.T
	files map[string][]byte
	used  map[string]bool
}

func (l imageLayout) blob(d v1.Descriptor) []byte {
	l.t.Helper()
	name := "blobs/" + strings.Replace(d.Digest.String(), ":", "/", 1)
	content, ok := l.files[name]
	if !ok || int64(len(content)) != d.Size || digest(content) != d.Digest {
		l.t.Fatalf("%s: present %t, %d bytes, want %d; digest %s", name, ok, len(content), d.Size, digest(content))
	}
	l.used[name] = true
	return content
}

func TestEveryDigestInTheArchiveHolds(t *testing.T) {
	f := folder(t)
	files, headers := untar(t, bytes.NewReader(read(t, filepath.Join(f, "csi-fencepost_"+testVersion+".oci.tar"))))
	for _, h := range headers {
		if !h.ModTime.Equal(time.Unix(1700000000, 0)) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: date %s, user %d %q", h.Name, h.ModTime, h.Uid, h.Uname)
		}
	}
	var version struct{ ImageLayoutVersion string }
	if decode(t, files["oci-layout"], &version); version.ImageLayoutVersion != "1.0.0" {
		t.Errorf("oci-layout: %s", files["oci-layout"])
	}
	l := imageLayout{t, files, map[string]bool{}}
	var outer, inner v1.IndexManifest
	decode(t, files["index.json"], &outer)
	if len(outer.Manifests) != 1 || outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != testVersion {
		t.Fatalf("index.json: %+v", outer)
	}
	decode(t, l.blob(outer.Manifests[0]), &inner)
	for i, arch := range architectures {
		if p := inner.Manifests[i].Platform; p.Architecture != arch || p.OS != "linux" {
			t.Errorf("manifest %d is for %v", i, p)
		}
		checkImage(l, arch, inner.Manifests[i], map[string][]byte{
			"csi-fencepost": read(t, filepath.Join(f, program(guard, arch))), "usr/sbin/csi-fencepost-agents": read(t, filepath.Join(f, program(agents, arch))),
			"csi-fencepost-webhook": read(t, filepath.Join(f, program(webhook, arch)))})
	}
	for name := range files {
		if strings.HasPrefix(name, "blobs/sha256/") && name != "blobs/sha256/" && !l.used[name] {
			t.Errorf("%s belongs to nothing", name)
		}
	}
}

// checkImage compares an image with its programs, one in each layer.
func checkImage(l imageLayout, arch string, d v1.Descriptor, programs map[string][]byte) {
	t := l.t
	var m v1.Manifest
	decode(t, l.blob(d), &m)
	var c v1.ConfigFile
	decode(t, l.blob(m.Config), &c)
	if c.Architecture != arch || c.OS != "linux" || c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/csi-fencepost"}) {
		t.Errorf("configuration: %+v", c)
	}
	if len(m.Layers) != 3 || len(c.RootFS.DiffIDs) != 3 || len(c.History) != 3 {
		t.Fatalf("%d layers, %d diff IDs, %d of the history", len(m.Layers), len(c.RootFS.DiffIDs), len(c.History))
	}
	want := map[string]string{"csi-fencepost": "755", "usr/": "755/", "usr/sbin/": "755/", "usr/sbin/csi-fencepost-agents": "755", "csi-fencepost-webhook": "755"}
	for _, name := range agentNames {
		want["usr/sbin/fence_fencepost_"+name] = "csi-fencepost-agents"
	}
	got := map[string]string{}
	for i, layer := range m.Layers {
		unzipped, err := gzip.NewReader(bytes.NewReader(l.blob(layer)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(unzipped)
		if err != nil || digest(plain) != c.RootFS.DiffIDs[i] {
			t.Errorf("the layer is %s, the configuration says %s: %v", digest(plain), c.RootFS.DiffIDs[i], err)
		}
		content, headers := untar(t, bytes.NewReader(plain))
		for _, h := range headers {
			switch got[h.Name] = fmt.Sprintf("%o", h.Mode); h.Typeflag {
			case tar.TypeDir:
				got[h.Name] += "/"
			case tar.TypeSymlink:
				got[h.Name] = h.Linkname
			}
			if h.Uid != 0 || h.Gid != 0 {
				t.Errorf("%s belongs to user %d, group %d", h.Name, h.Uid, h.Gid)
			}
		}
		path := []string{"csi-fencepost", "usr/sbin/csi-fencepost-agents", "csi-fencepost-webhook"}[i]
		if !bytes.Equal(content[path], programs[path]) {
			t.Errorf("layer %d holds another program", i)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the image holds %v, want %v", got, want)
	}
}

// unpacked is the image for this machine as a container engine unpacks it.
func unpacked(t *testing.T) string {
	t.Helper()
	files, _ := untar(t, bytes.NewReader(read(t, filepath.Join(folder(t), "csi-fencepost_"+testVersion+".oci.tar"))))
	blob := func(h v1.Hash) []byte { return files["blobs/sha256/"+h.Hex] }
	var outer, inner v1.IndexManifest
	decode(t, files["index.json"], &outer)
	decode(t, blob(outer.Manifests[0].Digest), &inner)
	at := slices.IndexFunc(inner.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == runtime.GOARCH })
	if at < 0 {
		t.Fatalf("no image for %s", runtime.GOARCH)
	}
	var m v1.Manifest
	decode(t, blob(inner.Manifests[at].Digest), &m)
	root := t.TempDir()
	for _, layer := range m.Layers {
		zip, err := gzip.NewReader(bytes.NewReader(blob(layer.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		content, headers := untar(t, zip)
		for _, h := range headers {
			path, err := filepath.Join(root, h.Name), error(nil)
			switch h.Typeflag {
			case tar.TypeDir:
				err = os.MkdirAll(path, os.FileMode(h.Mode))
			case tar.TypeSymlink:
				err = os.Symlink(h.Linkname, path)
			default:
				err = os.WriteFile(path, content[h.Name], os.FileMode(h.Mode))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// What runs is what the archive holds, on no system but the kernel.
func TestTheProgramOfTheImageRuns(t *testing.T) {
	path := filepath.Join(unpacked(t), programPath)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value != "0" || strings.HasPrefix(s.Key, "vcs") {
			t.Errorf("built with %s=%s", s.Key, s.Value)
		}
	}
	out, err := exec.Command(path, "version").CombinedOutput()
	want := fmt.Sprintf("csi-fencepost %s %s linux/%s\n", testVersion, info.GoVersion, runtime.GOARCH)
	if err != nil || string(out) != want {
		t.Errorf("it says %q, want %q: %v", out, want, err)
	}
	inject := exec.Command(path, "inject", "-f", "../../sanity/kubeapi/testdata/vendor.yaml")
	if out, err := inject.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("image: "+testName+":"+testVersion+"\n")) {
		t.Errorf("inject does not name the image of its own release: %v\n%s", err, out)
	}
}

// The image has each agent of ours, and csi-fencepost takes it where it is.
func TestTheAgentsOfTheImageRun(t *testing.T) {
	root := unpacked(t)
	sbin := filepath.Join(root, agentsFolder)
	help, err := exec.Command(filepath.Join(sbin, agents.name), "help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z0-9]+) `).FindAllStringSubmatch(string(help), -1) {
		names = append(names, m[1])
	}
	if !slices.Equal(names, agentNames) {
		t.Errorf("the program is %q, and the image links %q", names, agentNames)
	}
	for _, name := range agentNames {
		a, err := exec.Command(filepath.Join(sbin, "fence_fencepost_"+name), "-o", "metadata").CombinedOutput()
		if err != nil || !strings.Contains(string(a), `name="fence_fencepost_`+name+`"`) {
			t.Errorf("%s: %v: %s", name, err, a)
		}
	}
	// As csi-fencepost takes it: whose the files are, its metadata, its answer.
	p, err := agentprogram.New(agentprogram.Options{Name: "cloud", Agent: "fence_fencepost_hcloud", Dirs: []string{filepath.Clean(sbin)},
		Parameters: map[string]string{"endpoint": "https://127.0.0.1:1", "token": "xyzzy"}, NodeParameters: map[string]map[string]string{"plug": {"n1": "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Status(t.Context(), agent.Machine{Node: "n1"}); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("it did not come to ask where nobody answers: %v", err)
	}
}

// The webhook of the image starts where the chart has it, and says what it lacks.
func TestTheWebhookOfTheImageRuns(t *testing.T) {
	root := unpacked(t)
	run := exec.Command(filepath.Join(root, "csi-fencepost-webhook"), "--http-endpoint=:0")
	run.Env = []string{}
	if out, err := run.CombinedOutput(); err == nil || string(out) != "csi-fencepost-webhook: POD_NAMESPACE is not set: the namespace of the Service and of the Secret\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// Whoever asks which of our releases has a bad library gets the right answer.
func TestTheBOMListsWhatIsLinked(t *testing.T) {
	for _, arch := range architectures {
		checkBOM(t, program(guard, arch), mainModule+"/cmd/csi-fencepost", "google.golang.org/grpc v1.83.2")
		checkBOM(t, program(agents, arch), mainModule+"/cmd/csi-fencepost-agents", "github.com/hetznercloud/hcloud-go/v2 v2.52.0")
		checkBOM(t, program(webhook, arch), mainModule+"/cmd/csi-fencepost-webhook", "k8s.io/apiserver v0.37.2")
	}
}

func checkBOM(t *testing.T, name, pkg, known string) {
	path := filepath.Join(folder(t), name)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != pkg {
		t.Errorf("%s is %s, not %s", name, info.Path, pkg)
	}
	var b cyclonedx.BOM
	decode(t, read(t, path+".cdx.json"), &b)
	got := map[string]bool{}
	for _, c := range *b.Components {
		got[c.Name+" "+c.Version] = true
		if c.Hashes == nil && c.Name != "std" {
			t.Errorf("%s has no hash", c.Name)
		}
	}
	for _, dep := range info.Deps {
		if !got[dep.Path+" "+dep.Version] {
			t.Errorf("%s: %s %s is missing", name, dep.Path, dep.Version)
		}
	}
	if len(got) != len(info.Deps)+1 || !got["std "+strings.TrimPrefix(info.GoVersion, "go")] || !got[known] {
		t.Errorf("%s: %d components, %d modules and Go itself", name, len(got), len(info.Deps))
	}
	if sum := sha256.Sum256(read(t, path)); (*b.Metadata.Component.Hashes)[0].Value != hex.EncodeToString(sum[:]) || b.Metadata.Component.Version != testVersion {
		t.Errorf("%s is not of this program: %+v", path, b.Metadata.Component)
	}
}

// formats is the module of others' libraries and programs.
const formats = "../../sanity/kubeapi/tools/formats"

// others builds a program of that module, and says where it is.
func others(t *testing.T, pkg string) string {
	t.Helper()
	output, err := filepath.Abs(filepath.Join(testFolder, "tools", "formats"))
	if err != nil {
		t.Fatal(err)
	}
	if pkg != "." {
		output = filepath.Join(filepath.Dir(output), path.Base(pkg))
	}
	cmd := exec.Command("go", "build", "-o", output, pkg)
	cmd.Dir = formats
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return output
}

// go-containerregistry and the schema of CycloneDX have their own opinion.
func TestOthersTakeWhatWeWrite(t *testing.T) {
	f, checker := folder(t), others(t, ".")
	check := func(args ...string) error {
		cmd := exec.Command(checker, args...)
		cmd.Dir = formats
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	unpacked := filepath.Join(testFolder, "unpacked")
	files, _ := untar(t, bytes.NewReader(read(t, filepath.Join(f, "csi-fencepost_"+testVersion+".oci.tar"))))
	for name, content := range files {
		if strings.HasSuffix(name, "/") {
			continue
		}
		path := filepath.Join(unpacked, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := check("oci", unpacked); err != nil {
		t.Errorf("the image: %v", err)
	}
	boms, err := filepath.Glob(filepath.Join(f, "*.cdx.json"))
	if err != nil || len(boms) != 2*len(commands) {
		t.Fatalf("%d SBOMs: %v", len(boms), err)
	}
	if err := check(append([]string{"cyclonedx"}, boms...)...); err != nil {
		t.Errorf("the SBOMs: %v", err)
	}
	wrong := filepath.Join(testFolder, "wrong.json")
	if err := os.WriteFile(wrong, bytes.Replace(read(t, boms[0]), []byte(`"urn:uuid:`), []byte(`"uuid:`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := check("cyclonedx", wrong); err == nil {
		t.Error("a serial number that is none was taken: nothing is checked")
	}
}

// The image needs certificates only where somebody wants them in it.
func TestCertificatesAreWhereGoLooksForThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, []byte("certificates"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := release{certificates: path, date: time.Unix(0, 0)}
	layers, err := r.layers(map[command][]byte{guard: []byte("program")})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	files, headers := untar(t, plain)
	if string(files["etc/ssl/certs/ca-certificates.crt"]) != "certificates" || string(files["csi-fencepost"]) != "program" {
		t.Errorf("the layer holds %q", files)
	}
	for _, h := range headers {
		if folder := strings.HasSuffix(h.Name, "/"); folder != (h.Typeflag == tar.TypeDir) || folder != (h.Mode == 0o755 && h.Name != "csi-fencepost") {
			t.Errorf("%s: type %c, mode %o", h.Name, h.Typeflag, h.Mode)
		}
	}
	r.certificates = "missing.pem"
	if _, err := r.layers(nil); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "-certificates") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-version", "v1+dirty"}, "cannot be the tag"},
		{[]string{"-version", ""}, "cannot be the tag"},
		{[]string{"-date", "yesterday"}, "seconds since 1970"},
		{[]string{"-date", "-1"}, "seconds since 1970"},
		{[]string{"dist"}, "takes flags only"},
	} {
		if _, err := parse(c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}
