package node

import "sync/atomic"

// gate is open while this node leads, from the moment at which the barrier of its term was applied.
type gate struct {
	term atomic.Uint64 // 0 for closed
}

func (g *gate) open(term uint64) { g.term.Store(term) }
func (g *gate) close()           { g.term.Store(0) }

// leading returns the term that the gate is open for.
func (g *gate) leading() (term uint64, ok bool) {
	term = g.term.Load()
	return term, term != 0
}

// check tells why nothing can be proposed now, if so.
func (g *gate) check() error {
	if _, ok := g.leading(); !ok {
		return errNotLeader
	}
	return nil
}
