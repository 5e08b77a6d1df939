// Package survey gathers what a decision about a volume rests on: one live look
// at everything that may name a holder, whole, before it is judged.
//
// The holders of a volume are the union of
//
//	the ledgers of all PersistentVolumes with its handle     (package ledger)
//	its VolumeAttachments, in any state, deleting ones too
//	the Nodes whose volumesInUse or volumesAttached names it
//	the nodes that the driver lists it as published to        (only suspicion)
//
// and for each of them the live Node, what the evidence sources say, and last
// of all the kubelet's lease, so that a sign of life during the survey voids
// evidence that was gathered in it.
//
// # Guarantees
//
// Every object that a survey judges by was read live. The index (package observe)
// only says which objects to read, and a survey fails when the index has not
// seen the VolumeAttachment or PersistentVolume that the call is about.
//
// # Non-guarantees
//
// A volume that no PersistentVolume names has no ledger; it is guarded by the
// other sources, as best they can.
package survey
