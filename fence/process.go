package fence

import "time"

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

// RestartSlack is how much older than the forced detach of a volume, as somebody has watched that, a
// kubelet's process has to be: else it may have looked into volumesAttached when the volume was there
// no more. A kubelet looks once the API server answers it after its start, most often within seconds;
// a watch shows the detach within a second, most often; and an answer tells whole seconds. Where one
// of them takes longer than this (a watch that comes back after an outage is up to observe.OrderSlack
// late), a kubelet that restarted just then is taken for one that did not.
const RestartSlack = 30 * time.Second

// Forced is that a volume was taken from volumesAttached by force, while its kubelet listed it in use,
// as somebody has watched one boot of the node by a clock of his own.
type Forced struct {
	Taken time.Time // for the first time
	// Back is when it was last put back, Off when it has left since then, in whatever order; zero: not.
	Back, Off time.Time
}

// Memory is that of a kubelet whose process is that old now. A kubelet that has found the volume there may
// not list it before it has run for as long as listing takes.
func (f *Forced) Memory(age, listing time.Duration) Memory {
	switch {
	case f.doubts(age):
		return MemoryLost
	case age < listing:
		return MemoryUnsaid
	}
	return ""
}

// doubts tells whether a kubelet's process that is that old now may have looked into volumesAttached
// when the volume was not there: it has started since the volume was taken, and not while it was back.
func (f *Forced) doubts(age time.Duration) bool {
	now := time.Now()
	started, end := now.Add(-age), now
	if !f.Off.IsZero() {
		end = f.Off.Add(-RestartSlack)
	}
	found := !f.Back.IsZero() && started.After(f.Back.Add(RestartSlack)) && !started.After(end)
	return started.After(f.Taken.Add(-RestartSlack)) && !found
}

// Is tells whether later, which was asked after p, is the same process. nil is no process that
// anybody knows, and the same as none.
func (p *Process) Is(later *Process) bool {
	return p != nil && later != nil && p.Key != "" && p.Key == later.Key &&
		max(p.Start-later.Start, later.Start-p.Start) <= startSlack && later.CPU >= p.CPU
}
