package throttle

import "time"

// waiter is a request that waits.
type waiter struct {
	turn   time.Time
	number uint64
	at     int           // its place in the queue; -1: none any more
	served chan struct{} // closed when it may go
}

// queue is a heap of waiters: the earliest turn first.
type queue []*waiter

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if !q[i].turn.Equal(q[j].turn) {
		return q[i].turn.Before(q[j].turn)
	}
	return q[i].number < q[j].number
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push is heap.Interface's.
func (q *queue) Push(x any) {
	w := x.(*waiter)
	w.at = len(*q)
	*q = append(*q, w)
}

// Pop is heap.Interface's.
func (q *queue) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.at = -1
	return w
}
