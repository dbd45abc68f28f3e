package client

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The ledger is checked against sets of sequences: the first outstanding sequence is the lowest unresolved one, and the
// window bounds how far a new one lies ahead (client registry rules, Raft thesis section 6.3).
func TestLedgerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Uint64Range(1, 9).Draw(t, "window")
		l := newLedger(window)
		unresolved := map[uint64]bool{}
		next := uint64(1)
		first := func() uint64 {
			for seq := uint64(1); seq < next; seq++ {
				if unresolved[seq] {
					return seq
				}
			}
			return next
		}
		t.Repeat(map[string]func(*rapid.T){
			"assign": func(t *rapid.T) {
				require.Equal(t, next-first() < window, l.room())
				if !l.room() {
					t.Skip("no room")
				}
				require.Equal(t, next, l.assign())
				unresolved[next] = true
				next++
			},
			"resolve": func(t *rapid.T) {
				seq := rapid.Uint64Range(0, next+1).Draw(t, "seq") // a repeated or unknown one changes nothing
				l.resolve(seq, rapid.SampledFrom([]int{keep, 0, 10, receivedPays}).Draw(t, "held"))
				delete(unresolved, seq)
			},
			"": func(t *rapid.T) {
				require.Equal(t, first(), l.first)
				require.Equal(t, next, l.next())
				require.Equal(t, len(unresolved), l.unresolved)
				require.GreaterOrEqual(t, l.held, 0)
			},
		})
	})
}

// What is named as received are sequences that are resolved, above the first outstanding one, and never one whose answer
// is to be kept; and only when it pays.
func TestLedgerReceived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(1000)
		held := map[uint64]int{}
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			l.assign()
		}
		for seq := uint64(2); seq < l.next(); seq++ {
			h := rapid.SampledFrom([]int{-2, keep, 0, 100, receivedPays / 4}).Draw(t, "held")
			if h >= keep {
				held[seq] = h
				l.resolve(seq, h)
			}
		}
		sum := l.held
		ranges := l.received()
		require.Equal(t, sum >= receivedPays, len(ranges) > 0)
		require.LessOrEqual(t, len(ranges), maxReceived)
		last := uint64(0)
		for _, r := range ranges {
			require.Greater(t, r.Low, last, "in order, and not touching")
			require.LessOrEqual(t, r.Low, r.High)
			last = r.High + 1
			for seq := r.Low; seq <= r.High; seq++ {
				h, resolved := held[seq]
				require.True(t, resolved)
				require.NotEqual(t, keep, h)
				sum -= h
			}
		}
		require.Equal(t, sum, l.held)
		l.forget()
		require.GreaterOrEqual(t, l.held, sum)
	})
}

// Answers are named once, and again when what was said may be lost.
func TestLedgerNamesOnce(t *testing.T) {
	l := newLedger(10)
	for range 4 {
		l.assign()
	}
	l.resolve(2, receivedPays)
	require.Len(t, l.received(), 1)
	require.Empty(t, l.received())
	l.forget()
	require.Len(t, l.received(), 1)
	l.resolve(1, receivedPays)
	require.EqualValues(t, 3, l.first)
	require.Zero(t, l.held)
}

// A request folds to harmless when every copy was refused one by one, and never after one was lost.
func TestCopiesFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c copies
		flying, lost := 0, false
		t.Repeat(map[string]func(*rapid.T){
			"send": func(*rapid.T) { c.send(); flying++ },
			"refuse": func(t *rapid.T) {
				if flying == 0 {
					t.Skip()
				}
				c.refuse()
				flying--
			},
			"lose": func(t *rapid.T) {
				if flying == 0 {
					t.Skip()
				}
				c.lose()
				flying, lost = flying-1, true
			},
			"": func(t *rapid.T) { require.Equal(t, flying == 0 && !lost, c.harmless()) },
		})
	})
}
