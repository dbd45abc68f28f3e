package client

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxLearned bounds the addresses that are known from hints alone.
	maxLearned = 16
	// hintRest is how long after a failed attempt a hint at the same address isn't followed: what a node calls the
	// leader's address may be of no use from here.
	hintRest = time.Second
)

// endpoints decides where to connect.
type endpoints struct {
	pinned     bool
	configured []string
	// learned are addresses that nodes gave as the leader's, oldest first.
	learned []string
	// hint is the address to try first, once.
	hint string
	// failures says when no node could be reached at an address, left when one was reached and was of no use.
	failures, left map[string]time.Time
}

func newEndpoints(configured []string, pinned bool) *endpoints {
	seen := make(map[string]bool)
	configured = slices.DeleteFunc(slices.Clone(configured), func(a string) bool {
		defer func() { seen[a] = true }()
		return seen[a]
	})
	return &endpoints{pinned: pinned, configured: configured, failures: make(map[string]time.Time), left: make(map[string]time.Time)}
}

// suggest takes an address to be tried first next time, and reports whether it will be considered.
func (e *endpoints) suggest(addr string) bool {
	known := slices.Contains(e.configured, addr)
	if e.pinned && !known {
		return false
	}
	e.hint = addr
	if !known && !slices.Contains(e.learned, addr) {
		e.learn(addr)
	}
	return true
}

func (e *endpoints) learn(addr string) {
	e.learned = append(e.learned, addr)
	if len(e.learned) > maxLearned {
		delete(e.failures, e.learned[0])
		delete(e.left, e.learned[0])
		e.learned = e.learned[1:]
	}
}

// failed notes that no node could be reached at an address, or not for long.
func (e *endpoints) failed(addr string, now time.Time) { e.failures[addr], e.left[addr] = now, now }

// worked notes that a node answered at an address.
func (e *endpoints) worked(addr string) { delete(e.failures, addr) }

// leave notes that the node at an address was of no use.
func (e *endpoints) leave(addr string, now time.Time) { e.left[addr] = now }

// resting reports whether an attempt at an address failed so lately that a hint at it isn't followed.
func (e *endpoints) resting(addr string, now time.Time) bool {
	t, ok := e.failures[addr]
	return ok && now.Sub(t) < hintRest
}

// round returns the addresses to try, in order: the hint, then those that were of no use longest ago or never, those
// that were configured before those that were learned.
func (e *endpoints) round(now time.Time) []string {
	addrs := slices.Concat(e.configured, e.learned)
	slices.SortStableFunc(addrs, func(a, b string) int { return cmp.Compare(e.age(a), e.age(b)) })
	hint := e.hint
	e.hint = ""
	if hint != "" && !e.resting(hint, now) {
		addrs = append([]string{hint}, slices.DeleteFunc(addrs, func(a string) bool { return a == hint })...)
	}
	return addrs
}

// age orders addresses by when they were last of no use.
func (e *endpoints) age(addr string) int64 {
	t, ok := e.left[addr]
	if !ok {
		return 0
	}
	return t.UnixNano()
}
