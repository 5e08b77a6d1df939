// Package ipmi reads and cuts the power of machines through their BMCs, over
// IPMI 2.0 (RMCP+, "lanplus").
//
//	Status ─▶ login as User ─────▶ system GUID = the Node's systemUUID? ─▶ chassis status
//	Off    ─▶ login as Operator ─▶ system GUID = the Node's systemUUID? ─▶ power down, hard
//	On     ─▶ login as Operator ─▶ system GUID = the Node's systemUUID? ─▶ power up
//
// # Guarantees
//
// A BMC whose system GUID is usable and is not the Node's systemUUID is an
// error, and gets no power command. (Vendors differ in the GUID's byte order:
// each known order is accepted.)
//
// Nothing is sent after a call's ctx has ended: the call's only socket is closed
// then, so that neither a retransmission nor a goroutine of the library can
// reach the BMC.
//
// An answer counts only if it carries the session's integrity code: who does not
// know the password cannot make a machine read off. (The library does not look at
// it.) Cipher suites 17 (SHA-256) and 3 (SHA-1) are used, never one without
// authentication.
//
// 3 is used only with a BMC that says that it does not have 17, or allows it too little
// privilege. A wrong password is tried with one suite only.
//
// Only power down and power up are ever sent: no reset, no cycle, no soft
// shutdown.
//
// # Non-guarantees
//
// A packet that the network holds back may arrive later than the ctx's end: UDP
// has no recall. A BMC takes it only while the session is alive (about a minute).
//
// A BMC that knows no system GUID, or says zeros or a vendor's placeholder, is
// believed to be the node's, because the configuration says so. Each Detail
// says it.
//
// A login begins with packets that nothing authenticates, so whoever stands between can
// make us take suite 3. It gains him little: HMAC-SHA-1 lets nobody forge an answer, and
// what lets a password be guessed is there with either suite, since a BMC sends a hash of
// the password to whoever asks. Only a long random password, and a network of their own
// for BMCs, help against that.
//
// A BMC that is silent when it does not know the proposed suite, which the specification
// does not allow, is not reached (fence_ipmilan with cipher=3 reaches it).
//
// A session that a ctx cut short is not logged out; the BMC drops it after about
// a minute.
package ipmi
