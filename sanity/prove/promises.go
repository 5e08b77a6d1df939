package main

import (
	"fmt"
	"strings"
)

// A promise is a rule of the product, and what attacks it. Each name is held against
// what it names by a test: a story that is gone attacks nothing.
type promise struct {
	rule, text string
	// simulation and model say what is checked there, and under which name.
	simulation, model checked
	// stories of the catalogue that hold it up.
	stories []string
	// mutants are packages, fuzz is "folder function", guards are those of
	// sanity/mutants/guards.
	mutants, fuzz, guards []string
	// besides is what else attacks it.
	besides string
}

// checked is what a simulation or a model looks for.
type checked struct {
	names []string
	text  string
}

var promises = []promise{
	{rule: "R1", text: "A single-writer volume is not published to a node while another node may still write to it.",
		simulation: checked{[]string{"R1"}, "after every step no two machines can write to a volume, and no publish is answered with OK while another machine may"},
		model:      checked{[]string{"holdsR1"}, "wherever the driver is given a publish, and wherever a container starts"},
		stories:    []string{"failed-detach", "partition", "node-deleted", "same-name", "stripped-va"},
		mutants:    []string{"fence", "fence/survey", "fence/evidence", "csi", "fence/ledger", "proxy/guard"},
		fuzz: []string{"proxy/guard FuzzNoLedgerOpensTheGuard", "proxy/guard FuzzNoRecordOpensTheGuard", "csi FuzzHandles", "csi FuzzListVolumes",
			"fence/evidence FuzzNetworkFences", "fence/agent/program FuzzJudge", "fence/agent/ipmi FuzzNoPacketWithoutItsCodeIsAnAnswer"},
		guards: []string{"failed-detach", "partition", "node-deleted", "same-name", "stripped-va", "twins"}},
	{rule: "R2", text: "The driver sees no unpublish of a single-writer volume from a node on which it may be in use.",
		simulation: checked{[]string{"R2"}, "at every unpublish that the driver carries out, the machine has not mounted the volume, nor begun to"},
		model:      checked{[]string{"unpublishReaches"}, "wherever an unpublish reaches the driver"},
		stories:    []string{"force-detach", "taint-alive", "kubelet-forget", "kubelet-quick", "kcm-change"},
		mutants:    []string{"fence", "fence/survey", "csi", "proxy/guard"},
		fuzz:       []string{"proxy/guard FuzzNoRequestOpensTheGuard", "fence/survey FuzzNodeFacts", "csi FuzzNode"},
		guards:     []string{"force-detach", "taint-alive", "kubelet-forget", "kubelet-quick", "kcm-change"}},
	{rule: "R3", text: "Every other call, on every service of the driver, comes back unchanged.",
		simulation: checked{nil, "only the two calls that are judged are made there"},
		stories:    []string{"live-migration", "rox", "rwx"},
		mutants:    []string{"proxy"},
		guards:     []string{"live-migration", "rox", "rwx"},
		besides:    "`make transparency`: every call of the CSI spec, directly and through csi-fencepost ([edge.md](../../docs/design/edge.md)); `make csisanity`"},
	{rule: "R4", text: "No permission rests on what a process remembers: killed anywhere, it goes on from what the Kubernetes API and the driver say.",
		simulation: checked{[]string{"R1", "R2", "stuck"}, "processes are killed at any step of a schedule, and at each write of a move and of three takeovers; afterwards R1 and R2 hold, and nothing stays stuck"},
		model:      checked{nil, "replicas that die are in the model; their search has not been made to its end"},
		stories:    []string{"crash-takeover", "crash-move"},
		mutants:    []string{"fence/ledger", "fence/record", "proxy/guard"},
		fuzz:       []string{"fence/ledger FuzzParse", "fence/record FuzzParse", "cmd/csi-fencepost/operate FuzzSalvage"},
		guards:     []string{"crash-takeover", "crash-move", "drain-throttle"}},
	{rule: "R5", text: "Missing, stale or contradictory evidence refuses, and the refusal names the holder, the reason and what would unblock it.",
		simulation: checked{[]string{"R1", "R2"}, "answers that are lost or late, and false words of operators, are in the schedules; what a refusal says is not looked at"},
		stories:    []string{"taint-old", "bmc-stuck-on", "no-agent", "garbled", "api-outage"},
		mutants:    []string{"fence", "fence/evidence", "fence/survey", "csi"},
		fuzz:       []string{"fence/survey FuzzNodeFacts", "fence/evidence FuzzRemediations", "csi FuzzMessages", "fence/ledger FuzzParse", "fence/config FuzzParse"},
		guards:     []string{"taint-old", "part-taint", "cloud-untold", "garbled", "api-outage", "api-hangs"}},
	{rule: "R6", text: "No storm, partition or outage becomes mass fencing, and everyday life is not slower or more stuck than without csi-fencepost.",
		simulation: checked{[]string{"R6", "stuck"}, "no machine is switched off whose lease was renewed since that was decided; once the faults have ceased everything comes right"},
		model:      checked{nil, "dead ends are not searched for"},
		stories:    []string{"rack", "all-silent", "array-outage", "drain", "late-off"},
		mutants:    []string{"fence/fencer", "proxy/guard", "proxy/guard/waiting"},
		fuzz:       []string{"cmd/csi-fencepost/explain FuzzArguments", "cmd/csi-fencepost/operate FuzzArguments", "cmd/csi-fencepost/run FuzzArguments"},
		guards:     []string{"drain", "move", "clock-ahead", "other-cluster", "back-off"},
		besides:    "what a call and a failover cost: [bench.md](../../docs/bench.md)"},
}

const cataloguePage = "../scenarios/CATALOGUE.md"

// promisesText is the page's section of them.
func promisesText() string {
	var out strings.Builder
	fmt.Fprintf(&out, `
## Each promise, and how it is attacked

By the parts below, and by [guards taken out](../mutants/guards/GUARDS.md) of the code, where the story has to fail then. A dash: not attacked there. The names under "simulation" are the [rules that it judges](../simulate/oracle.go), where what it excuses stands too, those under "model" the [properties](../model/fencepost.pml) that spin explores. A story, or a guard, may hold up more than one promise.

| promise | simulation | [model](../../docs/design/model.md) | [scenarios](%s) | mutants of | fuzz targets | [guards](../mutants/guards/GUARDS.md) | besides |
| --- | --- | --- | --- | --- | --- | --- | --- |
`, cataloguePage)
	for _, p := range promises {
		fmt.Fprintf(&out, "| **%s** %s |", p.rule, p.text)
		for _, c := range []string{p.simulation.String(), p.model.String(), named(p.stories, "[`%s`]("+cataloguePage+")"), named(p.mutants, "`%s`"),
			named(p.fuzz, "`%s`"), named(p.guards, "`%s`"), p.besides} {
			if c == "" {
				c = "–"
			}
			fmt.Fprintf(&out, " %s |", c)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (c checked) String() string {
	switch {
	case len(c.names) == 0 && c.text != "":
		return "–: " + c.text
	case len(c.names) == 0:
		return ""
	}
	return named(c.names, "`%s`") + ": " + c.text
}

func named(names []string, format string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf(format, name))
	}
	return strings.Join(all, ", ")
}
