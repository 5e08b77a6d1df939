// Command docs writes the pages that come from the code itself, and its tests hold
// all pages against the program.
//
//	go run ./sanity/docs          (make docs)
//
//	fence/config, its comments and defaults ─▶ docs/use/configure.md, between the marks
//	csi-fencepost … --help ────────────────────▶ docs/use/flags.md
//	deploy/profile ────────────────────────────▶ docs/vendors/profiles.md
//	sanity/mutants/guards ─────────────────────▶ sanity/mutants/guards/GUARDS.md
//
// # What the tests guarantee
//
// The first three are up to date (of the fourth its package sees to it). Every command of csi-fencepost and every make target
// that a page names exists, with its flags; so does every test, in the package that the
// page says; every relative link and anchor leads somewhere; every YAML block parses, and is a valid configuration if it is one;
// what evidence.md gives to one of Debian's fence agents is known to that agent; every reason of
// a refusal has a section in the runbook, which shows why in the program's words: all of
// fence/testdata/messages.txt, and what a guard answers (make docs writes them there);
// the code of embed.md is compiled; each figure of a page that sums up what was measured
// is on a page that a measurement wrote.
//
// # What they do not
//
// Whether a sentence is true is for its reader to say.
package main
