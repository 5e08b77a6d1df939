// Command soak runs what a sidecar lives through, over and over, and fails if
// anything of it grows: volumes are attached, moved and detached, nodes lose
// power, are found off by their fence agents, give up their volumes and come back
// under a new boot.
//
//	attacher ──▶ csi-fencepost ──▶ the array        etcd, kube-apiserver: real
//	                 │  └─▶ a BMC and a program     controllers, kubelets: played here
//	                 └────▶ API
//
// After a warm-up it looks every few seconds at the sidecar's memory, goroutines,
// file descriptors and metric series, and at what it leaves in the Kubernetes API:
// Leases, annotations and their bytes, Events. The least value of the last third
// of the looks is held against the least of the first third: what is only used for
// a moment does not count, what is kept does. See growth.go for what is allowed.
//
// What the verdict would be so far is written to the page every five minutes.
//
// A soak in which nothing happened fails too: too few loops in either third, a
// sidecar that was started again, or an array that saw two writers.
//
// It does not find what grows only with other calls than these, or with node names
// that never come back: a node's record is an audit trail, and stays.
package main
