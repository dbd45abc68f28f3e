package registry

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestG1RequestTakesEffectOnce(t *testing.T) {
	r, lim := New(), testLimits()
	id := mustRegister(t, r, Stamp{0, 1, 1}, lim, "a")
	cmd := &fakeCommand{fingerprint: fingerprintOf("x"), answer: []byte("1")}
	for i := range uint64(5) {
		d := request(r, Stamp{i, 2 + i, 1}, lim, id, verifierOf("a"), 1, Progress{First: 1}, cmd)
		require.Equal(t, Decision{Code: Done, Outcome: Applied, Replayed: i > 0, Bytes: []byte("1"), Index: 2, Term: 1}, d)
		r = reload(t, r)
	}
	require.Equal(t, 1, cmd.kept)
}

// TestG1RequestsOfOneEntry sends one request twice within a log entry, as a client does that retries at once.
func TestG1RequestsOfOneEntry(t *testing.T) {
	r, lim := New(), testLimits()
	id := mustRegister(t, r, Stamp{0, 1, 1}, lim, "a")
	cmd := &fakeCommand{fingerprint: fingerprintOf("x"), answer: []byte("1")}
	s, _ := r.Open(id, verifierOf("a"))
	at := Stamp{0, 2, 1}
	require.False(t, s.Request(at, lim, 1, Progress{First: 1}, cmd).Replayed)
	require.True(t, s.Request(at, lim, 1, Progress{First: 1}, cmd).Replayed)
	require.Equal(t, Reused, s.Request(at, lim, 1, Progress{First: 1}, &fakeCommand{}).Code)
	s.End()
	require.Equal(t, 1, cmd.kept)
	checkInvariants(t, r)
}

func TestG3AnswerStaysUntilAcknowledged(t *testing.T) {
	r, lim := New(), testLimits()
	id, v := mustRegister(t, r, Stamp{0, 1, 1}, lim, "a"), verifierOf("a")
	first := request(r, Stamp{0, 2, 1}, lim, id, v, 1, Progress{First: 1}, &fakeCommand{answer: []byte("first")})
	for seq := uint64(2); seq <= lim.Window; seq++ {
		request(r, Stamp{0, seq + 1, 2}, lim, id, v, seq, Progress{First: 1}, &fakeCommand{answer: []byte("later")})
	}
	first.Replayed = true
	require.Equal(t, first, request(r, Stamp{90, 99, 3}, lim, id, v, 1, Progress{First: 1}, &fakeCommand{}))
	touch(r, Stamp{91, 100, 3}, id, v, Progress{First: 2})
	require.Equal(t, Stale, request(r, Stamp{92, 101, 3}, lim, id, v, 1, Progress{First: 1}, &fakeCommand{}).Code)
}

func TestG8UnknownClientIsNeverANewOne(t *testing.T) {
	r, lim := New(), testLimits()
	before := r.Digest()
	for _, id := range []uint64{0, 1, 2, math.MaxUint64} {
		require.Equal(t, UnknownClient, request(r, Stamp{0, 1, 1}, lim, id, verifierOf("a"), 1, Progress{First: 1}, &fakeCommand{}).Code)
		require.Equal(t, UnknownClient, cancel(r, Stamp{0, 1, 1}, id, verifierOf("a"), 1, Progress{First: 1}, Fingerprint{}).Code)
		require.Equal(t, UnknownClient, touch(r, Stamp{0, 1, 1}, id, verifierOf("a"), Progress{First: 1}).Code)
		require.Equal(t, UnknownClient, r.Close(Stamp{0, 1, 1}, id, verifierOf("a"), 1, true).Code)
	}
	require.Equal(t, before, r.Digest())
	require.Zero(t, r.Clients()+r.Tombstones()+r.Answers())
}

func TestG9NobodyIsEvicted(t *testing.T) {
	r, lim := New(), testLimits()
	for _, name := range []string{"a", "b", "c", "d"} {
		mustRegister(t, r, Stamp{0, 1, 1}, lim, name)
	}
	before := r.Digest()
	d := r.Register(Stamp{99, 2, 1}, lim, Registration{Verifier: verifierOf("e")})
	require.Equal(t, Decision{Code: ClientsFull, Outcome: Refused, Limit: 4, RetryAfter: 1}, d)
	require.Equal(t, before, r.Digest())
}

// TestReceivedRangesVisitEachAnswerOnce: what a client names as received must not cost more than its answers do,
// however often and in whatever order it names them.
func TestReceivedRangesVisitEachAnswerOnce(t *testing.T) {
	for _, test := range []struct{ in, want []Range }{
		{nil, nil},
		{[]Range{{1, 3}, {5, 5}}, []Range{{1, 3}, {5, 5}}},
		{[]Range{{1, 9}, {1, 9}, {1, 9}}, []Range{{1, 9}}},
		{[]Range{{5, 9}, {1, 6}}, []Range{{1, 6}, {7, 9}}},
		{[]Range{{1, 9}, {2, 3}, {4, 12}}, []Range{{1, 9}, {10, 12}}},
		{[]Range{{9, 1}, {3, 2}}, nil},
		{[]Range{{0, math.MaxUint64}, {7, math.MaxUint64}}, []Range{{0, MaxSequence}}},
		{[]Range{{math.MaxUint64, math.MaxUint64}, {MaxSequence, MaxSequence}}, []Range{{MaxSequence, MaxSequence}}},
	} {
		given := append([]Range(nil), test.in...)
		require.Equal(t, test.want, disjoint(test.in))
		require.Equal(t, given, test.in, "the argument belongs to the log entry")
	}
}
