// Package guards holds the table of guards: for each scenario what has to be in the
// code for it to pass, where that is, and what came of the scenario when it was
// played without.
//
//	table ─▶ the guard taken out of a copy of the checkout ─▶ the scenario, which has to fail
//	     └─▶ GUARDS.md
//
//	go run ./sanity/mutants -guard=STORY   plays one, and says what came of it
//
// A guard is named by package, function and expression, never by a file or a line
// (package code). Code may move within its package; a function or an expression
// that is renamed has to be renamed in table.go, and the test says so.
package guards
