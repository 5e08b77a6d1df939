package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// shownFates of one driver: a screen is read, and the rest is in the JSON.
const shownFates = 6

// whatWidth is how wide the words of a fate are.
const whatWidth = 56

// print writes the report for somebody who has never seen it: the worst first, with what to do.
func (r *Report) print(w io.Writer, style cli.Style) {
	p := cli.NewPrinter(w, style)
	broken, lookAt := r.count(Broken, ""), r.count(LookAt, "")
	switch {
	case broken > 0:
		p.Heading(cli.Red, fmt.Sprintf("%d broken, %d to look at.", broken, lookAt))
	case lookAt > 0:
		p.Heading(cli.Yellow, fmt.Sprintf("Nothing is broken, %d to look at.", lookAt))
	case len(r.MissingRights) > 0:
		p.Heading(cli.Yellow, "Nothing broken was seen.")
	default:
		p.Heading(cli.Green, "Nothing is broken.")
	}
	if len(r.MissingRights) > 0 {
		p.Paragraph(0, 2, "! Not all could be seen, and it may be worse. Missing rights: "+strings.Join(r.MissingRights, "; "))
	}
	for _, f := range r.Findings {
		p.Blank()
		p.Field(0, strings.ToUpper(string(f.Grade)), f.About+": "+f.What)
		if f.Next != "" {
			fmt.Fprintf(w, "%14s$ %s\n", "", printable.Line(f.Next))
		}
	}
	p.Blank()
	t := cli.NewTables(w)
	t.Print([]string{"DRIVER", "GUARDED", "MODE", "VERSION", "RIGHTS", "PODS MOVED BY", "VOLUMES", "ATTACHED BY"}, r.driverRows())
	if rows := r.fateRows(); len(rows) > 0 {
		t.Print([]string{"IF A NODE DIED NOW", "NODES", "VOLUMES", "PODS", "WHAT WOULD HAPPEN"}, rows)
	}
	if n := r.Node; n != nil {
		p.Blank()
		p.Field(0, "Node", n.Name+", "+cli.Either(!n.Exists, "which has no Node object", cli.Either(n.Ready, "Ready", "not Ready")))
		p.Field(0, "Record", cli.OrNone(n.Record))
		for _, f := range r.Fates {
			p.Field(0, "Volumes", f.Driver+": "+cli.OrNone(strings.Join(f.PVs, ", ")))
		}
	}
	p.Blank()
	names := map[bool][]string{}
	for _, one := range r.Policies {
		names[one.Installed] = append(names[one.Installed], one.Name)
	}
	p.Field(0, "Policies", "installed: "+cli.OrNone(strings.Join(names[true], ", "))+"; absent: "+cli.OrNone(strings.Join(names[false], ", ")))
	p.Field(0, "Failover", r.failoverWords())
	for _, d := range r.Drivers {
		if d.Guarded == "yes" {
			agents := cli.OrNone(strings.Join(d.Agents, ", "))
			if d.Moves == "apart" {
				agents = strings.TrimPrefix(agents+", ", "none, ") + "those of csi-fencepost failover"
			}
			p.Field(0, "Evidence", d.Name+": agents "+agents+"; "+cli.OrNone(strings.Join(d.Evidence, ", ")))
		}
	}
	for _, note := range r.Notes {
		p.Paragraph(0, 2, "* "+note)
	}
}

func (r *Report) driverRows() (rows [][]string) {
	for _, d := range r.Drivers {
		guarded := map[string]string{"past": "NO (called past)", "partly": "NO (only partly)"}[d.Guarded]
		row := []string{d.Name, cmp.Or(guarded, d.Guarded), "-", "-", "-", "-", strconv.Itoa(d.Volumes), cli.OrDash(strings.Join(d.Workloads, ", "))}
		if s := d.Process; s != nil {
			row[2], row[3], row[4], row[5] = string(s.Mode), cli.OrDash(s.Version), rightsWord(s.Lacks), s.Moves
		}
		rows = append(rows, row)
	}
	return rows
}

func rightsWord(lacks []string) string {
	switch {
	case lacks == nil:
		return "not seen"
	case len(lacks) > 0:
		return "MISSING"
	}
	return "all"
}

// fateRows are a few of each driver, those that need a person first.
func (r *Report) fateRows() (rows [][]string) {
	for rest := r.Fates; len(rest) > 0; {
		of := rest[0].Driver
		n := slices.IndexFunc(append(slices.Clone(rest), Fate{}), func(f Fate) bool { return f.Driver != of })
		shown := n
		if n > shownFates {
			shown = shownFates - 1
		}
		for i, f := range rest[:shown] {
			row := []string{cli.Either(i == 0, of, ""), fmt.Sprintf("%d: %s", len(f.Nodes), few(f.Nodes)), strconv.Itoa(f.Volumes), strconv.Itoa(f.Pods)}
			for _, line := range cli.Wrap(f.What, whatWidth) {
				rows, row = append(rows, append(row, line)), []string{"", "", "", ""}
			}
		}
		if shown < n {
			rows = append(rows, []string{"", fmt.Sprintf("%d groups more", n-shown), "", "", "csi-fencepost doctor -o yaml lists them"})
		}
		rest = rest[n:]
	}
	return rows
}

func (r *Report) failoverWords() string {
	f := r.Failover
	if f == nil {
		return "no csi-fencepost failover of its own runs"
	}
	var serves []string
	for _, d := range r.Drivers {
		if d.Process != nil && d.Moves == "apart" {
			serves = append(serves, d.Name)
		}
	}
	return fmt.Sprintf("csi-fencepost failover %s, %s, agents %s, rights %s; asked by %s", f.Version, cli.Count(f.Pods, "pod"), cli.OrNone(strings.Join(f.Agents, ", ")), rightsWord(f.Lacks), cli.OrNone(strings.Join(serves, ", ")))
}
