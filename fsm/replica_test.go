package fsm

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvonce/kvonce/registry"
)

// history draws entries of every kind for a handful of clients and keys.
type history struct {
	time uint64
}

func (h *history) entry(t *rapid.T) *Entry {
	h.time += rapid.Uint64Range(0, 1500).Draw(t, "pass")
	e := &Entry{Time: h.time, Wall: rapid.Uint64Range(0, 100).Draw(t, "wall")}
	for range rapid.IntRange(0, 2).Draw(t, "touches") {
		e.Touches = append(e.Touches, Touch{Client: id(t), Verifier: verifierOf(id(t)), Progress: progress(t)})
	}
	for range rapid.IntRange(0, 4).Draw(t, "items") {
		e.Items = append(e.Items, item(t))
	}
	return e
}

func id(t *rapid.T) uint64 { return rapid.Uint64Range(1, 5).Draw(t, "id") }

func progress(t *rapid.T) registry.Progress {
	p := registry.Progress{First: rapid.Uint64Range(0, 6).Draw(t, "first")}
	if rapid.Bool().Draw(t, "received") {
		low := rapid.Uint64Range(0, 8).Draw(t, "low")
		p.Received = []registry.Range{{Low: low, High: low + rapid.Uint64Range(0, 4).Draw(t, "more")}}
	}
	return p
}

func item(t *rapid.T) Item {
	switch rapid.IntRange(0, 9).Draw(t, "item") {
	case 0:
		return Item{Kind: ItemRegister, Register: registry.Registration{Verifier: verifierOf(id(t)), Ordered: rapid.Bool().Draw(t, "ordered")}}
	case 1:
		return Item{Kind: ItemClose, Close: Close{Client: id(t), Verifier: verifierOf(id(t)), First: rapid.Uint64Range(0, 6).Draw(t, "first"), Unresolved: rapid.Bool().Draw(t, "unresolved")}}
	case 2:
		return Item{Kind: ItemUnregistered, Command: command(t).Encode()}
	case 3:
		return Item{Kind: ItemNode, Node: Node{ID: "n", Folder: Incarnation{byte(id(t))}, Version: "v"}}
	case 4:
		return Item{Kind: ItemKind(rapid.IntRange(32, 63).Draw(t, "later")), Command: []byte("later")}
	}
	n := id(t) // clients have the verifier of their number more often than not
	g := Group{Client: n, Verifier: verifierOf(n)}
	for range rapid.IntRange(1, 3).Draw(t, "requests") {
		q := Request{Seq: rapid.Uint64Range(0, 9).Draw(t, "seq"), Progress: progress(t), Salt: []byte("salt"), Command: command(t).Encode()}
		if rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
			q = Request{Cancel: true, Seq: q.Seq, Progress: q.Progress, Fingerprint: FingerprintOf(q.Salt, q.Command)}
		}
		g.Requests = append(g.Requests, q)
	}
	return Item{Kind: ItemGroup, Group: g}
}

func command(t *rapid.T) *Command {
	if rapid.IntRange(0, 9).Draw(t, "settings") == 0 {
		return &Command{Kind: SetSettings, Changes: []Change{{MaxValueBytes, rapid.Uint64Range(0, 64).Draw(t, "value")}}}
	}
	if rapid.IntRange(0, 3).Draw(t, "txn") == 0 {
		return &Command{Kind: Transaction, Txn: Txn{Compares: []Compare{{Key: []byte("a"), Relation: Equal, Target: TargetExists, Number: 1}},
			Then: []Op{op(t), op(t)}, Else: []Op{op(t)}}}
	}
	return plain(op(t))
}

func op(t *rapid.T) Op {
	key := []byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"))
	switch rapid.IntRange(0, 5).Draw(t, "op") {
	case 0:
		return Op{Kind: Put, Key: key, Value: []byte("text"), TTL: rapid.Uint64Range(0, 3000).Draw(t, "ttl"), Previous: true}
	case 1:
		return Op{Kind: Delete, Key: key}
	case 2:
		return Op{Kind: Append, Key: key, Value: []byte("xyz")}
	case 3:
		return Op{Kind: DeleteRange, Key: key}
	}
	return Op{Kind: Increment, Key: key, Delta: 1}
}

// small settings make everything expire and run full soon.
func small(t testing.TB) *State {
	return born(t, 0, Change{ClientTTLMin, 1000}, Change{ClientTTL, 3000}, Change{TombstoneSpan, 4000}, Change{MaxTombstones, 2},
		Change{RemovalsPerEntry, 2}, Change{Window, 4}, Change{MaxClients, 3})
}

// Two replicas that are fed the same log are equal, in state and in answers, though one is replaced by what its own
// snapshot holds every now and then, and copies of the other are alive.
func TestG6G7ReplicasAreEqualWhateverHappensToThem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b, h := small(t), small(t), &history{}
		var copies []*State
		for range rapid.IntRange(1, 40).Draw(rt, "entries") {
			e := h.entry(rt).Encode(nil)
			ra, errA := a.Apply(a.index+1, 1, bytes.Clone(e))
			rb, errB := b.Apply(b.index+1, 1, e)
			clear(e) // the log's bytes are the log's own
			require.Equal(t, errA, errB)
			require.Equal(t, ra, rb)
			require.Equal(t, a.Digest(), b.Digest())
			switch rapid.IntRange(0, 3).Draw(rt, "fate") {
			case 0:
				b = restored(t, snapshotOf(t, b))
			case 1:
				copies = append(copies, a.Copy())
			}
		}
		require.Equal(t, snapshotOf(t, a), snapshotOf(t, b))
		require.Equal(t, a.keys.bytes, b.keys.bytes, "accounts equal a recount")
		require.Equal(t, a.clients.AnswerBytes(), b.clients.AnswerBytes())
		for _, c := range copies {
			require.Equal(t, c.Digest(), restored(t, snapshotOf(t, c)).Digest(), "a copy stays what it was")
		}
	})
}

// Bytes that are no entry give every replica the same error and change nothing but the position in the log.
func TestPoisonEntriesAreTheSameForAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b, h := small(t), small(t), &history{}
		e := h.entry(rt).Encode(nil)
		if rapid.Bool().Draw(rt, "random") {
			e = rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(rt, "bytes")
		} else if i := rapid.IntRange(0, len(e)-1).Draw(rt, "at"); rapid.Bool().Draw(rt, "cut") {
			e = e[:i]
		} else {
			e[i] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		}
		digest := a.Digest()
		ra, errA := a.Apply(a.index+1, 1, e)
		rb, errB := b.Apply(b.index+1, 1, e)
		require.Equal(t, errA, errB)
		require.Equal(t, ra, rb)
		require.Equal(t, a.Digest(), b.Digest())
		if errA != nil {
			var poison *PoisonError
			require.True(t, errors.As(errA, &poison))
			require.Equal(t, digest, a.Digest())
			require.Equal(t, poison.Index, a.Index())
		}
	})
}

// full returns a state with a record of every kind.
func full(t testing.TB) *State {
	w := &world{t: t, s: small(t)}
	a, b := w.register(1), w.register(2)
	w.request(1, a, 1, 1, plain(put("k", "v")))
	w.request(2, b, 1, 1, plain(Op{Kind: Put, Key: []byte("ttl"), Value: []byte("v"), TTL: 100_000}))
	w.apply(&Entry{Items: []Item{{Kind: ItemNode, Node: Node{ID: "n1", Folder: Incarnation{1}, RaftAddress: "r", ClientAddress: "c", HTTPAddress: "h", Version: "v", FeatureLevel: 1}},
		{Kind: ItemClose, Close: Close{Client: b, Verifier: verifierOf(2), First: 1, Unresolved: true}}}})
	require.Equal(t, 1, w.s.clients.Tombstones())
	require.Equal(t, 1, w.s.clients.Answers())
	return w.s
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	s := full(t)
	good := snapshotOf(t, s)
	require.Equal(t, s.Digest(), restored(t, good).Digest())
	refuse := func(b []byte, what string, at int) {
		got, err := ReadSnapshot(bytes.NewReader(b))
		require.Error(t, err, "%s at %d", what, at)
		require.Nil(t, got, "%s at %d", what, at)
	}
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			refuse(b, "bit flip", i)
		}
		refuse(good[:i], "truncated", i)
	}
	refuse(append(bytes.Clone(good), 0), "a byte after the end", len(good))
}

// A state that was damaged in memory isn't written.
func TestG6DamagedStateIsNotWritten(t *testing.T) {
	s := full(t)
	r, _ := s.keys.keys.Get("k")
	r.value[0] ^= 1
	require.ErrorContains(t, s.WriteSnapshot(io.Discard), "memory is damaged")
}

// failing takes n bytes and then fails.
type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

func TestSnapshotThatCannotBeWrittenFails(t *testing.T) {
	require.Error(t, full(t).WriteSnapshot(&failing{100}))
}

// What changes while a copy is written out doesn't reach it.
func TestMutationDoesNotReachAWriterOfACopy(t *testing.T) {
	w := newWorld(t)
	fill(t, w.s, 5000)
	want := snapshotOf(t, w.s)
	copied := w.s.Copy()
	var wg sync.WaitGroup
	var got []byte
	wg.Go(func() { got = snapshotOf(t, copied) })
	for range 2000 {
		w.run(plain(increment("n", 1)))
		w.run(plain(Op{Kind: DeleteRange}))
	}
	wg.Wait()
	require.Equal(t, want, got)
}
