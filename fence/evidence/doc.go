// Package evidence asks what proves, or claims, that a holder can no longer
// write.
//
// A Source is asked one Question about one holder of one volume and answers
// with evidence, each bound to the machine that it was observed of. Package
// fence weighs it; a source never decides. Fence agents are sources too.
//
//	taint on, never seen before ─▶ bound in the node's record to UID, boot ID, lease
//	bound, all three as then    ─▶ evidence
//	bound, one of them changed  ─▶ void, for good
//	taint seen taken off        ─▶ forgotten; put on again, it is a new one
//
// # Guarantees
//
// What a source found is returned even where it does not count, with Void
// saying why, so that a person sees it. A claim that was void once stays void:
// that is written in the node's record before it is answered. With ReadOnly
// nothing is ever written.
//
// A claim of a node whose Node object is gone counts only if the claim was
// made without the Node, or the node's lease is still there and unchanged:
// otherwise nobody can tell whether the node had come back in between.
//
// # Non-guarantees
//
// A taint's and an operator's word are as good as who gives them.
package evidence
