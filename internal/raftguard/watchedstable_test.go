package raftguard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// stableDisk is a stable store whose writes take a while and fail with err.
type stableDisk struct {
	raft.StableStore
	takes time.Duration
	err   error
}

func (s *stableDisk) SetUint64(key []byte, v uint64) error {
	<-time.After(s.takes)
	if s.err != nil {
		return s.err
	}
	return s.StableStore.SetUint64(key, v)
}

// TestFailedTermIsFatalFirst: raft panics when it can't store its term. The process must know why before that.
func TestFailedTermIsFatalFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &stableDisk{StableStore: raft.NewInmemStore()}
		var reasons []error
		w := NewWatchedStable(d, time.Second, func(err error) { reasons = append(reasons, err) })
		require.NoError(t, w.SetUint64([]byte("CurrentTerm"), 4))
		require.NoError(t, w.Set([]byte("k"), []byte("v")))
		term, err := w.GetUint64([]byte("CurrentTerm"))
		require.NoError(t, err)
		require.Equal(t, uint64(4), term)
		require.Empty(t, reasons)

		d.err = errPower
		start := time.Now()
		err = w.SetUint64([]byte("CurrentTerm"), 5)
		var failed *StableStoreError
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, errPower)
		require.Equal(t, "CurrentTerm", failed.Key)
		require.Equal(t, []error{err}, reasons)
		require.Equal(t, panicGrace, time.Since(start), "raft is kept waiting for the process to end")
	})
}

func TestStalledTermIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &stableDisk{StableStore: raft.NewInmemStore(), takes: time.Minute}
		type report struct {
			err   error
			after time.Duration
		}
		start, reports := time.Now(), make(chan report, 2)
		w := NewWatchedStable(d, 10*time.Second, func(err error) { reports <- report{err, time.Since(start)} })
		require.NoError(t, w.SetUint64([]byte("CurrentTerm"), 4))
		require.Len(t, reports, 1)
		require.Equal(t, report{&DiskStallError{10 * time.Second}, 10 * time.Second}, <-reports, "while it hung")
	})
}
