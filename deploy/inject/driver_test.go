package inject

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// controller is a Deployment of an attacher for each folder, whose driver says no
// name.
func controller(name string, folders ...string) string {
	var containers, volumes strings.Builder
	for _, f := range folders {
		fmt.Fprintf(&containers, `      - name: %[1]s-driver
        image: registry.example.com/driver:v1
        volumeMounts: [{name: %[1]s, mountPath: /run/%[1]s}]
      - name: %[1]s-attacher
        image: registry.k8s.io/sig-storage/csi-attacher:v4.12.0
        args: [--csi-address=/csi/csi.sock]
        volumeMounts: [{name: %[1]s, mountPath: /csi}]
`, f)
		fmt.Fprintf(&volumes, "      - {name: %s, emptyDir: {}}\n", f)
	}
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: storage}\nspec:\n  template:\n    spec:\n" +
		"      serviceAccountName: " + name + "\n      containers:\n" + containers.String() + "      volumes:\n" + volumes.String()
}

// csiDriver is an object that says whether it attaches.
func csiDriver(name string, attaches bool) string {
	return fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: %s}\nspec: {attachRequired: %v}\n", name, attaches)
}

func inOneFile(documents ...string) []File {
	return []File{{"f.yaml", []byte(strings.Join(documents, "---\n"))}}
}

// behind says which driver each attacher was taken for.
func behind(r *Result) map[string]string {
	found := map[string]string{}
	for _, p := range r.Plans {
		found[p.Name+"/"+p.Attacher.Container] = p.Driver
	}
	return found
}

// Each attacher is injected as its own driver, and as no other's: by what was
// given, by its CSIDriver, or not at all.
func TestEachAttacherIsOfItsOwnDriver(t *testing.T) {
	const a, b, c = "a.example.com", "b.example.com", "c.example.com"
	one, two, both := controller("one", "s"), controller("two", "s"), controller("both", "x", "y")
	for name, test := range map[string]struct {
		given []string
		input []string
		want  map[string]string
		says  string
	}{
		"one name for two attachers": {given: []string{a}, input: []string{one, two},
			says: "--driver a.example.com may be any of 2 attachers: say which, --driver storage/one/s-attacher=a.example.com. There are: storage/one/s-attacher (of an unknown driver), storage/two/s-attacher (of an unknown driver)"},
		"one name for two attachers of a pod": {given: []string{a}, input: []string{both},
			says: "may be any of 2 attachers"},
		"no name for two attachers": {input: []string{both},
			says: "the name of the driver behind the attachers storage/both/x-attacher, storage/both/y-attacher is not known"},
		"one of two by its place": {given: []string{"one/s-attacher=" + a}, input: []string{one, two},
			want: map[string]string{"one/s-attacher": a}},
		"both by their places": {given: []string{"one/s-attacher=" + a, "storage/two/s-attacher=" + b}, input: []string{one, two},
			want: map[string]string{"one/s-attacher": a, "two/s-attacher": b}},
		"both of a pod by their containers": {given: []string{"y-attacher=" + b, "x-attacher=" + a}, input: []string{both, csiDriver(a, true), csiDriver(b, true)},
			want: map[string]string{"both/x-attacher": a, "both/y-attacher": b}},
		"a name is left for the other": {given: []string{"y-attacher=" + b, a}, input: []string{both},
			want: map[string]string{"both/x-attacher": a, "both/y-attacher": b}},
		"a place that is two": {given: []string{"s-attacher=" + a}, input: []string{one, two},
			says: "2 attachers are called s-attacher; there are: storage/one/s-attacher"},
		"a place that is none": {given: []string{"attacher=" + a}, input: []string{one},
			says: "0 attachers are called attacher"},
		"one driver twice": {given: []string{"x-attacher=" + a, "y-attacher=" + a}, input: []string{both},
			says: "storage/both/x-attacher and storage/both/y-attacher would both be attachers of the driver a.example.com"},
		"a typo": {given: []string{"a.exmaple.com"}, input: []string{one, csiDriver(a, true), csiDriver(b, false)},
			says: `--driver "a.exmaple.com": there is no such CSIDriver. The CSIDriver objects are a.example.com, b.example.com (attachRequired: false)`},
		"a typo behind a place": {given: []string{"s-attacher=a.exmaple.com"}, input: []string{one, csiDriver(a, true)},
			says: "there is no such CSIDriver"},
		"another name than the pod says": {given: []string{b}, input: []string{strings.Replace(one, "driver:v1\n", "driver:v1\n        args: [--drivername=a.example.com]\n", 1)},
			says: "no attacher is of --driver b.example.com; there are: storage/one/s-attacher (of a.example.com, by --drivername of container s-driver). If one of them is all the same, say which: --driver storage/one/s-attacher=b.example.com"},
		"another name than the pod says, by its place": {given: []string{"s-attacher=" + b}, input: []string{strings.Replace(one, "driver:v1\n", "driver:v1\n        args: [--drivername=a.example.com]\n", 1)},
			want: map[string]string{"one/s-attacher": b}},
		"none of two CSIDrivers": {input: []string{one, csiDriver(a, true), csiDriver(b, true), csiDriver(c, false)},
			says: "The CSIDriver objects are a.example.com, b.example.com, c.example.com (attachRequired: false). Say it with --driver NAME"},
		"the only one that attaches": {input: []string{one, csiDriver(a, false), csiDriver(b, true), csiDriver(c, false)},
			want: map[string]string{"one/s-attacher": b}},
		"the only one for two attachers": {input: []string{both, csiDriver(a, true)},
			says: "the attachers storage/both/x-attacher, storage/both/y-attacher is not known"},
		"the one that is left over": {input: []string{one, strings.Replace(two, "driver:v1\n", "driver:v1\n        args: [--drivername=a.example.com]\n", 1), csiDriver(a, true), csiDriver(b, true)},
			want: map[string]string{"one/s-attacher": b, "two/s-attacher": a}},
		"by the folders of their sockets": {input: []string{strings.ReplaceAll(strings.ReplaceAll(both, "/run/x", "/run/"+a), "/run/y", "/run/"+b), csiDriver(a, true), csiDriver(b, true)},
			want: map[string]string{"both/x-attacher": a, "both/y-attacher": b}},
		"by the folder on the node": {input: []string{strings.Replace(both, "{name: x, emptyDir: {}}", "{name: x, hostPath: {path: /var/lib/kubelet/plugins/"+a+"}}", 1), csiDriver(a, true), csiDriver(b, true)},
			want: map[string]string{"both/x-attacher": a, "both/y-attacher": b}},
		"one of the pod does not attach": {input: []string{strings.ReplaceAll(strings.ReplaceAll(both, "/run/x", "/run/"+a), "/run/y", "/run/"+b), csiDriver(a, false), csiDriver(b, true)},
			want: map[string]string{"both/y-attacher": b}},
		"two pods of one driver": {input: []string{strings.ReplaceAll(one, "/run/s", "/run/"+a), strings.ReplaceAll(two, "/run/s", "/run/"+a), csiDriver(a, true)},
			says: "one driver has one controller"},
	} {
		r, err := Inject(inOneFile(test.input...), Options{Drivers: test.given})
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := behind(r); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v", name, got)
		}
		for _, o := range []Options{{Drivers: test.given}, {}} {
			if strings.HasPrefix(name, "one of two") && o.Drivers == nil {
				continue // the other one has no name still
			}
			again, err := Inject(r.Files, o)
			if err != nil || !bytes.Equal(again.Files[0].Text, r.Files[0].Text) {
				t.Errorf("%s: the second time, with %q: %v\n%s", name, o.Drivers, err, said(r.Findings))
			}
		}
		restored(t, r.Files, []byte(strings.Join(test.input, "---\n")))
	}
}

// The rights of each driver are given to the account of its own pod.
func TestRightsGoToTheAccountOfTheDriversOwnPod(t *testing.T) {
	const a, b = "a.example.com", "b.example.com"
	r, err := Inject(inOneFile(controller("one", "s"), controller("two", "s")), Options{Drivers: []string{"two/s-attacher=" + b, "one/s-attacher=" + a}, Separate: true})
	if err != nil {
		t.Fatal(err)
	}
	bindings := 0
	for document := range strings.SplitSeq(string(r.Documents), "---\n") {
		for driver, account := range map[string]string{a: "one", b: "two"} {
			if strings.Contains(document, "Binding\n") && strings.Contains(document, "-"+driver+"\n") {
				bindings++
				if !strings.Contains(document, "  name: "+account+"\n") {
					t.Errorf("not for %s:\n%s", account, document)
				}
			}
		}
	}
	if bindings < 8 {
		t.Errorf("%d bindings:\n%s", bindings, r.Documents)
	}
}

// What each attacher of a pod was given before is kept for it.
func TestEachAttacherKeepsItsOwnConfiguration(t *testing.T) {
	input := inOneFile(controller("both", "x", "y"))
	first, err := Inject(input, Options{Drivers: []string{"x-attacher=a.example.com", "y-attacher=b.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(first.Files[0].Text, []byte("networkFence: true #"))
	edited := slices.Concat(first.Files[0].Text[:at], bytes.Replace(first.Files[0].Text[at:], []byte("true"), []byte("false"), 1))
	second, err := Inject([]File{{"f.yaml", edited}}, Options{})
	if err != nil || !bytes.Equal(second.Files[0].Text, edited) {
		t.Errorf("changed: %v\n%s", err, second.Files[0].Text)
	}
}

// A pod of which nothing attaches is nothing to inject into.
func TestNothingWhereNoneOfThePodsDriversAttaches(t *testing.T) {
	both := strings.ReplaceAll(strings.ReplaceAll(controller("both", "x", "y"), "/run/x", "/run/a.example.com"), "/run/y", "/run/b.example.com")
	_, err := Inject(inOneFile(both, csiDriver("a.example.com", false), csiDriver("b.example.com", false)), Options{})
	if nothing := (*NothingError)(nil); !errors.As(err, &nothing) {
		t.Errorf("error %v", err)
	}
}
