package doctor

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

const (
	logLines = 2000
	logBytes = 4 << 20
	// most Events of one namespace.
	mostEvents = 2000
)

// A bundle is what goes into the archive: objects by kind, and other files. Texts are stripped
// when it is finished, since one may quote what only a later object shows to be a secret.
type bundle struct {
	strip   stripper
	objects map[string][]map[string]any
	files   map[string]string
	errs    []string // what could not be had
}

func newBundle() *bundle {
	return &bundle{strip: stripper{map[string]string{}}, objects: map[string][]map[string]any{}, files: map[string]string{}}
}

// writeBundle writes the archive to a file; "-": to stdout.
func (d *doctoring) writeBundle(ctx context.Context, file string, stdout, stderr io.Writer) (err error) {
	to := cli.Verbatim(stdout)
	if _, terminal := cli.Terminal(stdout); file == "-" && terminal {
		return cli.Usagef("doctor: --bundle=- is an archive, and standard output is a terminal: name a file")
	}
	if file != "-" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err == nil && f.Chmod(0o600) != nil { // it was there, and is somebody else's
			err = errors.Join(fmt.Errorf("%s cannot be made its owner's alone", file), f.Close())
		}
		if err != nil {
			return fmt.Errorf("--bundle: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		to = f
	}
	b := d.collect(ctx)
	if err := b.write(to); err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	fmt.Fprintf(stderr, "Written: %s (%s). Values that may be secrets are taken out of it; names of nodes, volumes and namespaces are in it. Look through it before it leaves your hands.\n",
		file, cli.Count(len(b.files), "file"))
	return nil
}

// collect gathers what was read, and what only a bundle needs.
func (d *doctoring) collect(ctx context.Context) *bundle {
	b := newBundle()
	addAll(b, d.drivers)
	addAll(b, d.csiNodes)
	addAll(b, d.attachments)
	addAll(b, d.leases)
	for _, name := range sorted(d.nodes) {
		b.add(d.nodes[name])
	}
	for _, pv := range d.pvs {
		if len(d.wires[explain.DriverOf(pv)]) > 0 {
			b.add(pv)
		}
	}
	for _, p := range d.facts.policies {
		if strings.HasPrefix(p.Name, policyPrefix) {
			b.add(p)
		}
	}
	for _, binding := range d.rbac.cluster {
		if strings.HasPrefix(binding.Name, policyPrefix) {
			b.add(binding)
			b.add(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: binding.RoleRef.Name}, Rules: d.rbac.clusterRoles[binding.RoleRef.Name]})
		}
	}
	d.collectPods(ctx, b)
	b.errs = append(slices.Clone(d.missing), b.errs...)
	b.finish(&d.Report)
	return b
}

// finish strips all texts, and makes files of the objects and of the report.
func (b *bundle) finish(r *Report) {
	for name, text := range b.files {
		b.files[name] = b.strip.free(text)
	}
	for kind, all := range b.objects {
		var docs strings.Builder
		for _, o := range all {
			out, err := json.Marshal(b.strip.texts(o, b.strip.free))
			if err == nil {
				out, err = yaml.JSONToYAML(printable.JSON(out)) // a control character as it is would be an error
			}
			if err != nil {
				b.failed(kind, err)
				continue
			}
			docs.WriteString("---\n" + string(out))
		}
		b.files["objects/"+kind+".yaml"] = docs.String()
	}
	// Before it is laid out: a secret may have blanks, at which lines are broken.
	var decoded map[string]any
	var clean Report
	out, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(out, &decoded)
	}
	if err == nil {
		out, err = json.Marshal(b.strip.texts(decoded, b.strip.free))
	}
	if err == nil {
		err = json.Unmarshal(out, &clean)
	}
	for name, format := range map[string]string{"doctor.txt": "text", "doctor.yaml": "yaml"} {
		var out strings.Builder
		if err == nil {
			err = cli.PrintAs(&out, format, &clean, func(w io.Writer) { clean.print(w, cli.Style{Width: cli.MaxWidth}) })
		}
		b.files[name] = out.String()
	}
	b.failed("the report", err)
	b.files["version.txt"] = "csi-fencepost " + cli.BuildVersion() + "\n"
	b.files["missing.txt"] = b.strip.free(strings.Join(b.errs, "\n") + "\n")
	for name, text := range b.files {
		b.files[name] = printable.Text(text) // whoever helps prints it to his terminal
	}
}

// failed takes note of what could not be had, if err says so.
func (b *bundle) failed(what string, err error) {
	if err != nil {
		b.errs = append(b.errs, what+": "+err.Error())
	}
}

func addAll[T runtime.Object](b *bundle, all []T) {
	for _, o := range all {
		b.add(o)
	}
}

// add an object, without the values of it that may be secrets.
func (b *bundle) add(o runtime.Object) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		b.failed("an object", err)
		return
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		b.failed(kinds[0].Kind, err)
		return
	}
	out["apiVersion"], out["kind"] = kinds[0].ToAPIVersionAndKind()
	if meta, is := out["metadata"].(map[string]any); is {
		delete(meta, "managedFields")
	}
	b.strip.object(out)
	if m, is := o.(*corev1.ConfigMap); is {
		for key, text := range m.Data {
			if strings.Contains(text, config.APIVersion) {
				out["data"].(map[string]any)[key] = b.strip.config(text)
			}
		}
	}
	b.objects[kinds[0].Kind] = append(b.objects[kinds[0].Kind], out)
}

// got is add of what was just read.
func (b *bundle) got(o runtime.Object, err error) {
	if err != nil {
		b.errs = append(b.errs, err.Error())
		return
	}
	b.add(o)
}

// collectPods adds the pods of attachers and of csi-fencepost, what keeps them, their
// configuration, Events, logs and pages.
func (d *doctoring) collectPods(ctx context.Context, b *bundle) {
	apps, get, done := d.client.AppsV1(), metav1.GetOptions{}, map[string]bool{}
	first := func(what string) bool { seen := done[what]; done[what] = true; return !seen }
	events := func(in, selector string) {
		list, err := d.client.CoreV1().Events(in).List(ctx, metav1.ListOptions{Limit: mostEvents, FieldSelector: selector})
		b.failed("Events", err)
		if err == nil {
			for i := range list.Items {
				b.add(&list.Items[i])
			}
		}
	}
	for _, p := range d.pods {
		ours := explain.SidecarsOf(p)
		switch {
		case isApart(p):
			ours = nil
			for i := range p.Spec.Containers {
				ours = append(ours, &p.Spec.Containers[i])
			}
		case !d.rbac.attaches(accountOf(p)):
			continue
		}
		b.add(p)
		if of := d.workloadOf(ctx, p); first(of.String()) {
			switch of.kind {
			case "Deployment":
				b.got(apps.Deployments(of.namespace).Get(ctx, of.name, get))
			case "StatefulSet":
				b.got(apps.StatefulSets(of.namespace).Get(ctx, of.name, get))
			case "DaemonSet":
				b.got(apps.DaemonSets(of.namespace).Get(ctx, of.name, get))
			}
		}
		if first("Events of " + p.Namespace) {
			events(p.Namespace, "")
		}
		for _, c := range ours {
			d.collectLogs(ctx, b, p, c)
			for _, v := range p.Spec.Volumes {
				// The driver's own ConfigMaps may hold anything.
				mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
				if mounted && v.ConfigMap != nil && first("ConfigMap "+p.Namespace+"/"+v.ConfigMap.Name) {
					b.got(d.client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, v.ConfigMap.Name, get))
				}
			}
		}
	}
	for _, about := range append(sorted(d.own), "failover") {
		events(metav1.NamespaceAll, "source=csi-fencepost "+about)
	}
}

// collectLogs adds the last lines of the container's log, of the run before too, and its page.
func (d *doctoring) collectLogs(ctx context.Context, b *bundle, p *corev1.Pod, c *corev1.Container) {
	name := p.Namespace + "/" + p.Name + "/" + c.Name
	pods, lines, bytes := d.client.CoreV1().Pods(p.Namespace), int64(logLines), int64(logBytes)
	for suffix, previous := range map[string]bool{"": false, "-previous": true} {
		log, err := pods.GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name, Previous: previous, TailLines: &lines, LimitBytes: &bytes, Timestamps: true}).Do(ctx).Raw()
		if err != nil {
			b.failed("log"+suffix+" of "+name, err)
			continue
		}
		b.files["logs/"+name+suffix+".log"] = string(log)
	}
	address, _ := explain.Argument(c, "http-endpoint")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return
	}
	web := ""
	if _, tls := explain.Argument(c, "tls-cert-file"); tls {
		web = "https"
	}
	page, err := pods.ProxyGet(web, p.Name, port, sidecar.StatuszJSONPath, nil).DoRaw(ctx)
	if err != nil {
		b.failed("/statusz of "+name, err)
		return
	}
	b.files["statusz/"+name+".json"] = string(page)
}

// write packs the files.
func (b *bundle) write(to io.Writer) error {
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	for _, name := range sorted(b.files) {
		text := b.files[name]
		err := out.WriteHeader(&tar.Header{Name: "csi-fencepost/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()})
		if err == nil {
			_, err = io.WriteString(out, text)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), zip.Close())
}
