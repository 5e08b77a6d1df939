// Package model holds a model of the protocol (fencepost.pml) that spin explores
// completely, and runs it:
//
//	fencepost.pml ─▶ spin -a ─▶ gcc ─▶ pan ─▶ Outcome
//
// It guarantees that a search which was cut short, by memory, depth or time, is
// an error and never an Outcome; and that a violation comes with the shortest
// trail to it, in words.
//
// What the model says holds of the model, within its bounds (docs/design/model.md). That
// it is a model of the product is kept by transitions.tsv, which names for each
// transition the function that does it, by the tests, and by review.
//
// It needs spin and gcc, as make deps installs them.
package model
