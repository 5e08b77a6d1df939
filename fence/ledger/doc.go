// Package ledger keeps, for each volume, the record of the nodes that may hold
// it: the annotation csi-fencepost.io/holders of its PersistentVolume.
//
//	Read ──▶ Book (what was read, live) ──▶ judge ──▶ Write (only if nothing changed)
//	  ▲                                                  │
//	  └────────────────── ErrConflict ───────────────────┘
//
// Of several PVs with one volume handle the canonical one carries the ledger: the oldest
// of those that stay, or else of those that external-attacher keeps while they are
// being deleted, or else of all. What the others carry is merged into it and then taken off
// them. A volume that no PV names has a ledger in memory only.
//
// # Guarantees
//
// A Write succeeds only if the PV is the same object (UID), its annotation the very text
// that the Book was read from, and it is not being deleted unless it was then, so that no
// other PV is the canonical one by now; the API server checks it, in one step with the
// write. A Write that was begun is finished, or known not to have
// been made, whatever becomes of the caller; one whose answer was lost is looked
// up. Nothing is read from a cache. Text that is not a ledger is an error that
// says how to mend it, and never an empty ledger; but text that came with a PV which was
// made for a volume whose ledger is on another PV is set aside by name. Of a ledger that a neighbouring
// version wrote, package format says what is kept. A ledger of another
// cluster, or of another PV object than the one it stands on, is set aside by
// name and does not count.
//
// # Non-guarantees
//
// Which PVs have a handle is the caller's knowledge. While two processes know
// different PVs of one handle, each may write to its own first one; the next
// Read that knows both merges them. Who may write PersistentVolumes can write
// any ledger. Removing the annotation makes the ledger Missing, and the caller
// rebuilds it from other sources.
package ledger
