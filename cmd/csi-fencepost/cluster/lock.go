package cluster

import "strings"

// LockPrefix begins the names of the leaders' Leases.
const LockPrefix = "csi-fencepost-leader-"

// FailoverLock is the name of the leader's Lease of failover as a Deployment of its own, in the
// namespace of that.
const FailoverLock = LockPrefix + "failover"

// LockName is the name of the leader's Lease: one for each driver, in lower
// case, as the names of objects are.
func LockName(driver string) string { return LockPrefix + strings.ToLower(driver) }
