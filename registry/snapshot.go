package registry

import (
	"fmt"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/internal/cow"
)

// Records calls f for every record in the order in which Load takes them, until f returns false.
func (r *Registry) Records(f func(kind byte, rec cow.Record) bool) {
	on := true
	r.clients.Scan(func(c *Client) bool { on = f(KindClient, c); return on })
	if on {
		r.answers.Scan(func(a *answer) bool { on = f(KindAnswer, a); return on })
	}
	if on {
		r.tombs.Scan(func(t *Tombstone) bool { on = f(KindTombstone, t); return on })
	}
}

// SetLastID sets the counter of client ids, before anything is loaded.
func (r *Registry) SetLastID(id uint64) { r.lastID = id }

// Load puts a record of a snapshot into a registry that is being restored. It refuses records that no registry
// could have held.
func (r *Registry) Load(kind byte, record []byte) error {
	in := canon.NewReader(record)
	var load func() error
	switch kind {
	case KindClient:
		c := decodeClient(in)
		load = func() error { return r.loadClient(c) }
	case KindAnswer:
		a := decodeAnswer(in)
		load = func() error { return r.loadAnswer(a) }
	case KindTombstone:
		t := decodeTombstone(in)
		load = func() error { return r.loadTombstone(t) }
	default:
		return fmt.Errorf("record of kind %d isn't one of the registry's", kind)
	}
	if err := in.Done(); err != nil {
		return fmt.Errorf("record of kind %d: %w", kind, err)
	}
	return load()
}

func (r *Registry) loadClient(c *Client) error {
	if c.ID == 0 || c.ID > r.lastID || !c.possible() {
		return fmt.Errorf("client %d is beyond the counter %d or has values out of range", c.ID, r.lastID)
	}
	if !r.clients.Push(c.ID, c) {
		return fmt.Errorf("client %d stands twice or out of order", c.ID)
	}
	r.due.Add(timed{c.deadline(), c.ID})
	return r.loadVerifier(c.Verifier, c.ID)
}

// possible tells whether the numbers of a client are within their ranges and its deadline can be computed.
func (c *Client) possible() bool {
	return c.First >= 1 && c.First <= MaxSequence && c.Window >= 1 && c.Window <= MaxWindow &&
		c.TTL >= 1 && c.deadline() >= c.TTL
}

func (r *Registry) loadAnswer(a *answer) error {
	c, ok := r.clients.Get(a.client)
	if !ok || a.seq < c.First || a.seq-c.First >= c.Window || a.seq > MaxSequence {
		return fmt.Errorf("answer (%d, %d) belongs to no client or lies outside its window", a.client, a.seq)
	}
	if !r.answers.Push(answerKey{a.client, a.seq}, a) {
		return fmt.Errorf("answer (%d, %d) stands twice or out of order", a.client, a.seq)
	}
	s := r.open(c)
	s.account(+1, a.size())
	s.findNext()
	s.End()
	return nil
}

func (r *Registry) loadTombstone(t *Tombstone) error {
	_, alive := r.clients.Get(t.ID)
	if alive || t.ID == 0 || t.ID > r.lastID {
		return fmt.Errorf("tombstone %d stands beside its client or is beyond the counter %d", t.ID, r.lastID)
	}
	if !r.tombs.Push(t.ID, t) {
		return fmt.Errorf("tombstone %d stands twice or out of order", t.ID)
	}
	r.tombsByAge.Add(timed{t.Since, t.ID})
	return r.loadVerifier(t.Verifier, t.ID)
}

func (r *Registry) loadVerifier(v Verifier, id uint64) error {
	if other, taken := r.verifiers.Get(verifierRef{verifier: v}); taken {
		return fmt.Errorf("clients %d and %d have one verifier", other.id, id)
	}
	r.verifiers.Add(verifierRef{v, id})
	return nil
}
