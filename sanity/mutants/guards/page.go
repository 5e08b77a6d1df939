package guards

import (
	"fmt"
	"strings"
)

// PageFile is the page that Page writes, from the top of the repository.
const PageFile = "sanity/mutants/guards/GUARDS.md"

const pageHead = `# What the scenarios notice

Written by ` + "`make docs`" + ` from [the table of guards](table.go); do not edit. A scenario that passes proves something only if it fails without what it stands for. Each of these was played with its guard taken out of the code, on the real control plane with short clocks (the force detach comes after 15 s, not 6 min). Each was played once; a guard keeps harm away or, where a rule lets something through, keeps a volume from being stuck.

` + "```sh" + `
go run ./sanity/mutants -guard=partition
` + "```" + `

plays one again: it takes the guard out of a copy of this checkout, runs the story, and says FAILED AS IT SHOULD, or, with exit code 1, PASSED WITHOUT ITS GUARD. A story that fails for another reason than the table expects does not count (exit code 1). It takes two to five minutes; those of partitions need root. The table names a guard by package, function and expression, so that code may move; a test sees to it that every guard can still be taken out: ` + "`go test ./sanity/mutants/guards`" + `.

TakenInUse, CouldDoubleWrite and DoubleWrite are what the storage array itself saw: a volume taken from a node that used it, two nodes that could write, two that did.

| story | taken out of | guard taken out | what then happened |
|---|---|---|---|
`

const pageFoot = `
## What this does not show

- "Each covers for the other": they were taken out together because, from the code, one of them is enough. That the story passes with one of them gone was seen for ` + "`clock-ahead`" + ` alone.
- Where a guard lets something through, the failure is a wait in vain, within the time that the story allows.
- ` + "`driver-again`, `renamed`, `array-outage`" + ` and the other scenarios of TestFailover and TestFailoverPartition (fence agents, BMCs, virtual machines) are not in the table, but for ` + "`wrong-client`" + `. No guard keeps an outage of the storage from looking like a node's death: nothing reads the one as the other.
`

// Page is sanity/mutants/guards/GUARDS.md.
func Page() string {
	var out strings.Builder
	out.WriteString(pageHead)
	for _, g := range All() {
		says := g.Says
		if g.Like != "" {
			says = "as for `" + g.Like + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", g.Name, g.where(), says, g.Then)
	}
	out.WriteString(pageFoot)
	return out.String()
}
