package registry

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/cow"
)

// testLimits are small enough to be reached by hand.
func testLimits() Limits {
	return Limits{MaxClients: 4, Window: 8, DefaultTTL: 100, MinTTL: 10, MaxTTL: 1000,
		ClientAnswerBytes: 4096, TotalAnswerBytes: 16384, TombstoneSpan: 500, MaxTombstones: 4}
}

// verifierOf gives each text a verifier of its own.
func verifierOf(text string) Verifier { return sha256.Sum256([]byte(text)) }

// fingerprintOf gives each text a fingerprint of its own.
func fingerprintOf(text string) (f Fingerprint) {
	sum := sha256.Sum256([]byte(text))
	f[0] = 1
	copy(f[1:], sum[:])
	return f
}

// fakeCommand answers what it was told and counts what the registry does with it.
type fakeCommand struct {
	fingerprint              Fingerprint
	fails                    bool
	answer                   []byte
	evaluated, kept, dropped int
}

func (c *fakeCommand) Fingerprint() Fingerprint { return c.fingerprint }

func (c *fakeCommand) Evaluate() (Outcome, []byte) {
	c.evaluated++
	if c.fails {
		return NotApplied, c.answer
	}
	return Applied, c.answer
}

func (c *fakeCommand) Keep()    { c.kept++ }
func (c *fakeCommand) Discard() { c.dropped++ }

// checkSettled fails when a tentative evaluation was neither kept nor discarded, or both.
func (c *fakeCommand) checkSettled(t require.TestingT) {
	require.Equal(t, c.evaluated, c.kept+c.dropped, "an evaluation must be kept or discarded, once")
}

// request sends one request, as an entry with it alone would.
func request(r *Registry, at Stamp, lim Limits, id uint64, v Verifier, seq uint64, p Progress, cmd Command) Decision {
	s, gone := r.Open(id, v)
	if s == nil {
		return r.Verdict(at, gone, id, seq, p.First)
	}
	defer s.End()
	return s.Request(at, lim, seq, p, cmd)
}

// cancel cancels one sequence.
func cancel(r *Registry, at Stamp, id uint64, v Verifier, seq uint64, p Progress, f Fingerprint) Decision {
	s, gone := r.Open(id, v)
	if s == nil {
		return r.Verdict(at, gone, id, seq, p.First)
	}
	defer s.End()
	return s.Cancel(at, seq, p, f)
}

// touch keeps a client alive.
func touch(r *Registry, at Stamp, id uint64, v Verifier, p Progress) Decision {
	s, gone := r.Open(id, v)
	if s == nil {
		return gone
	}
	defer s.End()
	return s.Touch(at, p)
}

// removeDue removes at most budget items, as an entry does, and calls f for each one before it goes.
func removeDue(r *Registry, lim Limits, now, budget uint64, f func(Due)) {
	for ; budget > 0; budget-- {
		d, ok := r.NextDue(lim)
		if !ok || d.Deadline > now {
			break
		}
		f(d)
		r.RemoveDue(d, now)
	}
	r.DropExcess(lim, budget)
}

// reload makes a registry from the records of another, as a restored snapshot does.
func reload(t require.TestingT, r *Registry) *Registry {
	back := New()
	back.SetLastID(r.LastID())
	r.Records(func(kind byte, rec cow.Record) bool {
		require.NoError(t, back.Load(kind, rec.Append(nil)))
		return true
	})
	return back
}

// checkInvariants recounts everything that is derived from the records.
func checkInvariants(t require.TestingT, r *Registry) {
	var sum, total uint64
	r.Records(func(kind byte, rec cow.Record) bool {
		sum += cow.Hash(kind, rec.Append(nil))
		return true
	})
	require.Equal(t, sum, r.Digest(), "the digest isn't the sum of the records (G6)")
	verifiers := 0
	r.clients.Scan(func(c *Client) bool {
		total += checkClient(t, r, c)
		verifiers++
		return true
	})
	require.Equal(t, total, r.AnswerBytes(), "bytes of all answers")
	r.tombs.Scan(func(d *Tombstone) bool {
		checkTombstone(t, r, d)
		verifiers++
		return true
	})
	require.Equal(t, r.clients.Len(), r.due.Len(), "clients by deadline")
	require.Equal(t, r.tombs.Len(), r.tombsByAge.Len(), "tombstones by age")
	require.Equal(t, verifiers, r.verifiers.Len(), "verifiers of clients and tombstones")
}

// checkClient recounts one client and returns the bytes of its answers.
func checkClient(t require.TestingT, r *Registry, c *Client) (size uint64) {
	var count uint64
	next := c.First
	r.answers.Scan(func(a *answer) bool {
		if a.client != c.ID {
			return true
		}
		require.GreaterOrEqual(t, a.seq, c.First, "an answer below the first outstanding sequence")
		require.Less(t, a.seq-c.First, c.Window, "an answer beyond the window")
		if a.seq == next {
			next++
		}
		count, size = count+1, size+a.size()
		return true
	})
	require.Equal(t, count, c.Answers(), "answers of client %d", c.ID)
	require.Equal(t, size, c.AnswerBytes(), "bytes of client %d", c.ID)
	if c.Ordered {
		require.Equal(t, next, c.next, "next sequence of ordered client %d", c.ID)
	}
	_, ok := r.due.Get(timed{c.LastActive + c.TTL, c.ID})
	require.True(t, ok, "client %d isn't among those that expire", c.ID)
	ref, ok := r.verifiers.Get(verifierRef{verifier: c.Verifier})
	require.True(t, ok && ref.id == c.ID, "verifier of client %d", c.ID)
	return size
}

func checkTombstone(t require.TestingT, r *Registry, d *Tombstone) {
	_, alive := r.clients.Get(d.ID)
	require.False(t, alive, "client %d stands beside its tombstone", d.ID)
	_, ok := r.tombsByAge.Get(timed{d.Since, d.ID})
	require.True(t, ok, "tombstone %d isn't among those that go", d.ID)
	ref, ok := r.verifiers.Get(verifierRef{verifier: d.Verifier})
	require.True(t, ok && ref.id == d.ID, "verifier of tombstone %d", d.ID)
	require.False(t, bytes.HasSuffix(d.Applied, []byte{0}), "zeros at the end of tombstone %d", d.ID)
}

// mustRegister registers a client under the verifier of a text and returns its id.
func mustRegister(t testing.TB, r *Registry, at Stamp, lim Limits, text string) uint64 {
	t.Helper()
	d := r.Register(at, lim, Registration{Verifier: verifierOf(text)})
	require.Equal(t, Done, d.Code)
	return d.Client.ID
}
