// Command mutants shows whether the tests would notice if a guard were not
// there: it makes one small change to the code at a time, a mutant, and runs the
// tests that are to fail. A mutant that no test notices is a survivor; each has
// to be listed, with a reason, in survivors.txt beside this file: by package,
// function and what is changed (package code), so that code may move.
//
//	copy of the packages ─▶ gremlins: which mutants there are ───────────────┐
//	                     └▶ guards taken out, one by one ────────────────────┴▶ build, test ─▶ killed, or survived
//
// gremlins (in a module of its own) finds the mutants of operators: each
// comparison turned round or moved by one, each && made ||, each sum a
// difference, each continue a break. What it cannot make is made here, in the
// packages that decide: each guard (if, case) taken out, each true made false, each
// ! dropped, each assignment and call left out.
//
// The tests are run here and not by gremlins: that counts a mutant which does
// not compile as killed, and knows the tests of one package or of all.
//
// With -guard it plays a story of the catalogue instead, without what the story
// stands for (package guards).
//
// It exits with 1 for a survivor that is not listed, and for a listed one that a
// test kills by now.
package main
