// Package profile holds what is known of common CSI drivers, as data: whether
// there is anything to guard, whether unpublish takes access from a client that
// does not let go, whether published nodes are listed truthfully, and whether
// the out-of-service taint has to come first.
//
// Each fact names its source. What no source says is unknown, and is taken for
// the answer that is safe. A profile is a proposal that inject writes into a
// configuration; the sidecar itself never reads one.
package profile
