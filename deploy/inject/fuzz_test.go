package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func mustFlow(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whatever the text: no panic, and what was put in can be taken out again.
func FuzzInject(f *testing.F) {
	for _, folder := range []string{"cases", "refused"} {
		for name, in := range inputs(f, folder) {
			f.Add(in.Text, strings.Join(options[name].Drivers, " "))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, driver string) {
		if clean, err := Uninject([]File{{"f.yaml", text}}); err != nil || len(clean.Files) != 1 || !bytes.Equal(clean.Files[0].Text, text) {
			return // marks, or an annotation, of an injection before
		}
		r, err := Inject([]File{{"f.yaml", text}}, Options{Drivers: strings.Fields(driver), Namespace: "storage"})
		if err != nil {
			return
		}
		restored(t, r.Files, text)
	})
}

func restored(t *testing.T, injected []File, text []byte) {
	t.Helper()
	back, err := Uninject(injected)
	if err != nil {
		t.Fatalf("%v in\n%s", err, injected[0].Text)
	}
	if len(back.Files) != 1 || !bytes.Equal(back.Files[0].Text, text) {
		t.Fatalf("came back as\n%q\nfrom\n%s", back.Files, injected[0].Text)
	}
}

// The same over damaged fixtures, on every run: lines that are lost, doubled,
// indented, joined or end otherwise.
func TestDamagedManifestsAreRefusedOrRestored(t *testing.T) {
	random, tried, worked := rand.New(rand.NewPCG(1, 2)), 0, 0
	all := inputs(t, "cases")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for range 20 {
			text := damage(random, all[name].Text)
			tried++
			r, err := Inject([]File{{name, text}}, options[name])
			if err != nil {
				continue
			}
			worked++
			restored(t, r.Files, text)
		}
	}
	if worked < tried/4 {
		t.Errorf("of %d only %d could be injected: the damage is too large to test anything", tried, worked)
	}
}

func damage(random *rand.Rand, text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	i := random.IntN(len(lines))
	switch random.IntN(8) {
	case 0:
		lines = slices.Delete(lines, i, i+1)
	case 1:
		lines = slices.Insert(lines, i, lines[i])
	case 2:
		lines[i] = append([]byte("  "), lines[i]...)
	case 3:
		lines[i] = bytes.TrimRight(lines[i], "\r\n")
	case 4:
		lines[i] = append(bytes.TrimRight(lines[i], "\r\n"), "   # ü\u2028\r\n"...)
	case 5:
		lines = slices.Insert(lines, i, []byte("\n"), []byte("   \n"))
	case 6:
		return append([]byte("\ufeff"), text...)
	case 7:
		return bytes.TrimRight(text, "\r\n")
	}
	return bytes.Join(lines, nil)
}

// Whatever a kustomization says: it is refused, or it names the rights once, and nothing else of it has
// changed; and what was put in can be taken out again.
func FuzzKustomization(f *testing.F) {
	for _, text := range []string{
		"# ours\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - f.yaml # the vendor's\n\nimages: []\n",
		"resources: [f.yaml]\n", "commonAnnotations: {a: b}\n", "resources: [f.yaml, csi-fencepost.yaml]\n", "resources: [./csi-fencepost.yaml, f.yaml]\n", "resources:\n", "resources: {a: b}\n", "namespace: other\n",
		"namePrefix: \"\"\nresources: &r [f.yaml]\ncomponents: *r\n", "resources: [f.yaml]\r\n---\r\nresources:\r\n- f.yaml\r\n", "- a\n", "", "resources:\n- f.yaml\n- |\n  text\n",
	} {
		f.Add([]byte(text))
	}
	controller, o := inputs(f, "cases")["block-scalars"], options["block-scalars"]
	o.Separate, o.Beside = true, true
	if r, err := Inject([]File{{"f.yaml", controller.Text}, {"kustomization.yaml", []byte("resources: [f.yaml]\n")}}, o); err != nil || len(r.Changed) != 2 {
		f.Fatalf("no kustomization is changed at all (%v), and so none is looked at", err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		files := []File{{"f.yaml", controller.Text}, {"kustomization.yaml", text}}
		if clean, err := Uninject(files); err != nil || len(clean.Files) != 2 || !bytes.Equal(clean.Files[1].Text, text) {
			return // marks of an injection before
		}
		r, err := Inject(files, o)
		if err != nil {
			return
		}
		was, is := documents(t, text), documents(t, r.Files[1].Text)
		if len(was) > len(is) {
			t.Fatalf("%d documents of %d\n%s", len(is), len(was), r.Files[1].Text)
		}
		for i, document := range is {
			resources, _ := document["resources"].([]any)
			before := map[string]any{}
			if i < len(was) && was[i] != nil {
				before = was[i]
			}
			had, _ := before["resources"].([]any)
			if len(document) == 0 && len(before) == 0 {
				continue
			}
			if !slices.ContainsFunc(had, namesDocuments) {
				had = append(slices.Clone(had), DocumentsFile)
			}
			before["resources"] = had
			if !reflect.DeepEqual(resources, had) || !reflect.DeepEqual(document, before) {
				t.Errorf("%v became %v in\n%s", before, document, r.Files[1].Text)
			}
		}
		back, err := Uninject(r.Files)
		if err != nil {
			t.Fatalf("%v in\n%s", err, r.Files[1].Text)
		}
		if len(back.Files) != 2 || !bytes.Equal(back.Files[1].Text, text) {
			t.Fatalf("came back as\n%q\nfrom\n%s", back.Files, r.Files[1].Text)
		}
	})
}

// namesDocuments: kustomize refuses a resource that is named twice, however its path is written.
func namesDocuments(resource any) bool {
	name, _ := resource.(string)
	return strings.TrimLeft(name, "./") == DocumentsFile && !strings.HasPrefix(name, "/") && !strings.Contains(name, "..")
}

// documents of a stream, as another reader than the injection's sees them.
func documents(t *testing.T, text []byte) (all []map[string]any) {
	t.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var one map[string]any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		all = append(all, one)
	}
}
