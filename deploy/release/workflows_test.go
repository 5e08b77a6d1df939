package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

type workflow struct {
	Permissions map[string]string
	Jobs        map[string]job
}

type job struct {
	Uses        string
	Container   struct{ Image string }
	Permissions map[string]string
	Env         map[string]string
	Steps       []step
}

type step struct {
	Uses, Run string
	Env       map[string]string
}

func workflows(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	if err != nil || len(paths) < 2 {
		t.Fatalf("%d workflows: %v", len(paths), err)
	}
	all := map[string]string{}
	for _, path := range paths {
		all[filepath.Base(path)] = string(read(t, path))
	}
	return all
}

var (
	pinned     = regexp.MustCompile(`(?m)^ +- uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	byDigest   = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	makeTarget = regexp.MustCompile(`^make ([a-z-]+)$`)
)

// wrongSteps says which steps of a workflow nobody could run at home, or run what nobody has
// seen, and which rights every job has.
func wrongSteps(text, makefile string) (faults []string) {
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return []string{err.Error()}
	}
	if w.Permissions == nil || len(w.Permissions) > 0 {
		faults = append(faults, "every job has rights by default: permissions is not {}")
	}
	uses := 0
	for name, j := range w.Jobs {
		if len(j.Permissions) == 0 {
			faults = append(faults, fmt.Sprintf("job %s does not say which rights it has", name))
		}
		if j.Uses != "" && !strings.HasPrefix(j.Uses, "./") {
			faults = append(faults, fmt.Sprintf("job %s is of another repository: %s", name, j.Uses))
		}
		if image := j.Container.Image; image != "" && !byDigest.MatchString(image) {
			faults = append(faults, fmt.Sprintf("job %s runs in %s, which is not pinned by its digest", name, image))
		}
		for _, s := range j.Steps {
			target := makeTarget.FindStringSubmatch(s.Run)
			switch {
			case s.Uses != "":
				uses++
			case target == nil:
				faults = append(faults, fmt.Sprintf("job %s runs %q, which is not one make target", name, s.Run))
			case !strings.Contains(makefile, "\n"+target[1]+":"):
				faults = append(faults, fmt.Sprintf("job %s runs make %s, which the Makefile does not have", name, target[1]))
			}
		}
	}
	if found := len(pinned.FindAllString(text, -1)); found != uses {
		faults = append(faults, fmt.Sprintf("%d actions, of which %d are pinned by a commit, with their version behind it", uses, found))
	}
	slices.Sort(faults)
	return faults
}

func TestEveryStepOfAWorkflowIsAMakeTarget(t *testing.T) {
	makefile := string(read(t, filepath.Join(root, "Makefile")))
	for name, text := range workflows(t) {
		for _, fault := range wrongSteps(text, makefile) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

func TestTheCheckOfWorkflowsFindsWhatIsWrong(t *testing.T) {
	const good = `
permissions: {}
jobs:
  a:
    permissions: {contents: read}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - run: make test
`
	for from, to := range map[string]string{
		"permissions: {}\n":        "",
		"permissions: {}":          "permissions: {contents: write}",
		"{contents: read}":         "{}",
		"make test":                "make tset",
		"run: make test":           "run: make test && curl x | sh",
		"run: make":                "run: ./make",
		" # v7.0.1":                "",
		"3d3c42e5aac5ba805825da76": "v",
		"    steps:":               "    container: {image: \"debian:12\"}\n    steps:",
		"permissions: {contents: read}\n    steps:": "permissions: {contents: read}\n    uses: a/b/.github/workflows/c.yaml@v1\n    steps:",
	} {
		text := strings.Replace(good, from, to, 1)
		if text == good {
			t.Fatalf("%q is not in it", from)
		}
		if faults := wrongSteps(text, "\ntest: x\n"); len(faults) != 1 {
			t.Errorf("%q instead of %q: %q", to, from, faults)
		}
	}
	if faults := wrongSteps(good, "\ntest: x\n"); faults != nil {
		t.Errorf("what is right: %q", faults)
	}
}

// actionlint knows GitHub's own rules: contexts, events, rights, expressions.
func TestActionlintFindsNothing(t *testing.T) {
	program := filepath.Join(t.TempDir(), "actionlint")
	build := exec.Command("go", "build", "-o", program, "github.com/rhysd/actionlint/cmd/actionlint")
	build.Dir = filepath.Join(root, "sanity/tools")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lint := func(path string) (string, error) {
		// Without shellcheck and pyflakes: actionlint would run them where they are installed, and find
		// more on one machine than on another.
		out, err := exec.Command(program, "-shellcheck=", "-pyflakes=", path).CombinedOutput()
		return string(out), err
	}
	for name, text := range workflows(t) {
		if out, err := lint(filepath.Join(root, ".github/workflows", name)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		wrong := filepath.Join(t.TempDir(), name)
		write(t, wrong, []byte(strings.Replace(text, "runs-on:", "run-on:", 1)))
		if out, err := lint(wrong); err == nil {
			t.Errorf("%s: a wrong key was taken: nothing is checked\n%s", name, out)
		}
	}
}
