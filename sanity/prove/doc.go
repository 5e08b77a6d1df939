// Command prove prints the whole case for safety: it runs each part of it, one
// after the other, reads what each wrote down (package result), prints one table,
// and writes sanity/prove/RESULTS.md. No figure of that page comes from anywhere else.
//
//	simulation, model, mutants, fuzzing, failover, catalogue ─▶ results/PART.json ─▶ table, sanity/prove/RESULTS.md
//
// It exits with 1 if a part failed, or is missing. A result of an earlier run is
// used only with -reuse, only if it is of the same command and no source file that
// it is made of has changed since, and the table says so. A part that came to its
// end and failed has a result too: it is used again as what it is, FAILED. The
// results are committed, so that the whole case need not be made on one day.
//
// With -quick the parts that can be are run smaller. That is no case: the table says
// so, their results are kept elsewhere, and sanity/prove/RESULTS.md stays as it is.
package main
