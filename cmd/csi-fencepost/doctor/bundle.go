package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
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
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

const (
	logLines = 2000
	logBytes = 4 << 20
	// most Events of one namespace.
	mostEvents = 2000
)

// A bundle is what goes into the archive: objects by kind, and other files.
type bundle struct {
	strip   stripper
	objects map[string][]map[string]any
	files   map[string]string
	errs    []string // what could not be had
}

// writeBundle writes the archive to a file; "-": to stdout.
func (d *doctoring) writeBundle(ctx context.Context, file string, stdout, stderr io.Writer) (err error) {
	to := cli.Verbatim(stdout)
	if _, terminal := cli.Terminal(stdout); file == "-" && terminal {
		return cli.Usagef("doctor: --bundle=- is an archive, and standard output is a terminal: name a file")
	}
	if file != "-" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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
	b := &bundle{strip: stripper{map[string]string{}}, objects: map[string][]map[string]any{}, files: map[string]string{}}
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
	var text bytes.Buffer
	d.print(&text, cli.Style{Width: cli.MaxWidth})
	b.files["doctor.txt"] = b.strip.text(text.String())
	var asYAML bytes.Buffer
	if err := cli.PrintAs(&asYAML, "yaml", &d.Report, nil); err != nil {
		b.errs = append(b.errs, "doctor.yaml: "+err.Error())
	}
	b.files["doctor.yaml"] = b.strip.text(asYAML.String())
	b.files["version.txt"] = "csi-fencepost " + cli.BuildVersion() + "\n"
	for kind, all := range b.objects {
		var docs strings.Builder
		for _, o := range all {
			out, err := yaml.Marshal(b.strip.texts(o))
			if err != nil {
				b.errs = append(b.errs, kind+": "+err.Error())
				continue
			}
			docs.WriteString("---\n" + string(out))
		}
		b.files["objects/"+kind+".yaml"] = docs.String()
	}
	b.files["missing.txt"] = b.strip.free(strings.Join(append(slices.Clone(d.missing), b.errs...), "\n") + "\n")
	return b
}

func addAll[T runtime.Object](b *bundle, all []T) {
	for _, o := range all {
		b.add(o)
	}
}

// add an object, stripped. One that is there already stays once.
func (b *bundle) add(o runtime.Object) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		b.errs = append(b.errs, err.Error())
		return
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		b.errs = append(b.errs, err.Error())
		return
	}
	out["apiVersion"], out["kind"] = kinds[0].ToAPIVersionAndKind()
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

// collectPods adds the pods of attachers and of csi-fencepost, what keeps them, their
// configuration, Events, logs and pages.
func (d *doctoring) collectPods(ctx context.Context, b *bundle) {
	pods := []*corev1.Pod{}
	for _, p := range d.pods {
		if isApart(p) || d.rbac.attaches(accountOf(p)) {
			pods = append(pods, p)
		}
	}
	done := map[string]bool{}
	first := func(what string) bool { seen := done[what]; done[what] = true; return !seen }
	for _, p := range pods {
		b.add(p)
		if of, err := d.workloadOf(ctx, p); err == nil && first(of.String()) {
			d.collectWorkload(ctx, b, of)
		}
		if first("Events of " + p.Namespace) {
			d.collectEvents(ctx, b, p.Namespace, "")
		}
		for _, c := range ours(p) {
			d.collectLogs(ctx, b, p, c)
			for _, v := range p.Spec.Volumes {
				// The driver's own ConfigMaps may hold anything.
				mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
				if mounted && v.ConfigMap != nil && first("ConfigMap "+p.Namespace+"/"+v.ConfigMap.Name) {
					b.got(d.client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{}))
				}
			}
		}
	}
	for _, about := range append(sorted(d.own), "failover") {
		d.collectEvents(ctx, b, metav1.NamespaceAll, "source=csi-fencepost "+about)
	}
}

// ours are the containers of a pod that are csi-fencepost.
func ours(p *corev1.Pod) (all []*corev1.Container) {
	if !isApart(p) {
		return explain.SidecarsOf(p)
	}
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	return all
}

// got is add of what was just read.
func (b *bundle) got(o runtime.Object, err error) {
	if err != nil {
		b.errs = append(b.errs, err.Error())
		return
	}
	b.add(o)
}

func (d *doctoring) collectWorkload(ctx context.Context, b *bundle, of workload) {
	apps, o := d.client.AppsV1(), metav1.GetOptions{}
	switch of.kind {
	case "Deployment":
		b.got(apps.Deployments(of.namespace).Get(ctx, of.name, o))
	case "StatefulSet":
		b.got(apps.StatefulSets(of.namespace).Get(ctx, of.name, o))
	case "DaemonSet":
		b.got(apps.DaemonSets(of.namespace).Get(ctx, of.name, o))
	}
}

func (d *doctoring) collectEvents(ctx context.Context, b *bundle, in, selector string) {
	events, err := d.client.CoreV1().Events(in).List(ctx, metav1.ListOptions{Limit: mostEvents, FieldSelector: selector})
	if err != nil {
		b.errs = append(b.errs, err.Error())
		return
	}
	for i := range events.Items {
		b.add(&events.Items[i])
	}
}

// collectLogs adds the last lines of the container's log, of the run before too, and its page.
func (d *doctoring) collectLogs(ctx context.Context, b *bundle, p *corev1.Pod, c *corev1.Container) {
	name := p.Namespace + "/" + p.Name + "/" + c.Name
	pods, lines, bytes := d.client.CoreV1().Pods(p.Namespace), int64(logLines), int64(logBytes)
	for suffix, previous := range map[string]bool{"": false, "-previous": true} {
		log, err := pods.GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name, Previous: previous, TailLines: &lines, LimitBytes: &bytes, Timestamps: true}).Do(ctx).Raw()
		if err != nil {
			b.errs = append(b.errs, "log"+suffix+" of "+name+": "+err.Error())
			continue
		}
		b.files["logs/"+name+suffix+".log"] = b.strip.free(string(log))
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
		b.errs = append(b.errs, "/statusz of "+name+": "+err.Error())
		return
	}
	b.files["statusz/"+name+".json"] = b.strip.text(string(page))
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
