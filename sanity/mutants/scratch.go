package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A scratch is a copy of what one target and its tests are made of: the module
// with those packages only, and without any other test. It is mutated in place,
// and does not change while others edit the checkout.
type scratch struct {
	target target
	folder string
}

// listed is a package as `go list` names it.
type listed struct {
	Dir, ForTest                                string
	Standard                                    bool
	Module                                      *struct{ Main bool }
	EmbedFiles, TestEmbedFiles, XTestEmbedFiles []string
}

// newScratch copies what a target needs out of the checkout at root.
func newScratch(ctx context.Context, root, folder string, t target) (*scratch, error) {
	tests := folders(append(slices.Clone(t.Tests), t.Then...))
	packages, err := list(ctx, root, append([]string{"-test"}, dotted(tests)...)...)
	if err != nil {
		return nil, err
	}
	mutated, err := list(ctx, root, dotted([]string{t.Folder})...)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := copyFile(filepath.Join(root, name), filepath.Join(folder, name)); err != nil {
			return nil, err
		}
	}
	for _, p := range append(packages, mutated...) {
		if p.Standard || p.Module == nil || !p.Module.Main || p.Dir == "" {
			continue
		}
		from, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		if err := copyPackage(root, folder, from, p, slices.Contains(tests, from)); err != nil {
			return nil, err
		}
	}
	return &scratch{target: t, folder: folder}, nil
}

func dotted(folders []string) []string {
	var all []string
	for _, f := range folders {
		all = append(all, "./"+f)
	}
	return all
}

// list asks which packages there are, with all that they need.
func list(ctx context.Context, root string, args ...string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=Dir,ForTest,Standard,Module,EmbedFiles,TestEmbedFiles,XTestEmbedFiles"}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(args, " "), err)
	}
	var all []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// copyPackage copies a package's folder, what it embeds, and, if its tests are to
// run, those and testdata.
func copyPackage(root, folder, name string, p listed, tested bool) error {
	entries, err := os.ReadDir(p.Dir)
	if err != nil {
		return err
	}
	files := slices.Clone(p.EmbedFiles)
	for _, e := range entries {
		if e.Type().IsRegular() && (tested || !strings.HasSuffix(e.Name(), "_test.go")) {
			files = append(files, e.Name())
		}
	}
	if tested {
		files = append(files, append(p.TestEmbedFiles, p.XTestEmbedFiles...)...)
	}
	for _, f := range files {
		if err := copyFile(filepath.Join(p.Dir, f), filepath.Join(folder, name, f)); err != nil {
			return err
		}
	}
	data := filepath.Join(root, name, "testdata")
	if _, err := os.Stat(data); !tested || err != nil {
		return nil
	}
	to := filepath.Join(folder, name, "testdata")
	if _, err := os.Stat(to); err == nil {
		return nil // go list names a package once more for its tests
	}
	return os.CopyFS(to, os.DirFS(data))
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// again is a second copy, for another worker.
func (c *scratch) again(folder string) (*scratch, error) {
	if err := os.CopyFS(folder, os.DirFS(c.folder)); err != nil {
		return nil, err
	}
	return &scratch{target: c.target, folder: folder}, nil
}

// mutants lists all of a target: gremlins' first. Those of files that are not built
// with the tests are left out.
func (c *scratch) mutants(ctx context.Context, gremlins, config string) ([]mutant, error) {
	all, err := c.proposed(ctx, gremlins, config)
	all = slices.DeleteFunc(all, func(m mutant) bool {
		built, failed := build.Default.MatchFile(filepath.Join(c.folder, filepath.Dir(m.File)), filepath.Base(m.File))
		err = errors.Join(err, failed)
		return !built
	})
	number(all)
	return all, err
}

func (c *scratch) proposed(ctx context.Context, gremlins, config string) ([]mutant, error) {
	all, err := askGremlins(ctx, gremlins, config, c)
	if err != nil || !c.target.Guards {
		return all, err
	}
	names, err := filepath.Glob(filepath.Join(c.folder, c.target.Folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		s, err := readSource(c.folder, filepath.Join(c.target.Folder, filepath.Base(name)))
		if err != nil {
			return nil, err
		}
		all = append(all, s.guardsOut()...)
	}
	return all, nil
}
