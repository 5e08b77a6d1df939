package inject

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject/splice"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

var update = flag.Bool("update", false, "write the golden files; review their diff")

// options of the cases that need some.
var options = map[string]Options{
	"one-dash-hostpath-no-newline": {Drivers: []string{"array.example.com"}, Namespace: "csi"},
	"block-scalars":                {Drivers: []string{"array.example.com"}},
	"json":                         {Drivers: []string{"array.example.com"}, Image: "registry.example.com/csi-fencepost:v1"},
	"hosted-control-plane":         {Drivers: []string{"array.example.com"}},
	"one-of-two":                   {Drivers: []string{"file.example.com"}, HTTPPort: 8080},
	"hostnetwork":                  {Mode: config.Enforce, Failover: InPod},
	"anchor":                       {Drivers: []string{"array.example.com"}},
	"template-in-a-list":           {Drivers: []string{"array.example.com"}},
	"template-in-quotes":           {Drivers: []string{"array.example.com"}},
	"native-sidecar":               {Native: ptr(true)},
}

// inputs are the files of a folder of testdata, by their names.
func inputs(t testing.TB, folder string) map[string]File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(names) < 10 {
		t.Fatalf("%d cases in %s: %v", len(names), folder, err)
	}
	found := map[string]File{}
	for _, name := range names {
		if strings.HasSuffix(name, ".golden.yaml") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := strings.TrimSuffix(filepath.Base(name), ".yaml")
		found[base] = File{filepath.Base(name), text}
	}
	return found
}

// golden holds text against a file, or writes it there.
func golden(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (go test -update writes it):\n%s", name, text)
	}
}

// once injects into one file, with the documents apart.
func once(t testing.TB, f File, o Options) (text []byte, r *Result) {
	t.Helper()
	o.Separate = true
	r, err := Inject([]File{f}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r.Files[0].Text, r
}

func said(findings []Finding) string {
	var out strings.Builder
	for _, f := range findings {
		out.WriteString(f.String() + "\n")
	}
	return out.String()
}

// What a person has to agree to, the mode and the rights, is not the 13th line.
func TestModeAndRightsAreSaidFirst(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		_, r := once(t, f, options[name])
		said := strings.Split(said(r.Plans[0].Findings), "\n")
		if !strings.Contains(said[0], ": rights of mode ") && (!strings.Contains(said[0], ": mode ") || !strings.Contains(said[1], ": rights of mode ")) {
			t.Errorf("%s: first is said\n%s\n%s", name, said[0], said[1])
		}
	}
}

// A chart that is not rendered is called that, by file, line and template.
func TestATemplateIsNamed(t *testing.T) {
	others := map[string]string{"template-of-a-shell": "(${NAMESPACE})", "template-in-brackets": "(<ReleaseName>-controller)"}
	for name, f := range inputs(t, "refused") {
		if !strings.HasPrefix(name, "template") {
			continue
		}
		_, err := Inject([]File{f}, options[name])
		if err == nil || !strings.Contains(err.Error(), "a template is left in ") || !strings.Contains(err.Error(), cmp.Or(others[name], "({{")) || !strings.HasPrefix(err.Error(), name+".yaml:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever has an operator's files is told where the controller is to be found.
func TestAnOperatorsFilesLeadToTheCluster(t *testing.T) {
	for name, f := range inputs(t, "refused") {
		if !strings.HasPrefix(name, "operator") {
			continue
		}
		_, err := Inject([]File{f}, Options{})
		if err == nil || !strings.Contains(err.Error(), "kubectl get deployment,statefulset,csidriver -n storage-system -o yaml | csi-fencepost inject --as-policy") {
			t.Errorf("%s: %v", name, err)
		}
		if names := strings.Contains(name, "-names-it"); err != nil && names != strings.Contains(err.Error(), "registry.example.com/csi-attacher:v4.12.0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The golden files are what a person reviews: what is changed in whose way of
// writing, and what is said about it.
func TestWhatIsChangedAndSaid(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		t.Run(name, func(t *testing.T) {
			text, r := once(t, f, options[name])
			golden(t, "cases/"+name+".golden.yaml", string(text))
			golden(t, "cases/"+name+".said.txt", said(r.Findings))
		})
	}
}

func TestRightsAndConfiguration(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	for name, o := range map[string]Options{"observe": {}, "enforce": {Mode: config.Enforce}, "failover": {Mode: config.Enforce, Failover: InPod}, "apart": {Mode: config.Enforce, Failover: Apart, Image: "registry.example.com/f:v1"}} {
		_, r := once(t, f, o)
		golden(t, "documents-"+name+".golden.yaml", string(r.Documents))
	}
}

func TestUninjectRestoresEveryByte(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		for _, separate := range []bool{false, true} {
			o := options[name]
			o.Separate = separate
			r, err := Inject([]File{f}, o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			files := r.Files
			if separate {
				files = append(files, File{"csi-fencepost.yaml", r.Documents})
			}
			back, err := Uninject(files)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.Equal(back.Files[0].Text, f.Text) || len(back.Files) != 1 {
				t.Errorf("%s: %d files came back:\n%s", name, len(back.Files), back.Files[0].Text)
			}
			if separate && !slices.Equal(back.Removed, []string{"csi-fencepost.yaml"}) {
				t.Errorf("%s: removed %v", name, back.Removed)
			}
		}
	}
}

// Every line of the input is there afterwards, as it was and in its order: in
// its place, or behind the mark that says what was there.
func TestNoForeignByteIsLost(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		text, _ := once(t, f, options[name])
		rest := string(text)
		for line := range strings.SplitAfterSeq(string(f.Text), "\n") {
			at := strings.Index(rest, strings.TrimRight(line, "\n"))
			if at < 0 {
				t.Errorf("%s: line %q is gone", name, line)
				break
			}
			rest = rest[at+len(strings.TrimRight(line, "\n")):]
		}
	}
}

func TestInjectIsIdempotent(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		first, err := Inject([]File{f}, options[name])
		if err != nil {
			t.Fatal(err)
		}
		second, err := Inject(first.Files, options[name])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Files[0].Text, second.Files[0].Text) || len(second.Changed) > 0 {
			t.Errorf("%s: changed %v:\n%s", name, second.Changed, second.Files[0].Text)
		}
	}
}

// Run again with fewer options, it must not fall back from Enforce to what a
// profile proposes.
func TestWhatWasChosenBeforeIsKept(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	first, err := Inject([]File{f}, Options{Mode: config.Enforce, Failover: InPod, Image: "registry.example.com/f:v1"})
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Replace(first.Files[0].Text, []byte("networkFence: true #"), []byte("networkFence: false #"), 1)
	second, err := Inject([]File{{f.Name, edited}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(second.Files[0].Text, edited) {
		t.Errorf("changed:\n%s", second.Files[0].Text)
	}
	third, err := Inject(second.Files, Options{Mode: config.Observe})
	if err != nil {
		t.Fatal(err)
	}
	if p := third.Plans[0]; p.Mode != config.Observe || p.Failover || p.Sidecar.Image != "registry.example.com/f:v1" {
		t.Errorf("mode %s, failover %v, image %s", p.Mode, p.Failover, p.Sidecar.Image)
	}
}

// Whatever normalises a manifest takes the comments off; the annotation stays.
func TestUninjectWorksWithoutTheMarks(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		o := options[name]
		first, err := Inject([]File{f}, o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Uninject([]File{{f.Name, withoutComments(first.Files[0].Text)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if before, after := values(t, f.Text), values(t, r.Files[0].Text); !slices.Equal(before, after) {
			t.Errorf("%s:\n%s\nwant\n%s", name, after, before)
		}
	}
}

// withoutComments drops the lines that are comments.
func withoutComments(text []byte) []byte {
	var out []byte
	for line := range bytes.SplitAfterSeq(text, []byte("\n")) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			out = append(out, line...)
		}
	}
	return out
}

// values are the documents, printed in one way.
func values(t *testing.T, text []byte) (all []string) {
	t.Helper()
	s, err := splice.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range s.Roots() {
		if root == nil {
			continue
		}
		value, err := splice.Decode(root)
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := value.(object); ok { // empty annotations mean none
			forEachObject(o, func(o object) {
				if m := child(o, "metadata"); m != nil && len(child(m, "annotations")) == 0 {
					delete(m, "annotations")
				}
			})
		}
		all = append(all, mustFlow(t, value))
	}
	return all
}

func forEachObject(o object, each func(object)) {
	each(o)
	items, _ := o["items"].([]any)
	for _, item := range items {
		if i, ok := item.(object); ok {
			each(i)
		}
	}
}

// A refusal says what is wrong, where, and what would be right.
func TestRefusals(t *testing.T) {
	all := inputs(t, "refused")
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r, err := Inject([]File{all[name]}, options[name])
		if err == nil || r != nil {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		kind := "error"
		if nothing := (*NothingError)(nil); errors.As(err, &nothing) {
			kind = "nothing"
		}
		out.WriteString(name + " (" + kind + ")\n  " + err.Error() + "\n")
	}
	golden(t, "refusals.golden.txt", out.String())
}

// A folder is taken as a whole: the CSIDriver may stand in another file.
func TestFilesAreTakenTogether(t *testing.T) {
	files := []File{
		{"a-driver.yaml", []byte("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata:\n  name: array.example.com\n")},
		{"b-values.yaml", []byte("replicas: 3 # no object\n")},
		{"c-controller.yaml", inputs(t, "cases")["two-entries-in-command"].Text},
	}
	r, err := Inject(files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Changed, []string{"c-controller.yaml"}) || len(r.Plans) != 1 || r.Plans[0].Driver != "array.example.com" {
		t.Errorf("changed %v, plans %+v", r.Changed, r.Plans)
	}
	if _, err := Inject(append(files, File{"d.yaml", []byte("a: [")}), Options{}); err == nil || !strings.Contains(err.Error(), "d.yaml:") {
		t.Errorf("error %v", err)
	}
}

func TestAnOwnConfigurationIsTakenAsItIs(t *testing.T) {
	text := "# ours\napiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforce\nfailover: {enabled: true}\n"
	_, r := once(t, inputs(t, "cases")["env-and-comments"], Options{Config: []byte(text)})
	p := r.Plans[0]
	if p.Mode != config.Enforce || !p.Failover {
		t.Errorf("mode %s, failover %v", p.Mode, p.Failover)
	}
	if !bytes.Contains(r.Documents, []byte("    # ours\n    apiVersion: csi-fencepost.io/v1alpha1\n")) || !bytes.Contains(r.Documents, []byte("name: csi-fencepost-failover\n")) {
		t.Errorf("documents:\n%s", r.Documents)
	}
	if _, err := Inject([]File{inputs(t, "cases")["env-and-comments"]}, Options{Config: []byte("mode: Perhaps")}); err == nil {
		t.Error("a wrong configuration is taken")
	}
}

// With failover apart the driver's pod has no right that the guard does not need, and nothing is
// rendered that a person makes, so that a second driver's run overwrites nothing.
func TestFailoverApartIsNobodysInTheDriversPod(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	r, err := Inject([]File{f}, Options{Mode: config.Enforce, Failover: Apart, Image: "registry.example.com/f:v1"})
	if err != nil {
		t.Fatal(err)
	}
	text, p := r.Files[0].Text, r.Plans[0]
	if p.Failover || !p.Apart {
		t.Errorf("in the pod %v, apart %v", p.Failover, p.Apart)
	}
	deployments := 0
	for _, d := range p.Documents {
		switch {
		case d.Kind == "Deployment":
			deployments++
			if !strings.Contains(d.Text, "image: registry.example.com/f:v1\n") {
				t.Errorf("the image is not this run's:\n%s", d.Text)
			}
		case d.Kind == "ConfigMap" && d.Namespace == "csi-fencepost-failover", d.Kind == "Secret":
			t.Errorf("%s %s would be overwritten", d.Kind, d.Name)
		case strings.HasSuffix(d.Kind, "RoleBinding") && strings.Contains(d.Text, "delete") || d.Name == "csi-fencepost-failover-"+p.Driver:
			t.Errorf("%s %s is for the driver's pod:\n%s", d.Kind, d.Name, d.Text)
		}
	}
	if deployments != 1 {
		t.Errorf("%d Deployments", deployments)
	}
	if again, err := Inject([]File{{f.Name, text}}, Options{}); err != nil || len(again.Changed) > 0 || !again.Plans[0].Apart {
		t.Errorf("run again without flags: %v, changed %v", err, again.Changed)
	}
	inPod, err := Inject([]File{{f.Name, text}}, Options{Mode: config.Enforce, Failover: InPod})
	if err != nil || !inPod.Plans[0].Failover || inPod.Plans[0].Apart || bytes.Contains(inPod.Files[0].Text, []byte("kind: Deployment\nmetadata:\n  name: csi-fencepost-failover")) {
		t.Errorf("back into the pod: %v\n%s", err, inPod.Files[0].Text)
	}
	for own, apart := range map[string]bool{"fencing: {apart: true}\n": true, "failover: {enabled: true}\n": false} {
		again, err := Inject([]File{{f.Name, text}}, Options{Config: []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforce\n" + own)})
		if err != nil || again.Plans[0].Apart != apart {
			t.Errorf("with a configuration of one's own, %s: %v", own, err)
		}
	}
	back, err := Uninject([]File{{f.Name, text}})
	if err != nil || !bytes.Equal(back.Files[0].Text, f.Text) {
		t.Errorf("taken out again: %v\n%s", err, back.Files[0].Text)
	}
	const head = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforce\n"
	if _, err := Inject([]File{f}, Options{Config: []byte(head), Failover: Apart}); err == nil || !strings.Contains(err.Error(), "fencing.apart: true") {
		t.Errorf("a configuration that asks nobody: %v", err)
	}
	if _, err := Inject([]File{f}, Options{Config: []byte(head + "fencing: {apart: true}\n"), Failover: Apart}); err != nil {
		t.Error(err)
	}
}

// Rights to move pods are given only to who asks for them.
func TestFailoverRightsOnlyWhenAskedFor(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	for _, o := range []Options{{}, {Mode: config.Enforce}} {
		_, r := once(t, f, o)
		for _, d := range r.Plans[0].Documents {
			if strings.Contains(d.Name, "failover") {
				t.Errorf("%+v: %s %s", o, d.Kind, d.Name)
			}
		}
	}
	if _, err := Inject([]File{f}, Options{Mode: config.Observe, Failover: InPod}); err == nil || !strings.Contains(err.Error(), "--mode Enforce") {
		t.Errorf("error %v", err)
	}
}
