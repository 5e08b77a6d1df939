// Package writer is a client that does not let go: it writes to a device or a file
// every few milliseconds, through one open file that it never closes, and tells
// which of its writes succeed. It answers one question of package fitness: after
// ControllerUnpublishVolume, can a node that was not asked still write?
//
//	suite ──start, mark, stop──▶ writer ──write, every 10 ms──▶ device
//	      ◀─started, marked, wrote, failed, pending──
//
// # The protocol
//
// Lines of text, over a TCP connection or a program's standard input and output.
// To the writer:
//
//	start {"volumeId":"…","nodeId":"…","publishContext":{…}}   open the volume, begin to write
//	mark                                                       how far have you come?
//	stop                                                       let go
//
// From it:
//
//	started HOW     it is open, and HOW it is written: direct (O_DIRECT, O_SYNC) or sync (O_SYNC)
//	marked N        every write with a number above N begins after the mark was read
//	wrote N         write N has succeeded; at most every 100 ms
//	failed N TEXT   write N has failed; at most every 100 ms
//	pending N       write N began more than a second ago, and has no answer yet; at most every 100 ms
//	stopped         it is closed
//	error TEXT      what was asked cannot be done
//
// Clocks of two machines are not compared: a mark that is set after the unpublish
// has answered tells the writes after it from those before.
//
// # What it does not guarantee
//
// It is as right as the path that it is given: a path that is not the volume
// proves nothing. A disk that says yes and forgets is not noticed. The TCP
// connection has no password: whoever reaches it can begin and end the writing.
package writer
