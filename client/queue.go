package client

import (
	"container/heap"
	"time"
)

// resendQueue holds the calls of which a copy was sent and another must be. An unordered client sends each when its
// pause is over. An ordered one sends them by sequence, once the pause of all is over: out of order they would be
// refused again.
type resendQueue struct {
	ordered bool
	pause   time.Time // of an ordered client
	calls   []*call
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *resendQueue) Len() int { return len(q.calls) }

// Less orders by pause, then by sequence.
func (q *resendQueue) Less(i, j int) bool {
	a, b := q.calls[i], q.calls[j]
	if !q.ordered && !a.due.Equal(b.due) {
		return a.due.Before(b.due)
	}
	return a.seq < b.seq
}

// Swap swaps two calls.
func (q *resendQueue) Swap(i, j int) {
	q.calls[i], q.calls[j] = q.calls[j], q.calls[i]
	q.calls[i].index, q.calls[j].index = i, j
}

// Push appends a call.
func (q *resendQueue) Push(x any) {
	c := x.(*call)
	c.index = len(q.calls)
	q.calls = append(q.calls, c)
}

// Pop removes the last call.
func (q *resendQueue) Pop() any {
	last := len(q.calls) - 1
	c := q.calls[last]
	q.calls[last] = nil
	q.calls = q.calls[:last]
	c.index = -1
	return c
}

// add queues a call, to be sent at due.
func (q *resendQueue) add(c *call, due time.Time) {
	c.due = due
	if q.ordered && due.After(q.pause) {
		q.pause = due
	}
	if c.index >= 0 {
		heap.Fix(q, c.index)
		return
	}
	heap.Push(q, c)
}

// remove takes a call out, if it is in.
func (q *resendQueue) remove(c *call) {
	if c.index >= 0 {
		heap.Remove(q, c.index)
	}
}

// head returns the call to send next and when, nil when there is none.
func (q *resendQueue) head() (*call, time.Time) {
	if len(q.calls) == 0 {
		return nil, time.Time{}
	}
	if q.ordered {
		return q.calls[0], q.pause
	}
	return q.calls[0], q.calls[0].due
}

// hurry ends the pauses, except those that the cluster asked for.
func (q *resendQueue) hurry() {
	q.pause = time.Time{}
	for _, c := range q.calls {
		if c.refusal.GetRetryAfterMs() == 0 {
			c.due = time.Time{}
		} else if q.ordered && c.due.After(q.pause) {
			q.pause = c.due
		}
	}
	heap.Init(q)
}
