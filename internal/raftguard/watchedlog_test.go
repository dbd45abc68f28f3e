package raftguard

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// disk is a log store that hangs while gate is open, and fails with err.
type disk struct {
	raft.LogStore
	gate   atomic.Pointer[chan struct{}]
	err    error
	writes int
}

func newDisk() *disk { return &disk{LogStore: raft.NewInmemStore()} }

// hang makes writes hang until the test ends or release is called.
func (d *disk) hang(t *testing.T) (release func()) {
	gate := make(chan struct{})
	d.gate.Store(&gate)
	release = func() {
		if d.gate.CompareAndSwap(&gate, nil) {
			close(gate)
		}
	}
	t.Cleanup(release)
	return release
}

func (d *disk) StoreLogs(logs []*raft.Log) error {
	if gate := d.gate.Load(); gate != nil {
		<-*gate
	}
	d.writes++
	if d.err != nil {
		return d.err
	}
	return d.LogStore.StoreLogs(logs)
}

func (d *disk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// TestDiskStall is #503 and #614: the disk of a leader hangs. Bare raft goes on sending heartbeats and stays leader,
// so that the cluster stands still; the guard says so while the write still hangs.
func TestDiskStall(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		trs := inmem("a", "b")
		b, d := newPeer(t, "b", trs[1]), newDisk()
		n := newNode("a", trs[0])
		n.config = testConfig("a", 100*time.Millisecond)
		n.logs = d
		fatal := make(chan error, 8)
		if guarded {
			n.logs = NewWatchedLog(d, 50*time.Millisecond, func(err error) { fatal <- err })
		}
		n.bootstrap(t, voters("a", "b"))
		r := n.start(t)
		elect(t, r, b, "a", "a")
		t.Cleanup(d.hang(t)) // let go before the node is stopped
		f := r.Apply([]byte("x"), 0)
		if guarded {
			select {
			case err := <-fatal:
				var stall *DiskStallError
				require.ErrorAs(t, err, &stall)
				require.Equal(t, 50*time.Millisecond, stall.Limit)
				require.NotNil(t, d.gate.Load(), "it still hangs")
			case <-time.After(patience):
				require.Fail(t, "nobody noticed")
			}
			return
		}
		require.ErrorIs(t, Await(within(t, 500*time.Millisecond), f), ErrAbandoned)
		require.Equal(t, raft.Leader, r.State(), "the fault shows: five leases later")
	})
}

func TestFastWritesAreNoStall(t *testing.T) {
	called := make(chan error, 1)
	w := NewWatchedLog(newDisk(), 50*time.Millisecond, func(err error) { called <- err })
	for i := range uint64(100) {
		require.NoError(t, w.StoreLog(&raft.Log{Index: i + 1, Data: []byte("abc"), Extensions: []byte("d")}))
	}
	select {
	case err := <-called:
		require.NoError(t, err)
	case <-time.After(150 * time.Millisecond):
	}
	s := w.Stats()
	require.Equal(t, LogStats{Writes: 100, Entries: 100, Bytes: 400, Last: s.Last}, s)
	require.Positive(t, s.Last)
	require.Equal(t, s.Last, w.LastWrite())
}

// TestFailedWriteIsFatal: after a failed sync nothing is known about the disk. Without the guard raft would try again
// after a step down, and a later success would hide the loss (G2).
func TestFailedWriteIsFatal(t *testing.T) {
	d := newDisk()
	var reasons []error
	w := NewWatchedLog(d, time.Minute, func(err error) { reasons = append(reasons, err) })
	broken := errors.New("input/output error")
	d.err = broken
	err := w.StoreLogs([]*raft.Log{{Index: 1}})
	var failed *LogStoreError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, broken)
	require.Equal(t, []error{err}, reasons, "fatal came before the return")

	d.err = nil
	require.ErrorIs(t, w.StoreLog(&raft.Log{Index: 1}), broken, "nothing is written any more")
	require.Equal(t, 1, d.writes)
	require.Len(t, reasons, 1)
	require.Zero(t, w.Stats().Entries)
}

// sparse is a log store that can have holes, like bolt, and loses power after some deletions.
type sparse struct {
	raft.LogStore
	has   map[uint64]bool
	calls [][2]uint64
	power int // deletions until the power goes; negative: never
}

func newSparse(first, last uint64, power int) *sparse {
	s := &sparse{has: map[uint64]bool{}, power: power}
	for i := first; i <= last; i++ {
		s.has[i] = true
	}
	return s
}

func (s *sparse) indexes() []uint64 {
	var all []uint64
	for i := range s.has {
		all = append(all, i)
	}
	slices.Sort(all)
	return all
}

func (s *sparse) FirstIndex() (uint64, error) {
	if len(s.has) == 0 {
		return 0, nil
	}
	return s.indexes()[0], nil
}

func (s *sparse) LastIndex() (uint64, error) {
	if len(s.has) == 0 {
		return 0, nil
	}
	return s.indexes()[len(s.has)-1], nil
}

func (s *sparse) DeleteRange(low, high uint64) error {
	if s.power == 0 {
		return errPower
	}
	s.power--
	s.calls = append(s.calls, [2]uint64{low, high})
	for i := low; i <= high; i++ {
		delete(s.has, i)
	}
	return nil
}

// TestDeleteRangeInPieces: whenever the power goes, what is left of the log has no hole, and is its end after a
// compaction and its start after a conflict. A bare store deletes all in one transaction, which keeps appends waiting.
func TestDeleteRangeInPieces(t *testing.T) {
	const first, last = 1000, 1000 + 3*deleteChunk + 10
	for name, c := range map[string]struct {
		low, high         uint64
		keepsEnd, nothing bool
	}{
		"compaction":             {low: first, high: last - 5, keepsEnd: true},
		"compaction from 0":      {low: 0, high: last - 5, keepsEnd: true},
		"conflict":               {low: first + 5, high: last},
		"conflict and beyond":    {low: first + 5, high: last + 1e9},
		"everything":             {low: first, high: last},
		"one entry":              {low: first, high: first, keepsEnd: true},
		"exactly one piece":      {low: first, high: first + deleteChunk - 1, keepsEnd: true},
		"two pieces by one":      {low: first, high: first + deleteChunk, keepsEnd: true},
		"before the log":         {low: 0, high: first - 1, nothing: true},
		"behind the log":         {low: last + 1, high: last + 9, nothing: true},
		"nothing, upside down":   {low: first + 9, high: first + 8, nothing: true},
		"the last entry":         {low: last, high: last},
		"all but the first":      {low: first + 1, high: last},
		"all but the last entry": {low: first, high: last - 1, keepsEnd: true},
	} {
		t.Run(name, func(t *testing.T) {
			for power := range 6 {
				s := newSparse(first, last, power)
				err := NewWatchedLog(s, time.Minute, func(error) {}).DeleteRange(c.low, c.high)
				left := s.indexes()
				if len(left) > 0 {
					require.Len(t, left, int(left[len(left)-1]-left[0]+1), "no hole")
				}
				for _, call := range s.calls {
					require.Less(t, call[1]-call[0], uint64(deleteChunk))
				}
				if c.keepsEnd {
					require.Equal(t, uint64(last), left[len(left)-1])
				}
				if err != nil {
					require.ErrorIs(t, err, errPower)
					continue
				}
				for i := uint64(first); i <= last; i++ {
					require.Equal(t, i < c.low || i > c.high || c.nothing, s.has[i], i)
				}
			}
		})
	}
}

// TestDeleteRangeOfAnEmptyLog: after an installed snapshot raft compacts from 0 to an index in the millions.
func TestDeleteRangeOfAnEmptyLog(t *testing.T) {
	s := newSparse(1, 0, -1)
	require.NoError(t, NewWatchedLog(s, time.Minute, func(error) {}).DeleteRange(0, 50_000_000))
	require.Empty(t, s.calls)
}
