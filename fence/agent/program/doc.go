// Package program fences with any program that keeps the fence-agents contract:
// vSphere, AWS, Azure, GCE, OpenStack, Redfish, PDUs, SCSI reservations and
// some hundred devices more.
//
//	New ─▶ Status, Off, On ─▶ metadata (once per file) ─▶ keys checked
//	                          program, action=… on stdin ─▶ exit code and words ─▶ State
//
// # Guarantees
//
// A program runs only from an allowed folder, symbolic links followed, and only
// if it and all on the way to it belong to root or to the user of this process,
// and nobody else may write to them (to folders: but where they are mounted
// read-only). Parameters, secrets among them, go to its standard input alone; an
// action is always named (the contract's default is reboot); a key that the
// program's own metadata does not list is an error (the contract ignores it).
// What differs by node differs by configuration: a program that would act on one
// device for all nodes is refused. What a variable stands for, which the node says
// of itself, is a plain name or the program is not run.
//
// Off is read only from exit code 2 with output that says off and says nothing
// else: no on, no suspended, paused, shutting down, unknown or not found. A
// cloud's "terminated" with exit code 2 counts as off. A line "Identity: UUID", as
// csi-fencepost-agents prints it, makes a reading one that was checked if it is the node's
// system UUID, and an error if it is another machine's.
//
// When a call returns, the program and its descendants are dead, daemons with a
// session of their own too. A call does not return before: it may outlast its
// ctx while the kernel keeps a process from dying. No Detail and no error
// shows a secret, nor a parameter that could be one: its value is shown only where
// it is known to be harmless.
//
// # Non-guarantees
//
// Some programs read a suspended machine as off by themselves, and their output
// does not show it: fence_vmware_soap and fence_virsh (every state but a few is
// off to them), fence_vmware_rest, fence_vmware_vcloud, fence_skalar. They are
// refused unless Options.AcceptSuspended says that this is known; that another
// program does the same cannot be told. A descendant that changed its user or its environment (sudo) may outlive a call.
// A request that a program has already sent to its device cannot be called back.
// A secret that a program prints encoded in a way of its own is not recognized,
// nor is a value of less than four bytes that is not called a secret.
package program
