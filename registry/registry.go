package registry

import (
	"bytes"

	"github.com/kvonce/kvonce/internal/cow"
)

// Registry holds the clients, their stored answers and the tombstones. Use New.
type Registry struct {
	lastID  uint64
	clients *cow.Table[uint64, *Client]
	answers *cow.Table[answerKey, *answer]
	tombs   *cow.Table[uint64, *Tombstone]

	// Derived from the tables.
	verifiers   *cow.Index[verifierRef]
	due         *cow.Index[timed] // clients by deadline
	tombsByAge  *cow.Index[timed] // tombstones by the time they were made
	answerBytes uint64
}

// verifierRef finds the client or tombstone that a verifier names.
type verifierRef struct {
	verifier Verifier
	id       uint64
}

// timed orders ids by a cluster time.
type timed struct{ time, id uint64 }

func (a timed) less(b timed) bool { return a.time < b.time || a.time == b.time && a.id < b.id }

// New returns an empty registry.
func New() *Registry {
	byID := func(a, b uint64) bool { return a < b }
	return &Registry{
		clients: cow.NewTable[uint64, *Client](KindClient, byID),
		answers: cow.NewTable[answerKey, *answer](KindAnswer, answerKey.less),
		tombs:   cow.NewTable[uint64, *Tombstone](KindTombstone, byID),
		verifiers: cow.NewIndex(func(a, b verifierRef) bool {
			return bytes.Compare(a.verifier[:], b.verifier[:]) < 0
		}),
		due:        cow.NewIndex(timed.less),
		tombsByAge: cow.NewIndex(timed.less),
	}
}

// Copy returns an equal registry in O(1). Either can be changed without the other seeing it.
func (r *Registry) Copy() *Registry {
	c := *r
	c.clients, c.answers, c.tombs = r.clients.Copy(), r.answers.Copy(), r.tombs.Copy()
	c.verifiers, c.due, c.tombsByAge = r.verifiers.Copy(), r.due.Copy(), r.tombsByAge.Copy()
	return &c
}

// LastID returns the id of the client that was registered last.
func (r *Registry) LastID() uint64 { return r.lastID }

// Clients returns the number of clients.
func (r *Registry) Clients() int { return r.clients.Len() }

// Tombstones returns the number of tombstones.
func (r *Registry) Tombstones() int { return r.tombs.Len() }

// Answers returns the number of stored answers.
func (r *Registry) Answers() int { return r.answers.Len() }

// AnswerBytes returns what the stored answers count against the cap on all of them.
func (r *Registry) AnswerBytes() uint64 { return r.answerBytes }

// Digest returns the sum of the hashes of all records; the counter of ids is not in it.
func (r *Registry) Digest() uint64 { return r.clients.Sum() + r.answers.Sum() + r.tombs.Sum() }

// Client returns a registered client.
func (r *Registry) Client(id uint64) (*Client, bool) { return r.clients.Get(id) }

// EachClient calls f for the clients whose id is at least from, in order, until f returns false.
func (r *Registry) EachClient(from uint64, f func(*Client) bool) { r.clients.Ascend(from, f) }

// Stored returns the decision on a repeated request as far as it can be given from applied state: only when the
// answer to it is stored and the client is registered with this verifier. An applied answer never changes, so a
// node may give it without asking the log (refusals it may not: its state can lag). Fingerprint is called only
// when there is an answer.
func (r *Registry) Stored(id uint64, v Verifier, seq uint64, fingerprint func() Fingerprint) (Decision, bool) {
	a, ok := r.answers.Get(answerKey{id, seq})
	if !ok || a.gone || !checkDuplicates {
		return Decision{}, false
	}
	c, ok := r.clients.Get(id)
	if !ok || c.Verifier != v || a.fingerprint != fingerprint() {
		return Decision{}, false
	}
	return a.replay(a.fingerprint), true
}
