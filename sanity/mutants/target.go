package main

// A target is one package that is mutated.
type target struct {
	// Folder of the package.
	Folder string
	// Guards: its guards are taken out as well.
	Guards bool
	// Unsorted: nobody has gone through its survivors yet. It is mutated only if
	// asked for by name.
	Unsorted bool
	// Tests are the packages whose tests have to notice.
	Tests []test
	// Then are tests that take longer; only what survives the first is held
	// against them.
	Then []test
}

// A test is a package, and which of its tests: those that match Run, but for
// those that match Skip; all where they are empty.
type test struct{ Folder, Run, Skip string }

// slow are the tests of package fence that try everything.
const slow = "AgreesWithTheObviousVersion|NoFactsTake|EachHolderBlocksByItself|OrderOfEvidence|ComposeKeeps"

// patient is the test of package fence/record that waits.
const patient = "GivesUpOnAWriterThatIsAlwaysFaster"

// targets in the order in which they are mutated: what decides first.
var targets = []target{
	{Folder: "fence", Guards: true, Tests: []test{{Folder: "fence", Skip: slow}}, Then: []test{{Folder: "fence", Run: slow}}},
	{Folder: "csi/ledger", Guards: true, Tests: []test{{Folder: "csi/ledger"}}},
	{Folder: "csi", Unsorted: true, Tests: []test{{Folder: "csi"}}},
	{Folder: "proxy/guard", Unsorted: true, Guards: true, Tests: []test{{Folder: "proxy/guard", Skip: "^Fuzz"}}, Then: []test{{Folder: "proxy/guard", Run: "^Fuzz"}}},
	{Folder: "fence/survey", Unsorted: true, Tests: []test{{Folder: "fence/survey"}, {Folder: "proxy/guard"}}},
	{Folder: "fence/record", Unsorted: true, Tests: []test{{Folder: "fence/record", Skip: patient}}, Then: []test{{Folder: "fence/record", Run: patient}}},
	{Folder: "fence/source", Unsorted: true, Tests: []test{{Folder: "fence/source"}}},
	{Folder: "fence/fencer", Unsorted: true, Tests: []test{{Folder: "fence/fencer"}}},
	{Folder: "proxy", Unsorted: true, Tests: []test{{Folder: "proxy"}}},
}

func folders(tests []test) []string {
	var all []string
	for _, t := range tests {
		all = append(all, t.Folder)
	}
	return all
}
