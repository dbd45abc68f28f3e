package transport

import (
	"sync"
	"time"
)

// stallWatch calls a function when something that was started is not stopped in time, and again after as much
// time until it returns true.
type stallWatch struct {
	limit   time.Duration
	stalled func() bool

	mu    sync.Mutex
	timer *time.Timer
	since time.Time // zero while nothing is watched
}

func newStallWatch(limit time.Duration, stalled func() bool) *stallWatch {
	return &stallWatch{limit: limit, stalled: stalled}
}

func (w *stallWatch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	w.rearm(w.limit)
}

// rearm is called with the lock held. The timer is made on first use, so that a watch that is never started
// costs nothing.
func (w *stallWatch) rearm(d time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.check)
		return
	}
	w.timer.Reset(d)
}

func (w *stallWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *stallWatch) check() {
	w.mu.Lock()
	since := w.since
	w.mu.Unlock()
	if since.IsZero() {
		return
	}
	// A timer that fired just as the watch moved on to another start is early.
	if left := w.limit - time.Since(since); left <= 0 && w.stalled() {
		return
	}
	w.again(since)
}

// again waits for more of the start that check saw, unless that one is over.
func (w *stallWatch) again(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.since.Equal(since) {
		return
	}
	left := w.limit - time.Since(since)
	if left <= 0 {
		left = w.limit
	}
	w.rearm(left)
}
