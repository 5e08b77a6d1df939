// Command prove prints the whole case for safety: it runs each part of it, one
// after the other, reads what each wrote down (package result), prints one table,
// and writes RESULTS.md. No figure of that page comes from anywhere else, nor does one of
// the table in docs/proof.md, which sums up the kept results, each of its day.
//
//	simulation, model, mutants, fuzzing, failover, real-nodes, catalogue
//	  ─▶ results/PART.json ─▶ table, RESULTS.md, the table in docs/proof.md
//
// It exits with 1 if a part failed, or is missing. A result of an earlier run is
// used only with -reuse, only if it is of the same command and no source file that
// it is made of has changed since, and the table says so. A part that came to its
// end and failed has a result too: it is used again as what it is, FAILED. The
// results are committed, so that the whole case need not be made on one day.
//
// With -quick the parts that can be are run smaller. That is no case: the table says
// so, their results are kept elsewhere, and the pages stay as they are.
package main
