package fence

// Process is the process of a kubelet, as that says of itself. One process remembers what it has
// mounted; one that has started since may have forgotten it (Holder.AsksKubelet).
type Process struct {
	// Start is when it started, in seconds since 1970 by the node's clock
	// (process_start_time_seconds). It is compared with another Start only.
	Start float64 `json:"start"`
	// CPU is how many seconds of processor time it had used when it was asked.
	CPU float64 `json:"cpu"`
	// Key is the SHA-256 of the public key of its serving certificate, in base64.
	Key string `json:"key"`
}

// startSlack is how far two readings of one start may be apart, in seconds. client_golang adds
// the time since the boot to the boot's, which is computed from the clock and moves with it.
const startSlack = 3

// Settled is how old a process has to be, in seconds by its own clock, before it tells itself
// from one that follows it: that one starts later than it was asked.
const Settled = 3 * startSlack

// Is tells whether later, which was asked after p, is the same process. nil is no process that
// anybody knows, and the same as none.
func (p *Process) Is(later *Process) bool {
	return p != nil && later != nil && p.Key != "" && p.Key == later.Key &&
		max(p.Start-later.Start, later.Start-p.Start) <= startSlack && later.CPU >= p.CPU
}
