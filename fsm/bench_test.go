package fsm

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/registry"
)

// verifierOf gives each number a verifier of its own.
func verifierOf(n uint64) (v registry.Verifier) {
	copy(v[:], fmt.Sprintf("verifier-%d", n))
	return v
}

// born returns a state with a genesis and the given number of registered clients.
func born(tb testing.TB, clients int, changes ...Change) *State {
	tb.Helper()
	settings, bad := DefaultSettings().With(changes...)
	require.Nil(tb, bad)
	s := New()
	mustApply(tb, s, &Entry{Items: []Item{{Kind: ItemGenesis, Genesis: Genesis{ClusterName: "test", Settings: settings}}}})
	for done := 0; done < clients; {
		e := &Entry{}
		for range min(1000, clients-done) {
			done++
			e.Items = append(e.Items, Item{Kind: ItemRegister, Register: registry.Registration{Verifier: verifierOf(uint64(done))}})
		}
		mustApply(tb, s, e)
	}
	return s
}

// mustApply applies an entry behind those that were applied before.
func mustApply(tb testing.TB, s *State, e *Entry) []Result {
	tb.Helper()
	results, err := s.Apply(s.index+1, 1, e.Encode(nil))
	require.NoError(tb, err)
	require.Len(tb, results, e.Results())
	return results
}

// fill puts n small keys into the state.
func fill(tb testing.TB, s *State, n int) {
	tb.Helper()
	for done := 0; done < n; {
		e := &Entry{}
		for range min(1000, n-done) {
			c := Command{Kind: Put, Op: Op{Kind: Put, Key: fmt.Appendf(nil, "key-%08d", done), Value: []byte("value")}}
			e.Items = append(e.Items, Item{Kind: ItemUnregistered, Command: c.Encode()})
			done++
		}
		mustApply(tb, s, e)
	}
}

// increments makes an entry of n increments by clients 1 to n, each with its next sequence.
func increments(n int, clients uint64, next []uint64, turn *uint64, time uint64) *Entry {
	e := &Entry{Time: time}
	for range n {
		id := *turn%clients + 1
		*turn++
		next[id]++
		c := Command{Kind: Increment, Op: Op{Kind: Increment, Key: fmt.Appendf(nil, "counter-%d", id), Delta: 1}}
		q := Request{Seq: next[id], Progress: registry.Progress{First: next[id]}, Salt: []byte("saltsalt"), Command: c.Encode()}
		last := len(e.Items) - 1
		if last >= 0 && e.Items[last].Group.Client == id {
			e.Items[last].Group.Requests = append(e.Items[last].Group.Requests, q)
			continue
		}
		e.Items = append(e.Items, Item{Kind: ItemGroup, Group: Group{Client: id, Verifier: verifierOf(id), Requests: []Request{q}}})
	}
	return e
}

// BenchmarkApply applies batches of increments, with a copy after each as a node publishes one.
func BenchmarkApply(b *testing.B) {
	for _, clients := range []int{16, 256} {
		for _, batch := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("clients=%d/batch=%d", clients, batch), func(b *testing.B) {
				s := born(b, clients)
				next, turn := make([]uint64, clients+1), uint64(0)
				entries := make([][]byte, b.N)
				for i := range entries {
					entries[i] = increments(batch, uint64(clients), next, &turn, uint64(i)).Encode(nil)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for _, e := range entries {
					if _, err := s.Apply(s.index+1, 1, e); err != nil {
						b.Fatal(err)
					}
					s.Copy()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
			})
		}
	}
}

var sink *State

// BenchmarkCopy shows that a copy costs the same whatever is in the state.
func BenchmarkCopy(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s := born(b, 0)
			fill(b, s, keys)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				sink = s.Copy()
			}
		})
	}
}

// BenchmarkExpireOne removes one due client among many by an otherwise empty entry.
func BenchmarkExpireOne(b *testing.B) {
	for _, clients := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s := born(b, clients, Change{RemovalsPerEntry, 1})
			for t := uint64(0); s.time <= 5*minute; t += maxStep {
				s.advance(&Entry{Time: t}) // time passes, and nothing is removed
			}
			tick := (&Entry{Time: s.time}).Encode(nil)
			b.ResetTimer()
			for i := range b.N {
				if i%clients == clients-1 {
					b.StopTimer()
					s = born(b, clients, Change{RemovalsPerEntry, 1})
					s.time = 5 * minute
					b.StartTimer()
				}
				if _, err := s.Apply(s.index+1, 1, tick); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdleClients applies entries of one write beside many idle clients.
func BenchmarkIdleClients(b *testing.B) {
	s := born(b, 10_000)
	next, turn := make([]uint64, 2), uint64(0)
	b.ReportAllocs()
	for i := range b.N {
		e := increments(1, 1, next, &turn, s.time+uint64(i%2)).Encode(nil)
		if _, err := s.Apply(s.index+1, 1, e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkSnapshot writes and reads a million small keys.
func BenchmarkSnapshot(b *testing.B) {
	s := born(b, 0)
	fill(b, s, 1_000_000)
	var snapshot bytes.Buffer
	require.NoError(b, s.WriteSnapshot(&snapshot))
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(snapshot.Len()))
		for range b.N {
			require.NoError(b, s.WriteSnapshot(io.Discard))
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(snapshot.Len()))
		for range b.N {
			back, err := ReadSnapshot(bytes.NewReader(snapshot.Bytes()))
			require.NoError(b, err)
			sink = back
		}
	})
}
