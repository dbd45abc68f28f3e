package cow

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// word is a record for tests.
type word string

func (w word) Append(b []byte) []byte { return append(b, w...) }

func newWords() *Table[int, word] {
	return NewTable[int, word](7, func(a, b int) bool { return a < b })
}

// sumOf adds up the digest of a table from its records.
func sumOf(t *Table[int, word]) (sum uint64) {
	t.Scan(func(w word) bool {
		sum += Hash(t.Kind(), []byte(w))
		return true
	})
	return sum
}

// TestDigestNeverChanges holds the hash to the values of the first version: replicas of two versions compare them.
func TestDigestNeverChanges(t *testing.T) {
	require.Equal(t, uint64(0x8a4127811b21e730), Hash(1, nil))
	require.Equal(t, uint64(0x0b270428583c700d), Hash(1, []byte("record")))
	require.NotEqual(t, Hash(1, []byte("record")), Hash(2, []byte("record")))
}

// TestTableAgainstAMap makes random changes to a table, its copies and maps beside them (G6).
func TestTableAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pair struct {
			table *Table[int, word]
			plain map[int]word
		}
		all := []pair{{newWords(), map[int]word{}}}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			p := all[rapid.IntRange(0, len(all)-1).Draw(t, "table")]
			key := rapid.IntRange(0, 40).Draw(t, "key")
			switch rapid.IntRange(0, 4).Draw(t, "action") {
			case 0, 1:
				value := word(rapid.SampledFrom([]string{"", "a", "b", "longer"}).Draw(t, "value"))
				want, there := p.plain[key]
				old, replaced := p.table.Set(key, value)
				require.Equal(t, there, replaced)
				require.Equal(t, want, old)
				p.plain[key] = value
			case 2:
				want, there := p.plain[key]
				old, found := p.table.Delete(key)
				require.Equal(t, there, found)
				require.Equal(t, want, old)
				delete(p.plain, key)
			case 3:
				top := true
				for k := range p.plain {
					top = top && k < key
				}
				require.Equal(t, top, p.table.Push(key, "pushed"))
				if top {
					p.plain[key] = "pushed"
				}
			case 4:
				if len(all) < 4 {
					plain := map[int]word{}
					for k, v := range p.plain {
						plain[k] = v
					}
					all = append(all, pair{p.table.Copy(), plain})
				}
			}
		}
		for _, p := range all {
			require.Equal(t, len(p.plain), p.table.Len())
			require.Equal(t, sumOf(p.table), p.table.Sum())
			for k := range 41 {
				want, there := p.plain[k]
				got, ok := p.table.Get(k)
				require.Equal(t, there, ok)
				require.Equal(t, want, got)
			}
		}
	})
}

// TestDigestDependsOnRecordsAlone: two ways to the same records lead to the same digest.
func TestDigestDependsOnRecordsAlone(t *testing.T) {
	a, b := newWords(), newWords()
	for k := range 100 {
		a.Set(k, word(rune('a'+k%26)))
	}
	for k := 199; k >= 0; k-- {
		b.Set(k, "other")
		b.Set(k, word(rune('a'+k%26)))
	}
	require.NotEqual(t, a.Sum(), b.Sum())
	for k := 100; k < 200; k++ {
		b.Delete(k)
	}
	require.Equal(t, a.Sum(), b.Sum())
	b.Delete(500)
	require.Equal(t, a.Sum(), b.Sum())
	require.Zero(t, newWords().Sum())
}

func TestOrder(t *testing.T) {
	table := newWords()
	for _, k := range []int{5, 1, 9, 3} {
		table.Set(k, word(rune('0'+k)))
	}
	var all, some string
	table.Scan(func(w word) bool { all += string(w); return true })
	table.Ascend(3, func(w word) bool { some += string(w); return len(some) < 2 })
	require.Equal(t, "1359", all)
	require.Equal(t, "35", some)
	least, ok := table.Min()
	require.True(t, ok)
	require.Equal(t, word("1"), least)
	_, ok = newWords().Min()
	require.False(t, ok)
}

// TestCopyIsReadWhileTheOriginalChanges reads copies by several goroutines while one changes the original. Under the
// race detector it shows that a snapshot can be written while entries are applied.
func TestCopyIsReadWhileTheOriginalChanges(t *testing.T) {
	table := newWords()
	index := NewIndex(func(a, b int) bool { return a < b })
	for k := range 2000 {
		table.Set(k, "before")
		index.Add(k)
	}
	want := table.Sum()
	var readers sync.WaitGroup
	for range 4 {
		frozen, order := table.Copy(), index.Copy()
		for range 2 {
			readers.Go(func() {
				for range 3 {
					least, _ := order.Min()
					if sum := sumOf(frozen); sum != want || order.Len() != 2000 || least != 0 {
						t.Errorf("a copy has changed: sum %x, want %x; %d in the index from %d on", sum, want, order.Len(), least)
					}
				}
			})
		}
	}
	for k := range 2000 {
		table.Set(k, "after")
		table.Set(k+5000, "new")
		index.Remove(k)
		if k%2 == 0 {
			table.Delete(k)
		}
	}
	readers.Wait()
	require.Equal(t, 3000, table.Len())
	require.Zero(t, index.Len())
	require.Equal(t, sumOf(table), table.Sum())
}

func TestIndex(t *testing.T) {
	type pair struct{ key, value int }
	x := NewIndex(func(a, b pair) bool { return a.key < b.key })
	x.Add(pair{2, 20})
	x.Add(pair{1, 10})
	frozen := x.Copy()
	got, ok := x.Get(pair{key: 2})
	require.True(t, ok)
	require.Equal(t, pair{2, 20}, got)
	x.Remove(pair{key: 1})
	least, _ := x.Min()
	require.Equal(t, pair{2, 20}, least)
	least, _ = frozen.Min()
	require.Equal(t, pair{1, 10}, least)
	require.Equal(t, 2, frozen.Len())
}
