package guards

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
)

// tableFile is where the table is, from the top of the repository.
const tableFile = "sanity/mutants/guards/table.go"

// A Guard is what a scenario stands for, and has to fail without.
type Guard struct {
	// Name of the scenario; a second guard of one is named after a dot.
	Name string
	// Like names the guard that this one is too, for another scenario: then Edits
	// and Says are that one's.
	Like string
	// Edits take it out.
	Edits []Edit
	// Says what is taken out.
	Says string
	// Expect is what the log of the scenario has to match then, an extended regular
	// expression.
	Expect string
	// Then is what came of the scenario when it was played without it.
	Then string
}

// An Edit is one change of a guard: to a function of a package, Name or Type.Name.
type Edit struct {
	Package, Func string
	Change        Change
}

// Story is the scenario that has to fail.
func (g Guard) Story() string {
	story, _, _ := strings.Cut(g.Name, ".")
	return story
}

// All is the table, in the order of GUARDS.md, with what a guard has from
// another one filled in.
func All() []Guard {
	all := slices.Clone(table)
	for i, g := range all {
		if g.Like == "" {
			continue
		}
		if j := slices.IndexFunc(table, func(o Guard) bool { return o.Name == g.Like }); j >= 0 {
			all[i].Edits, all[i].Says = table[j].Edits, table[j].Says
		}
	}
	return all
}

// Find finds a guard by its name.
func Find(name string) (Guard, error) {
	all := All()
	var names []string
	for _, g := range all {
		if g.Name == name {
			return g, nil
		}
		names = append(names, g.Name)
	}
	return Guard{}, fmt.Errorf("%s has no guard %q, but %s", tableFile, name, strings.Join(names, ", "))
}

// TakeOut is the text of each file, from the top of the repository, that changes
// with the guard taken out.
func (g Guard) TakeOut(root string) (map[string]string, error) {
	files, err := g.takeOut(root)
	if err != nil {
		return nil, fmt.Errorf("guard %s: %w: %s names it, change it there", g.Name, err, tableFile)
	}
	return files, nil
}

func (g Guard) takeOut(root string) (map[string]string, error) {
	packages := map[string]*code.Package{}
	cuts := map[*code.File][]cut{}
	for _, e := range g.Edits {
		p := packages[e.Package]
		if p == nil {
			var err error
			if p, err = code.Open(root, e.Package); err != nil {
				return nil, err
			}
			packages[e.Package] = p
		}
		f, err := p.Func(e.Func)
		if err != nil {
			return nil, err
		}
		found, err := e.Change.cuts(f)
		if err != nil {
			return nil, err
		}
		cuts[f.File] = append(cuts[f.File], found...)
	}
	files := map[string]string{}
	for f, all := range cuts {
		text, err := applied(f, all)
		if err != nil {
			return nil, err
		}
		files[f.Name] = text
	}
	return files, nil
}

func lastOf(importPath string) string { return path.Base(strings.Trim(importPath, `"`)) }
