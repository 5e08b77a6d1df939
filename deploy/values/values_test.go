package values

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

var update = flag.Bool("update", false, "write the golden files; review their diff")

func file(t testing.TB, name string) inject.File {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return inject.File{Name: name, Text: text}
}

// capable are the charts that can do it.
func capable() (names []string) {
	for i := range charts {
		if charts[i].Missing == "" {
			names = append(names, charts[i].Name)
		}
	}
	return names
}

// plansOf a chart's manifests, made as --as-values makes them.
func plansOf(t testing.TB, name string, change *strings.Replacer) (*Chart, []*inject.Plan) {
	t.Helper()
	c, err := For(name)
	if err != nil {
		t.Fatal(err)
	}
	o := inject.Options{Image: "registry.example.com/csi-fencepost:v1", Separate: true}
	if err := c.Fit(&o); err != nil {
		t.Fatal(err)
	}
	manifests := file(t, name+".yaml")
	manifests.Text = []byte(change.Replace(string(manifests.Text)))
	r, err := inject.Inject([]inject.File{manifests}, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, r.Plans
}

func given(t testing.TB, name string) tree {
	t.Helper()
	all, err := Merge([]inject.File{file(t, name+".values.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The golden files are what a person reviews. That Helm, kustomize and the API server make of
// them what is meant is tested in sanity/kubeapi.
func TestTheValuesOfEachChart(t *testing.T) {
	for _, name := range capable() {
		c, plans := plansOf(t, name, strings.NewReplacer())
		text, err := c.Render(plans, given(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden := filepath.Join("testdata", name+".golden.yaml")
		if *update {
			if err := os.WriteFile(golden, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != string(text) {
			t.Errorf("%s differs (go test -update writes it), %v:\n%s", golden, err, text)
		}
	}
}

// Helm replaces a list as a whole. What a release has in it stays, in its order, before ours; and
// the attacher's last address is ours.
func TestWhatIsInAListStays(t *testing.T) {
	for _, name := range capable() {
		c, plans := plansOf(t, name, strings.NewReplacer())
		had := given(t, name)
		text, err := c.Render(plans, had)
		if err != nil {
			t.Fatal(err)
		}
		got := beginsWithWhatWasThere(t, c, had, text)
		if c.Args == "" {
			continue
		}
		args, _ := c.given(got, c.Args)
		last := ""
		for _, arg := range args {
			if value, ok := strings.CutPrefix(arg.(string), "--csi-address="); ok {
				last = value
			}
		}
		if !slices.Contains(plans[0].Sidecar.Args, "--listen="+last) || last == "" {
			t.Errorf("%s: the attacher's last address is %q, the sidecar has %q", name, last, plans[0].Sidecar.Args)
		}
	}
}

// beginsWithWhatWasThere fails unless each list of what was written begins with what the values had
// in it, and has more. It returns what was written.
func beginsWithWhatWasThere(t *testing.T, c *Chart, had tree, text []byte) (got tree) {
	t.Helper()
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, at := range []path{c.Containers, c.Volumes, c.Args, c.Patches} {
		if at == "" {
			continue
		}
		before, err := c.given(had, at)
		if err != nil {
			t.Fatal(err)
		}
		after, err := c.given(got, at)
		if err != nil || len(after) <= len(before) {
			t.Errorf("%s: %s has %v after %v: %v", c.Name, at, after, before, err)
			continue
		}
		for i := range before {
			if !reflect.DeepEqual(before[i], after[i]) {
				t.Errorf("%s: %s begins with %v, want %v", c.Name, at, after, before)
			}
		}
	}
	return got
}

// No chart mounts a volume of ours into the attacher.
func TestTheSocketIsInTheDriversFolderAndCanBeMadeThere(t *testing.T) {
	for _, name := range []string{"aws-ebs", "proxmox", "democratic-csi"} {
		_, plans := plansOf(t, name, strings.NewReplacer())
		p := plans[0]
		for _, v := range p.Volumes {
			if v.EmptyDir != nil {
				t.Errorf("%s: volume %s is added", name, v.Name)
			}
		}
		at := slices.IndexFunc(p.Sidecar.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "socket-dir" })
		if at < 0 || p.Sidecar.VolumeMounts[at].ReadOnly {
			t.Errorf("%s: mounts %+v", name, p.Sidecar.VolumeMounts)
		}
		if len(p.Attacher.VolumeMounts) != 1 || p.Attacher.VolumeMounts[0].Name != "socket-dir" {
			t.Errorf("%s: the attacher's mounts are to be %+v", name, p.Attacher.VolumeMounts)
		}
	}
}

// What the manifests have and the values have not would be lost.
func TestValuesOfAnotherReleaseAreRefused(t *testing.T) {
	for says, c := range map[string]struct {
		chart  string
		values string
	}{
		"the pod has [mine] where the values have [] in controller.initContainers":                              {"aws-ebs", "controller: {initContainers: []}"},
		"the pod has [] where the values have [other] in initContainers":                                        {"proxmox", "initContainers: [{name: other}]"},
		"the pod has [mine] where the values have [] in controller.extraContainers":                             {"democratic-csi", "a: 1"},
		"--default-fstype=ext4] do not end with those that the values have in controller.attacher.args, [--x]":  {"proxmox", "controller: {attacher: {args: [--x]}}"},
		"the pod has [] where the values have [ ] in initContainers":                                            {"proxmox", "initContainers: [null, x]"},
		"controller.attacher.args, [a b c d e f g h]":                                                           {"proxmox", "controller: {attacher: {args: [a, b, c, d, e, f, g, h]}}"},
		"--values: controller.attacher.args is no list":                                                         {"proxmox", "controller: {attacher: {args: --x}}"},
		"--values: controller.volumes is no list":                                                               {"aws-ebs", "controller: {initContainers: [{name: mine}], volumes: {}}"},
		"--values: controller.attacher.args is no mapping":                                                      {"proxmox", "controller: {attacher: 3}"},
		"--values has to be the LinstorCluster itself, for the patches that it has: kubectl get linstorcluster": {"linstor", "spec: {patches: []}"},
		"--values: spec.patches is no list":                                                                     {"linstor", "kind: LinstorCluster\nspec: {patches: x}"},
	} {
		chart, plans := plansOf(t, c.chart, strings.NewReplacer())
		all, err := Merge([]inject.File{{Name: "v", Text: []byte(c.values)}})
		if err != nil {
			t.Fatal(err)
		}
		whole := tree{} // the chart's own values come first
		for _, at := range []path{chart.Containers, chart.Volumes, chart.Args} {
			if at != "" {
				set(whole, at, []any{})
			}
		}
		merge(whole, all)
		all = whole
		if text, err := chart.Render(plans, all); err == nil || text != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v", says, err)
		}
	}
	chart, plans := plansOf(t, "proxmox", strings.NewReplacer())
	if _, err := chart.Render(append(plans, plans...), given(t, "proxmox")); err == nil || !strings.Contains(err.Error(), "2 attachers are to be guarded") {
		t.Errorf("two attachers: %v", err)
	}
}

// Helm takes a value that no chart reads without a word: then nobody would be told that there is no
// sidecar, or that the attacher calls past it.
func TestAListThatTheValuesLackIsRefused(t *testing.T) {
	for _, name := range []string{"aws-ebs", "proxmox", "democratic-csi"} {
		c, plans := plansOf(t, name, strings.NewReplacer())
		for _, at := range []path{c.Containers, c.Volumes, c.Args} {
			all := given(t, name)
			words := at.words()
			inner := all
			for _, word := range words[:len(words)-1] {
				inner = inner[word].(tree)
			}
			delete(inner, words[len(words)-1])
			if text, err := c.Render(plans, all); err == nil || text != nil || !strings.Contains(err.Error(), "--values has no "+string(at)+",") {
				t.Errorf("%s without %s: %v", name, at, err)
			}
		}
		if text, err := c.Render(plans, tree{"the-chart": given(t, name)}); err == nil || text != nil {
			t.Errorf("%s, all of it below a name: written", name)
		}
	}
	// A LinstorCluster has patches or none.
	c, plans := plansOf(t, "linstor", strings.NewReplacer())
	if _, err := c.Render(plans, tree{"kind": "LinstorCluster"}); err != nil {
		t.Error(err)
	}
}

// afterFirst is what a first run writes for LINSTOR, and the cluster's values with that in them.
func afterFirst(t *testing.T, c *Chart, plans []*inject.Plan) (first []byte, all tree) {
	t.Helper()
	first, err := c.Render(plans, given(t, "linstor"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err = Merge([]inject.File{file(t, "linstor.values.yaml"), {Name: "first", Text: first}}); err != nil {
		t.Fatal(err)
	}
	return first, all
}

// What the first run saw stays behind its patch, and that is said.
func TestWhatAnEarlierPatchHidesIsSaid(t *testing.T) {
	c, plans := plansOf(t, "linstor", strings.NewReplacer())
	if note := c.Note(plans, given(t, "linstor")); note != "" {
		t.Errorf("of a first run: %s", note)
	}
	_, all := afterFirst(t, c, plans)
	if note := c.Note(plans, all); !strings.Contains(note, "After an upgrade of the operator take the patch out of spec.patches") {
		t.Errorf("of a second run: %q", note)
	}
	proxmox, plans := plansOf(t, "proxmox", strings.NewReplacer())
	if note := proxmox.Note(plans, given(t, "proxmox")); note != "" {
		t.Errorf("of a chart: %s", note)
	}
}

// Helm deletes what a release has no more, unless the object itself says that it stays.
func TestEachDocumentIsMarkedToBeKept(t *testing.T) {
	keep := func(o inject.Options) {
		t.Helper()
		o.Image, o.Separate = "registry.example.com/csi-fencepost:v1", true
		r, err := inject.Inject([]inject.File{file(t, "../../../sanity/kubeapi/testdata/vendor.yaml")}, o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := Keep(r.Documents)
		if err != nil {
			t.Fatal(err)
		}
		for one := range strings.SplitSeq(string(text), "\n---\n") {
			var was struct {
				Kind     string
				Metadata struct {
					Name        string
					Annotations map[string]string
				}
			}
			if err := yaml.Unmarshal([]byte(one), &was); err != nil || was.Metadata.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%v: %s %s is not kept", err, was.Kind, was.Metadata.Name)
			}
		}
		again, err := Keep(text)
		if err != nil || string(again) != string(text) {
			t.Errorf("marked twice: %v", err)
		}
		without := strings.ReplaceAll(string(text), "  annotations: {helm.sh/resource-policy: keep}\n", "")
		if before := strings.ReplaceAll(string(r.Documents), "  annotations: {helm.sh/resource-policy: keep}\n", ""); without != before {
			t.Errorf("more was changed:\n%s", text)
		}
	}
	keep(inject.Options{Mode: "Enforce", Failover: inject.Apart, MetricsFrom: "monitoring", TLSSecret: "tls"})
	keep(inject.Options{Config: []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Observe\n# --- \n---\n")})
	if _, err := Keep([]byte("kind: X\nmetadata: {name: x}\n")); err == nil {
		t.Error("what cannot be marked was taken")
	}
}

// An argument that the chart renders itself is not held against what it became.
func TestATemplateInTheValuesIsNotComparedWithWhatItBecame(t *testing.T) {
	c, plans := plansOf(t, "democratic-csi", strings.NewReplacer("/csi-data/csi.sock]", "/csi-data/csi.sock, --retry-interval-max=1m]"))
	all := given(t, "democratic-csi")
	set(all, c.Args, []any{"--retry-interval-max={{ .Values.max }}"})
	if _, err := c.Render(plans, all); err != nil {
		t.Error(err)
	}
}

// The patch of an earlier run is replaced, not repeated.
func TestAnEarlierPatchOfOursIsReplaced(t *testing.T) {
	c, plans := plansOf(t, "linstor", strings.NewReplacer())
	first, all := afterFirst(t, c, plans)
	if second, err := c.Render(plans, all); err != nil || string(second) != string(first) {
		t.Errorf("%v\n%s\nwant\n%s", err, second, first)
	}
}

// A chart that cannot is named with what it lacks, and with what works.
func TestWhatNoValueCanDoIsSaid(t *testing.T) {
	for name, says := range map[string]string{
		"hcloud": "no value for arguments of the attacher", "cinder": "no value for containers or init containers", "rook": `no chart is known as "rook"; there are: aws-ebs, cinder, democratic-csi, hcloud, linstor, proxmox`,
	} {
		if c, err := For(name); c != nil || err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "post-renderer") {
			t.Errorf("%s: %v", name, err)
		}
	}
	native, container := true, false
	for name, form := range map[string]*bool{"aws-ebs": &container, "proxmox": &container, "democratic-csi": &native} {
		c, err := For(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Fit(&inject.Options{Native: form}); err == nil || !strings.Contains(err.Error(), "has a place for a sidecar in "+string(c.Containers)+" only") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// As Helm does it.
func TestValuesAreMergedAsHelmDoes(t *testing.T) {
	got, err := Merge([]inject.File{
		{Name: "a", Text: []byte("a: {b: 1, c: [1, 2], d: {e: 1}}\nf: 1\ng: {h: 1}\n")},
		{Name: "b", Text: []byte("a: {c: [3], d: {i: 2}}\nf: null\ng: 2\n")},
	})
	text, _ := yaml.Marshal(got)
	if want := "a:\n  b: 1\n  c:\n  - 3\n  d:\n    e: 1\n    i: 2\ng: 2\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
	for _, bad := range []string{"- a", "a: [", "x"} {
		if _, err := Merge([]inject.File{{Name: "v.yaml", Text: []byte(bad)}}); err == nil || !strings.Contains(err.Error(), "v.yaml: it is no file of values") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Whatever the values of a release are: they are refused, or none of what is in their lists is lost.
func FuzzValues(f *testing.F) {
	type made struct {
		*Chart
		plans []*inject.Plan
	}
	var all []made
	for i, name := range capable() {
		c, plans := plansOf(f, name, strings.NewReplacer())
		all = append(all, made{c, plans})
		f.Add(uint(i), file(f, name+".values.yaml").Text)
	}
	f.Add(uint(0), []byte("controller: {initContainers: [null, 3, {name: mine}], volumes: x}\nsidecars: []\n"))
	f.Add(uint(3), []byte("kind: LinstorCluster\nspec: {patches: [{patch: '{'}, null, 1]}\n"))
	f.Fuzz(func(t *testing.T, chart uint, text []byte) {
		c := all[chart%uint(len(all))]
		had, err := Merge([]inject.File{{Name: "v", Text: text}})
		if err != nil {
			return
		}
		_ = c.Note(c.plans, had)
		out, err := c.Render(c.plans, had)
		if err != nil {
			if out != nil {
				t.Errorf("refused, and written: %v\n%s", err, out)
			}
			return
		}
		again, err := Merge([]inject.File{{Name: "v", Text: text}})
		if err != nil || !reflect.DeepEqual(had, again) {
			t.Errorf("the values were changed: %v, %v", had, err)
		}
		beginsWithWhatWasThere(t, c.Chart, again, out)
	})
}
