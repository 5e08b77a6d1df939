// Package edge holds the gRPC edge against what Kubernetes really puts before it:
// an external-attacher that exits when its connection is lost, and a kubelet that
// starts the containers of a pod in any order.
package edge
