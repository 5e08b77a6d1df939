package fence

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A pair of observations, in words. The first is what was seen, the second what is seen now.
type pair struct{ node, boot, system, others string }

var (
	nodes   = []string{"the same", "another", "not known"}
	boots   = []string{"the same", "the same count", "another", "another count", "not known"}
	systems = []string{"the same", "the same, shared", "another", "not known", "unset"}
	others  = []string{"agree", "another node ID", "another provider ID", "another machine ID", "another node ID and machine ID"}
)

func (p pair) machines() (was, now Machine) {
	was = Machine{NodeName: "n1", NodeUID: "uid-1", NodeID: "id-1", BootID: "boot-1", SystemUUID: "system-1", ProviderID: "cloud://1", MachineID: "machine-1"}
	now = was
	set := func(is string, was, now *string, other string) {
		switch is {
		case "another":
			*now = other
		case "not known":
			*was = ""
		}
	}
	set(p.node, &was.NodeUID, &now.NodeUID, "uid-2")
	set(p.boot, &was.BootID, &now.BootID, "boot-2")
	set(p.system, &was.SystemUUID, &now.SystemUUID, "system-2")
	switch p.boot {
	case "the same count":
		was.BootID, now.BootID = "12", "12"
	case "another count":
		was.BootID, now.BootID = "12", "13"
	}
	switch p.system {
	case "the same, shared":
		now.SystemShared = true
	case "unset":
		was.SystemUUID, now.SystemUUID = "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"
	}
	switch p.others {
	case "another node ID":
		now.NodeID = "id-2"
	case "another node ID and machine ID":
		now.NodeID, now.MachineID = "id-2", "machine-2"
	case "another provider ID":
		now.ProviderID = "cloud://2"
	case "another machine ID":
		now.MachineID = "machine-2"
	}
	return was, now
}

func pairs(yield func(pair)) {
	for _, n := range nodes {
		for _, b := range boots {
			for _, s := range systems {
				for _, o := range others {
					yield(pair{n, b, s, o})
				}
			}
		}
	}
}

var updateMachines = flag.Bool("update-machines", false, "TestWhatTellsAMachine writes what it finds into testdata/machines.txt")

// TestWhatTellsAMachine prints the comparison as a table, to be read: what two observations
// have to agree in to be one machine.
func TestWhatTellsAMachine(t *testing.T) {
	var b strings.Builder
	row := func(cells ...string) {
		fmt.Fprintf(&b, "%-11s %-15s %-17s %-17s %-17s %-17s %-18s %s\n", toAny(cells)...)
	}
	row("Node", "boot ID", "system UUID", "the rest agrees", "node ID differs", "provider differs", "machine ID differs", "both IDs")
	for _, n := range nodes {
		for _, boot := range boots {
			for _, s := range systems {
				cells := []string{n, boot, s}
				for _, o := range others {
					was, now := pair{n, boot, s, o}.machines()
					cells = append(cells, was.Compare(now).String())
				}
				row(cells...)
			}
		}
	}
	const path = "testdata/machines.txt"
	if *updateMachines {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the comparison of machines is not as in %s; if that is wanted: go test ./fence -run TestWhatTellsAMachine -update-machines\n%s", path, b.String())
	}
}

func toAny(cells []string) []any {
	all := make([]any, len(cells))
	for i, c := range cells {
		all[i] = c
	}
	return all
}

// What is one machine is not another, whoever is asked first; and what nothing tells of is
// never one.
func TestTheComparisonOfMachinesIsOneRelation(t *testing.T) {
	pairs(func(p pair) {
		was, now := p.machines()
		is, back := was.Compare(now), now.Compare(was)
		if is != back {
			t.Errorf("%+v: %s one way, %s the other", p, is, back)
		}
		if is.OneMachine() && p.system == "another" && p.boot != "the same" {
			t.Errorf("%+v: one machine with two system UUIDs", p)
		}
		if is == Same && p.boot != "the same" && (p.boot != "the same count" || p.system != "the same") {
			t.Errorf("%+v: one boot of one machine, and nothing says that", p)
		}
		if is.OneMachine() && p.node != "the same" && p.boot != "the same" && p.system != "the same" {
			t.Errorf("%+v: one machine under two Nodes, and nothing says that", p)
		}
		if void := was.Since(now); (void == "") != (is == Same) {
			t.Errorf("%+v: %s, and what was said of it is void for %q", p, is, void)
		}
		if (is == Reregistered || is == Uncertain && was.BootID == now.BootID && was.BootID != "") != was.MayRunOn(now) {
			t.Errorf("%+v: %s, and it may run on there: %v", p, is, was.MayRunOn(now))
		}
	})
}

// Before there was one comparison there were these, each asked where it was thought of. Where
// no boot ID is a count, no system UUID is shared, and neither provider ID nor machine ID
// speaks, the comparison says what they said; what it says otherwise is listed.
func TestTheComparisonSaysWhatThePredicatesBeforeItSaid(t *testing.T) {
	wasOther := func(a, b Machine) bool {
		return otherSystem(a.SystemUUID, b.SystemUUID) && (a.BootID == "" || a.BootID != b.BootID)
	}
	wasOne := func(a, b Machine) bool {
		return a.BootID != "" && a.BootID == b.BootID || sameSystem(a.SystemUUID, b.SystemUUID)
	}
	wasReplaced := func(a, b Machine) bool { // of one Node
		switch {
		case a.BootID != "" && a.BootID == b.BootID:
			return false
		case otherSystem(a.SystemUUID, b.SystemUUID):
			return true
		}
		return !sameSystem(a.SystemUUID, b.SystemUUID) && b.NodeID != "" && b.NodeID != a.NodeID
	}
	differences := map[string]int{}
	pairs(func(p pair) {
		a, b := p.machines()
		is := a.Compare(b)
		widened := []string{}
		if strings.Contains(p.boot, "count") {
			widened = append(widened, "a boot ID that is a count")
		}
		if p.system == "the same, shared" {
			widened = append(widened, "a shared system UUID")
		}
		if p.boot == "the same" && p.node != "the same" && p.system == "another" {
			widened = append(widened, "one boot ID and two system UUIDs")
		}
		if p.others != "agree" && p.others != "another node ID" {
			widened = append(widened, p.others)
		}
		for what, differs := range map[string]bool{
			"another machine":             (is == Other) != wasOther(a, b),
			"one machine, under two IDs":  p.node != "the same" && is.OneMachine() != wasOne(a, b),
			"its own Node, or another's":  p.node == "the same" && is.OneNode() == wasReplaced(a, b),
			"registered in the same boot": p.node == "another" && a.MayRunOn(b) != (a.BootID != "" && a.BootID == b.BootID),
		} {
			if !differs {
				continue
			}
			if len(widened) == 0 {
				t.Errorf("%+v: %s, and it was not so: %s", p, is, what)
			}
			differences[what+", with "+strings.Join(widened, " and ")]++
		}
	})
	var all []string
	for d := range differences {
		all = append(all, d)
	}
	slices.Sort(all)
	t.Logf("what differs, each wanted:\n%s", strings.Join(all, "\n"))
}

// The API server is asked for the driver's node ID only where that decides.
func TestOnlyWhereNothingElseTellsIsTheNodeIDAsked(t *testing.T) {
	pairs(func(p pair) {
		was, now := p.machines()
		own := p
		own.others = "agree"
		a, b := own.machines()
		other := b
		other.NodeID = "id-9"
		if p.others != "another node ID" && p.others != "agree" {
			return // what else differs is not exchanged here
		}
		if want := a.Compare(b) != a.Compare(other); was.RestsOnNodeID(now) != want {
			t.Errorf("%+v: asked: %v, want %v", p, !want, want)
		}
		if was.NodeID = ""; was.RestsOnNodeID(now) {
			t.Errorf("%+v: asked without an ID to compare it with", p)
		}
	})
}
