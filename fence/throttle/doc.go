// Package throttle limits the requests that one account makes to the Kubernetes
// API, as client-go's token bucket does, and lets the oldest call go first.
//
// client-go's own limit is first come, first served by request. When a node with
// 50 volumes dies, 50 calls ask at once for some ten objects each, and each call
// gets its last one only when all have nearly got theirs: the first volume moves
// as late as the last one. By turn, the first call gets all of its requests
// before the second, and the last is as late as before.
//
// It guarantees the limit, and that a request whose turn is earlier is not kept
// waiting by later ones. It holds no slots: a call that hangs elsewhere keeps
// nobody waiting. It lasts as long as its process and shares nothing with others.
package throttle
