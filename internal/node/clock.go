package node

import (
	"sync"
	"time"
)

// Bounds of the leader's clock.
const (
	// clockPass is how often the clock is moved on.
	clockPass = 50 * time.Millisecond
	// clockMaxPass is the most that one pass adds, so that a process that was suspended doesn't catch up.
	clockMaxPass = 200 * time.Millisecond
	// clockStall is the age of the oldest proposal beyond which the clock stands still: while the cluster is stalled
	// no touch gets through, so no time may pass either.
	clockStall = time.Second
	// clockAhead is how far the clock may run past the stamp of the last entry; what is beyond is dropped.
	clockAhead = 2 * time.Second
	// tickAfter is how old the last stamp may get while anything can expire. An entry is due at least every 2 s.
	tickAfter = time.Second
)

// clock is cluster time as a leader continues it. It is a lower bound of the time that has passed: it goes on from
// the time that was applied, never faster than real time, and stands still whenever in doubt.
type clock struct {
	mu        sync.Mutex
	now       time.Duration // cluster time
	lastPass  time.Time
	lastStamp time.Duration
	stampedAt time.Time
}

// reset starts the clock at the cluster time that was applied after the barrier of a new leader.
func (c *clock) reset(applied time.Duration, wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.lastStamp, c.lastPass, c.stampedAt = applied, applied, wall, wall
}

// pass moves the clock on to the local time now. Oldest is when the oldest proposal without an answer was made, zero
// for none.
func (c *clock) pass(now, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	step := min(now.Sub(c.lastPass), clockMaxPass)
	c.lastPass = now
	if step <= 0 || !oldest.IsZero() && now.Sub(oldest) > clockStall {
		return
	}
	c.now = min(c.now+step, c.lastStamp+clockAhead)
}

// stamp returns the time for an entry, in milliseconds.
func (c *clock) stamp(now time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastStamp, c.stampedAt = c.now, now
	return uint64(c.now / time.Millisecond)
}

// sinceStamp returns how long ago the last entry was stamped.
func (c *clock) sinceStamp(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.stampedAt)
}
