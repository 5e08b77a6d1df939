package main

// A target is one package that is mutated.
type target struct {
	// Folder of the package.
	Folder string
	// Guards tells that its guards are taken out as well.
	Guards bool
	// Unsorted tells that nobody has gone through its survivors yet. It is mutated only if asked for
	// by name.
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

// waiting are the tests of package proxy that wait for real time-outs.
const waiting = "AtVariedOffsets|EveryRPCLooks|SurviveTheIdleTimeout|ReaderThatStalls|LosesNoCallInFlight|SlowToGreet"

// targets in the order in which they are mutated: what decides first.
var targets = []target{
	{Folder: "fence", Guards: true, Tests: []test{{Folder: "fence", Skip: slow}}, Then: []test{{Folder: "fence", Run: slow}}},
	{Folder: "fence/ledger", Guards: true, Tests: []test{{Folder: "fence/ledger"}}},
	{Folder: "csi", Guards: true, Tests: []test{{Folder: "csi"}}},
	{Folder: "proxy/guard", Guards: true, Tests: []test{{Folder: "proxy/guard", Skip: "^Fuzz"}, {Folder: "proxy/guard/waiting"}},
		Then: []test{{Folder: "proxy/guard", Run: "^Fuzz"}}},
	{Folder: "proxy/guard/waiting", Guards: true, Tests: []test{{Folder: "proxy/guard/waiting"}}},
	{Folder: "fence/survey", Tests: []test{{Folder: "fence/survey"}, {Folder: "proxy/guard"}, {Folder: "proxy/guard/waiting"}}},
	{Folder: "fence/record", Tests: []test{{Folder: "fence/record"}}},
	{Folder: "fence/evidence", Tests: []test{{Folder: "fence/evidence"}}},
	{Folder: "fence/fencer", Tests: []test{{Folder: "fence/fencer"}}},
	{Folder: "proxy", Tests: []test{{Folder: "proxy", Skip: waiting}}, Then: []test{{Folder: "proxy", Run: waiting}}},
}

func folders(tests []test) []string {
	var all []string
	for _, t := range tests {
		all = append(all, t.Folder)
	}
	return all
}
