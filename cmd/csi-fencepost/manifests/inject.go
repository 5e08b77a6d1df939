package manifests

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

// Commands are inject and uninject.
func Commands() []cli.Command {
	return []cli.Command{
		{Name: "inject", Summary: "put the sidecar into a driver's manifests", Run: runInject},
		{Name: "uninject", Summary: "take it out of them again", Run: runUninject},
	}
}

// stdin is what `-f -` reads; tests replace it.
var stdin io.Reader = os.Stdin

// manifestFlags are those that inject and uninject share.
type manifestFlags struct {
	set    *cli.Flags
	files  []string
	output string
	check  bool
}

func newManifestFlags(command, help string) *manifestFlags {
	f := &manifestFlags{set: cli.NewFlags(command, help)}
	f.set.StringArrayVarP(&f.files, "filename", "f", []string{"-"}, "A file of manifests, or a folder (its .yaml, .yml and .json files); - is standard input. Can be repeated.")
	f.set.StringVarP(&f.output, "output", "o", "", "A folder to write the changed files to, under their own names; the one that was read changes them in place. Without it, everything goes to standard output.")
	f.set.BoolVar(&f.check, "check", false, "Write nothing: say what would be changed, and exit with 1 if anything would.")
	return f
}

func (f *manifestFlags) parse(args []string) error {
	if err := f.set.Parse(args); err != nil {
		return err
	}
	if f.set.NArg() > 0 {
		return f.set.Wrong("%q is no flag: manifests are named with -f", f.set.Arg(0))
	}
	return nil
}

const injectHelp = `csi-fencepost inject puts the sidecar into the controller pod of a CSI driver: it reads the driver's
manifests and writes them with csi-fencepost between external-attacher and the driver. Every other
line stays as it is. What it chose, and why, goes to standard error.

  csi-fencepost inject -f driver.yaml --image IMAGE | kubectl apply -f -
  csi-fencepost inject -f manifests/ -o manifests/
  csi-fencepost inject -f driver.yaml --check`

// injectFlags are the flags of `csi-fencepost inject`.
type injectFlags struct {
	*manifestFlags
	options inject.Options
	mode    string
	native  bool
	without bool // rights and configuration
	config  string
	rights  string // file
	as      injectAs
}

func parseInjectFlags(args []string) (*injectFlags, error) {
	f := &injectFlags{manifestFlags: newManifestFlags("inject", injectHelp)}
	f.set.StringArrayVar(&f.options.Drivers, "driver", nil, "The driver's name, as in its CSIDriver object. Needed where the manifests do not tell; chooses one of several. ATTACHER=NAME says which external-attacher is of it: [[NAMESPACE/]WORKLOAD/]CONTAINER. Can be repeated.")
	f.set.StringVarP(&f.options.Namespace, "namespace", "n", "", "The namespace of workloads that name none.")
	f.set.StringVar(&f.options.Image, "image", "", "The image of csi-fencepost, such as registry.example.com/csi-fencepost:v1.0.0. A released build knows its own; later runs keep what was named.")
	f.set.StringVar(&f.mode, "mode", "", "Observe (the default, to begin with) or Enforce.")
	f.set.StringVar((*string)(&f.options.Failover), "failover", "", "Who moves the pods of fenced nodes: apart (--failover alone), csi-fencepost failover, which is added as a Deployment of its own account, one for all drivers; or in-pod, the sidecar itself, with rights that every container of its pod has then. Needs mode Enforce.")
	f.set.Lookup("failover").NoOptDefVal = string(inject.Apart)
	f.set.StringVar(&f.config, "config", "", "A configuration file of your own, in place of --mode and --failover.")
	f.set.BoolVar(&f.native, "native-sidecar", false, "The sidecar is a native sidecar of Kubernetes (an init container with restartPolicy Always), which starts before the attacher and ends after it. Needs Kubernetes 1.29, on the nodes too. Later runs keep it; =false makes it a container again.")
	f.set.StringVar(&f.options.SELinuxType, "selinux-type", "", "The SELinux type of the sidecar, such as spc_t, where nodes enforce SELinux and the driver's socket is in a folder of theirs.")
	f.set.StringArrayVar(&f.options.AgentsSecrets, "agents-secret", nil, "A Secret with the credentials of fence agents, which the configuration (--config) names as files: NAME is mounted at "+inject.AgentsFolder+", NAME=FOLDER there. Can be repeated; empty: none any more.")
	f.set.StringVar(&f.options.AgentDirs, "agent-dirs", "", "The folders of the image in which fence agents are, absolute, separated by commas. Default: /usr/sbin.")
	f.set.Int32Var(&f.options.HTTPPort, "http-port", 0, "The port of metrics and probes. Default: a free one; none for a pod on its node's network.")
	f.set.StringVar(&f.options.TLSSecret, "tls-secret", "", "A Secret of type kubernetes.io/tls: metrics and probes are served over HTTPS with its certificate, and the metrics only to those whom the Kubernetes API lets get /metrics.")
	f.set.StringVar(&f.options.MetricsFrom, "metrics-from", "", "The namespace from which the metrics are scraped: a NetworkPolicy lets no other pods reach their port. Default: everybody does.")
	f.set.StringVar(&f.rights, "rights", "", "A file to write the rights to where the attacher has a --kubeconfig: they belong into that one's cluster.")
	f.set.BoolVar(&f.without, "without-rights", false, "Leave out rights and configuration, failover's too: a release of csi-fencepost's own Helm chart has them, and says mode, failover and configuration. Needs --driver, for the drivers that are in it. Later runs keep it; =false puts them in again.")
	f.addAs()
	if err := f.parse(args); err != nil {
		return f, err
	}
	return f, f.complete()
}

// complete checks what flags alone can tell, and reads the configuration.
func (f *injectFlags) complete() (err error) {
	switch f.options.Mode = config.Mode(f.mode); {
	case f.mode != "" && f.options.Mode != config.Observe && f.options.Mode != config.Enforce:
		return f.set.Wrong("--mode is %q: it has to be Observe or Enforce", f.mode)
	case !slices.Contains([]inject.Failover{inject.NoFailover, inject.Apart, inject.InPod}, f.options.Failover):
		return f.set.Wrong("--failover is %q: it has to be apart or in-pod", f.options.Failover)
	case f.config != "" && (f.mode != "" || f.options.Failover == inject.InPod):
		return f.set.Wrong("--config says mode, and failover in the pod, itself: take --mode and --failover=in-pod off")
	case f.options.HTTPPort < 0 || f.options.HTTPPort > 65535:
		return f.set.Wrong("--http-port is %d: it has to be between 1 and 65535", f.options.HTTPPort)
	case slices.ContainsFunc(append(f.files, f.config), func(read string) bool { return file.Same(read, f.rights) }):
		return f.set.Wrong("--rights is %s, which is read: the rights would be written over it; name another file", f.rights)
	}
	if err := f.wrongNames(); err != nil {
		return err
	}
	if f.set.Changed("without-rights") {
		f.options.WithoutRights = &f.without
	}
	switch {
	case !f.without:
	case len(f.options.Drivers) == 0:
		return f.set.Wrong("--without-rights needs --driver: a driver that no release of the chart has would wait for a configuration that nobody makes")
	case f.mode != "" || f.options.Failover != inject.NoFailover || f.rights != "":
		return f.set.Wrong("--without-rights: mode, failover and rights are those of the chart's values: take --mode, --failover and --rights off")
	}
	if f.set.Changed("native-sidecar") {
		f.options.Native = &f.native
	}
	f.options.Separate, f.options.Beside, f.options.OwnImage = f.output != "", f.output != "", releasedImage
	if f.config == "" {
		return nil
	}
	if _, err := config.Load(f.config); err != nil {
		return err
	}
	f.options.Config, err = file.Read(f.config, config.MaxBytes)
	return err
}

// wrongNames finds what the API server, the kubelet or the sidecar would refuse once it
// is applied.
func (f *injectFlags) wrongNames() error {
	o := &f.options
	if faults := validation.IsDNS1123Label(o.Namespace); o.Namespace != "" && len(faults) > 0 {
		return f.set.Wrong("--namespace is %q: it has to be the name of a namespace: %s", o.Namespace, strings.Join(faults, "; "))
	}
	if faults := validation.IsDNS1123Label(o.MetricsFrom); o.MetricsFrom != "" && len(faults) > 0 {
		return f.set.Wrong("--metrics-from is %q: it has to be the name of a namespace: %s", o.MetricsFrom, strings.Join(faults, "; "))
	}
	if faults := validation.IsDNS1123Subdomain(o.TLSSecret); o.TLSSecret != "" && len(faults) > 0 {
		return f.set.Wrong("--tls-secret is %q: it has to be the name of a Secret: %s", o.TLSSecret, strings.Join(faults, "; "))
	}
	if strings.ContainsFunc(o.Image, unicode.IsSpace) {
		return f.set.Wrong("--image is %q: an image has no blanks in its name", o.Image)
	}
	if o.SELinuxType != "" && !seLinuxType.MatchString(o.SELinuxType) {
		return f.set.Wrong("--selinux-type is %q: it has to be a type such as spc_t", o.SELinuxType)
	}
	if o.AgentDirs != "" {
		if err := new(cli.FolderList).Set(o.AgentDirs); err != nil {
			return f.set.Wrong("--agent-dirs: %v", err)
		}
	}
	for _, secret := range o.AgentsSecrets {
		name, _, _ := strings.Cut(secret, "=")
		if faults := validation.IsDNS1123Subdomain(name); secret != "" && len(faults) > 0 {
			return f.set.Wrong("--agents-secret: %q is no name of a Secret: %s", name, strings.Join(faults, "; "))
		}
	}
	return nil
}

// seLinuxType is how SELinux writes a type.
var seLinuxType = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// runInject is `csi-fencepost inject`.
func runInject(_ context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseInjectFlags(args)
	if err != nil {
		return err
	}
	as, err := f.askedAs()
	if err != nil {
		return err
	}
	files, err := f.read()
	if err != nil {
		return err
	}
	if as {
		return f.writeAs(files, stdout, stderr)
	}
	result, err := inject.Inject(files, f.options)
	if err != nil {
		return err
	}
	if !f.check {
		if err := f.apart(result, stderr); err != nil {
			return err
		}
	}
	return f.finish(files, result, stdout, stderr)
}

// releasedImage is the image of the release that this program is of: deploy/image
// writes it in, where the name has a registry. Empty in any other build.
var releasedImage string

// apart is an error where nobody named the image: a Deployment that rolls keeps its
// pods then, a StatefulSet's only one is gone. It writes what belongs into another
// cluster to a file of its own; that nobody has named one is an error too.
func (f *injectFlags) apart(r *inject.Result, stderr io.Writer) error {
	for _, p := range r.Plans {
		switch {
		case p.NoImage:
			return fmt.Errorf("%s: no image is named, and this build is of no release that has one: name it with --image registry.example.com/csi-fencepost:VERSION. `make image` builds it; https://github.com/csi-fencepost/csi-fencepost/blob/main/docs/use/install.md#the-image says how it gets into your registry", p.Where)
		case len(p.Elsewhere) > 0 && f.rights == "":
			return f.set.Wrong("%s: the attacher has a --kubeconfig, so the rights belong into that one's cluster and the rest into this one: --rights FILE keeps the two apart", p.Where)
		}
	}
	if r.Elsewhere == nil {
		return nil
	}
	if err := os.WriteFile(f.rights, r.Elsewhere, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "written:", f.rights)
	return nil
}

const uninjectHelp = `csi-fencepost uninject takes out of manifests what csi-fencepost inject has put in.

  csi-fencepost uninject -f driver.yaml | kubectl apply -f -

What was applied besides (rights, configuration) stays in the cluster until it is deleted there.`

// runUninject is `csi-fencepost uninject`.
func runUninject(_ context.Context, args []string, stdout, stderr io.Writer) error {
	f := newManifestFlags("uninject", uninjectHelp)
	if err := f.parse(args); err != nil {
		return err
	}
	files, err := f.read()
	if err != nil {
		return err
	}
	result, err := inject.Uninject(files)
	if err != nil {
		return err
	}
	if len(result.Changed)+len(result.Removed)+len(result.Findings) == 0 {
		fmt.Fprintln(stderr, "Nothing was injected here: nothing is changed.")
	}
	return f.finish(files, result, stdout, stderr)
}

// read reads the files, those of folders by their names.
func (f *manifestFlags) read() (files []inject.File, err error) {
	for _, name := range f.files {
		names := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if names, err = manifestsIn(name); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			file, err := readManifest(name)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(files, func(have inject.File) bool { return have.Name == file.Name }) {
				return nil, f.set.Wrong("%s is given twice", file.Name)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

func readManifest(name string) (inject.File, error) {
	if name == "-" {
		text, err := readAll("standard input", stdin)
		return inject.File{Name: "standard input", Text: text}, err
	}
	f, err := os.Open(name)
	if err != nil {
		return inject.File{}, err
	}
	defer f.Close()
	// A pipe is what a shell gives for <(helm template ...).
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeDevice != 0 {
		return inject.File{}, fmt.Errorf("%s is a device: -f takes a file of manifests, or a folder of them", name)
	}
	text, err := readAll(name, f)
	return inject.File{Name: name, Text: text}, err
}

// maxManifest is far above the largest manifest of a driver, 1 MiB, in bytes.
const maxManifest = 64 << 20

// readAll reads to the end, which has to come.
func readAll(name string, r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("%s is larger than %d MiB: no manifest is", name, maxManifest>>20)
	}
	return text, err
}

// manifestsIn a folder, not in its folders, as kubectl takes them.
func manifestsIn(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json" || inject.IsKustomization(e.Name())) {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("folder %s has no .yaml, .yml or .json file", folder)
	}
	return names, nil
}

// finish says what was chosen, and prints or writes what came of it.
func (f *manifestFlags) finish(before []inject.File, r *inject.Result, stdout, stderr io.Writer) error {
	for _, finding := range r.Findings {
		fmt.Fprintln(stderr, finding)
	}
	switch {
	case f.check:
		return f.wouldChange(r)
	case f.output == "":
		return printFiles(cli.Verbatim(stdout), r)
	}
	return f.write(before, r, stderr)
}

// wouldChange is the answer of --check.
func (f *manifestFlags) wouldChange(r *inject.Result) error {
	names := slices.Concat(r.Changed, r.Removed)
	if f.output != "" && r.Documents != nil {
		if text, err := file.Read(filepath.Join(f.output, inject.DocumentsFile), maxManifest); err == nil && string(text) == string(r.Documents) {
			names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == inject.DocumentsFile })
		} else {
			names = append(names, filepath.Join(f.output, inject.DocumentsFile))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s would change: %s", f.set.Name(), strings.Join(names, ", "))
}

// printFiles writes all files as one stream of documents. One file alone is
// printed byte for byte.
func printFiles(w io.Writer, r *inject.Result) error {
	for i, file := range r.Files {
		text := string(file.Text)
		if i > 0 && !strings.HasPrefix(text, "---") {
			text = "---\n" + text
		}
		if i < len(r.Files)-1 && text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// write puts the files into the folder, under their own names.
func (f *manifestFlags) write(before []inject.File, r *inject.Result, stderr io.Writer) error {
	if err := os.MkdirAll(f.output, 0o755); err != nil {
		return err
	}
	files := slices.Clone(r.Files)
	for i := range files {
		if files[i].Name == "standard input" {
			files[i].Name = "manifests.yaml"
		}
	}
	if r.Documents != nil {
		if err := f.unnamed(files); err != nil {
			return err
		}
		files = append(files, inject.File{Name: inject.DocumentsFile, Text: r.Documents})
	}
	seen := map[string]bool{}
	for _, file := range files {
		name := filepath.Join(f.output, filepath.Base(file.Name))
		if seen[name] {
			return fmt.Errorf("two files would be written to %s: give -f one folder at a time", name)
		}
		seen[name] = true
		if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
			what := "no regular file"
			if info.Mode()&os.ModeSymlink != 0 {
				what = "a symbolic link"
			}
			return fmt.Errorf("%s is %s: nothing is written; name another folder with -o, or take it away", name, what)
		}
	}
	for _, made := range files {
		name := filepath.Join(f.output, filepath.Base(made.Name))
		if have, err := file.Read(name, maxManifest); err == nil && string(have) == string(made.Text) {
			continue
		}
		if err := os.WriteFile(name, made.Text, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(stderr, "written:", name)
	}
	return removeFiles(before, r.Removed, f.output, seen, stderr)
}

// unnamed refuses a folder with a kustomization that was not read, and so would leave
// the documents out.
func (f *manifestFlags) unnamed(files []inject.File) error {
	entries, err := os.ReadDir(f.output)
	if err != nil {
		return err
	}
	for _, e := range entries {
		read := func(file inject.File) bool { return filepath.Base(file.Name) == e.Name() }
		if inject.IsKustomization(e.Name()) && !slices.ContainsFunc(files, read) {
			return fmt.Errorf("folder %s has a %s that was not given, and would leave %s out: give the whole folder with -f", f.output, e.Name(), inject.DocumentsFile)
		}
	}
	return nil
}

// removeFiles deletes, in place, what held nothing but what was injected.
func removeFiles(before []inject.File, removed []string, output string, written map[string]bool, stderr io.Writer) error {
	for _, file := range before {
		name := filepath.Join(output, filepath.Base(file.Name))
		if !slices.Contains(removed, file.Name) || written[name] || filepath.Clean(file.Name) != name {
			continue
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		fmt.Fprintln(stderr, "removed:", name)
	}
	return nil
}
