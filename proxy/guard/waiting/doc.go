// Package waiting knows the calls that package guard refused, tells people of them,
// and wakes them when what blocked them changes:
//
//	guard ─▶ Report ─┬─▶ metrics, log, Events, Recent
//	                 └─▶ Calls ─▶ VolumeAttachment touched ─▶ external-attacher
//	                       ▲                                        │
//	          guard ◀─── Spare ◀──────────── the call again ◀───────┘
//
// It guarantees that a refused call is woken once it would be let through, or refused
// for something else: as soon as that is seen where a watch or another call shows it,
// and within some 30 s where nothing does. Nothing here permits a call: one that
// comes again is judged by the guard, or refused in the words of its last refusal.
//
// It does not guarantee an Event for each refusal: where too many wait to be written,
// one is dropped. What it knows is lost with the process; which calls wait is found
// again in their VolumeAttachments.
package waiting
