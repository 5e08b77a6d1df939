// Package statusz_test shows what a running csi-fencepost, on a real API server, tells
// on /metrics and /statusz while volumes wait, nodes are silent and a brake
// holds.
package statusz_test
