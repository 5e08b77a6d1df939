package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// base is the commit that HEAD and origin have in common: what came after is
// this checkout's. Without an origin it is HEAD.
func base(ctx context.Context) string {
	for _, there := range []string{"origin/HEAD", "origin/main"} {
		if out, err := exec.CommandContext(ctx, "git", "merge-base", "HEAD", there).Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return "HEAD"
}

// changedFiles are those that differ from the base, new ones too.
func changedFiles(ctx context.Context) ([]string, error) {
	var files []string
	for _, words := range [][]string{{"diff", "-z", "--name-only", base(ctx)}, {"ls-files", "-z", "--others", "--exclude-standard"}} {
		out, err := exec.CommandContext(ctx, "git", words...).Output()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w", strings.Join(words, " "), err)
		}
		files = append(files, strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })...)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// pkg is a package of the module, with what go list says of it.
type pkg struct {
	ImportPath, Dir           string
	Imports                   []string
	TestImports               []string
	XTestImports              []string
	TestGoFiles, XTestGoFiles []string
}

func (p *pkg) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// listed are all packages, by import path.
func listed(ctx context.Context) (map[string]*pkg, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := map[string]*pkg{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = &p
	}
}

// distances of the packages from what changed: 0 for a package with a file that
// did, else one more than the nearest that it, or its tests, are made of. What is
// not in it has nothing to do with the change.
func distances(all map[string]*pkg, root string, files []string) map[string]int {
	far, made := map[string]int{}, map[string]int{}
	for name, p := range all {
		for _, file := range files {
			if !holds(p, all, filepath.Join(root, file)) {
				continue
			}
			far[name] = 0
			if !strings.HasSuffix(file, "_test.go") { // nobody is made of another's tests
				made[name] = 0
			}
		}
	}
	for step, more := 0, true; more; step++ {
		more = false
		for name, p := range all {
			if _, known := made[name]; !known && nearest(made, p.Imports, step) {
				made[name], more = step+1, true
			}
			tests := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			if _, known := far[name]; !known && nearest(made, tests, step) {
				far[name], more = step+1, true
			}
		}
	}
	return far
}

// nearest tells whether one of these packages is just so far away.
func nearest(made map[string]int, imports []string, step int) bool {
	return slices.ContainsFunc(imports, func(name string) bool { d, ok := made[name]; return ok && d == step })
}

// holds tells whether the file is of the package: in its folder, or in one below that is no
// package, such as testdata.
func holds(p *pkg, all map[string]*pkg, file string) bool {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if dir == p.Dir {
			return strings.HasSuffix(file, ".go") || strings.Contains(file, "/testdata/") || dir != filepath.Dir(file)
		}
		if dir == filepath.Dir(dir) || slices.ContainsFunc(values(all), func(other *pkg) bool { return other.Dir == dir }) {
			return false
		}
	}
}

func values(all map[string]*pkg) (list []*pkg) {
	for _, p := range all {
		list = append(list, p)
	}
	return list
}
