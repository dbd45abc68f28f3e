package raftguard

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// deleteChunk is how many entries one transaction of the log store deletes. A compaction in one piece would keep
// appends waiting.
const deleteChunk = 4096

// DiskStallError says that one write has taken longer than Limit, and still hangs.
type DiskStallError struct{ Limit time.Duration }

func (e *DiskStallError) Error() string {
	return fmt.Sprintf("disk stall: a write has taken more than %v", e.Limit)
}

// LogStoreError says that a write to the log failed. After a failed sync nothing is known about what is on disk.
type LogStoreError struct{ Err error }

func (e *LogStoreError) Error() string { return fmt.Sprintf("the log can't be written: %v", e.Err) }

// Unwrap returns what the store said.
func (e *LogStoreError) Unwrap() error { return e.Err }

// WatchedLog times every write to a log store (#503, #614) and lets none fail unnoticed.
type WatchedLog struct {
	raft.LogStore
	limit  time.Duration
	fatal  func(error)
	once   sync.Once
	failed atomic.Pointer[LogStoreError]

	last, writes, entries, bytes atomic.Int64
}

// LogStats counts what a WatchedLog has written since it was made.
type LogStats struct {
	Writes  int64         // calls that stored entries
	Entries int64         // entries stored
	Bytes   int64         // of the data and extensions of those entries
	Last    time.Duration // how long the newest write took
}

// NewWatchedLog wraps a log store. A write that takes longer than limit, and one that fails, is handed to fatal, once
// and while it still hangs. Fatal must end the process: an error return would not do, because a late write may still
// land. It is called from the goroutine that writes, or from a timer's.
func NewWatchedLog(inner raft.LogStore, limit time.Duration, fatal func(error)) *WatchedLog {
	return &WatchedLog{LogStore: inner, limit: limit, fatal: fatal}
}

// LastWrite returns how long the last write took.
func (w *WatchedLog) LastWrite() time.Duration { return time.Duration(w.last.Load()) }

// Stats returns the counters. They are read one after the other.
func (w *WatchedLog) Stats() LogStats {
	return LogStats{Writes: w.writes.Load(), Entries: w.entries.Load(), Bytes: w.bytes.Load(), Last: w.LastWrite()}
}

// StoreLog implements raft.LogStore.
func (w *WatchedLog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. After a failure nothing is written any more: a later write that succeeds would
// hide what the failed one has lost.
func (w *WatchedLog) StoreLogs(logs []*raft.Log) error {
	start := time.Now()
	err := w.watch(func() error { return w.LogStore.StoreLogs(logs) })
	w.last.Store(int64(time.Since(start)))
	if err == nil {
		w.count(logs)
	}
	return err
}

func (w *WatchedLog) count(logs []*raft.Log) {
	bytes := 0
	for _, l := range logs {
		bytes += len(l.Data) + len(l.Extensions)
	}
	w.writes.Add(1)
	w.entries.Add(int64(len(logs)))
	w.bytes.Add(int64(bytes))
}

// watch runs one write to the disk.
func (w *WatchedLog) watch(write func() error) error {
	if !guardStall {
		return write()
	}
	if failed := w.failed.Load(); failed != nil {
		return failed
	}
	defer time.AfterFunc(w.limit, func() { w.die(&DiskStallError{w.limit}) }).Stop()
	err := write()
	if err == nil {
		return nil
	}
	failed := &LogStoreError{err}
	w.failed.CompareAndSwap(nil, failed)
	w.die(failed)
	return failed
}

func (w *WatchedLog) die(err error) { w.once.Do(func() { w.fatal(err) }) }

// DeleteRange implements raft.LogStore, a piece at a time, so that appends come in between.
//
// Raft deletes for two reasons. A compaction, or the discarding of what differs from a snapshot, takes entries from
// the start of the log: it goes upwards, and a crash leaves a log that starts later. A conflict takes the end of the
// log: it goes backwards, and a crash leaves a log that ends earlier. The other way round a hole would be left, and
// raft doesn't start when an entry between its snapshot and its last index is missing. A range that is the whole
// log may be either; it goes backwards, because below a snapshot, where a compaction stops, a hole does no harm.
func (w *WatchedLog) DeleteRange(low, high uint64) error {
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	last, err := w.LastIndex()
	if err != nil {
		return err
	}
	// Raft names indexes that don't exist: a compaction of an empty log starts at 0.
	low, end := max(low, first), min(high, last)
	switch {
	case first == 0 || low > end:
		return nil
	case high >= last:
		return w.deleteBackwards(low, end)
	default:
		return w.deleteUpwards(low, end)
	}
}

func (w *WatchedLog) deleteUpwards(low, high uint64) error {
	for ; high-low >= deleteChunk; low += deleteChunk {
		if err := w.delete(low, low+deleteChunk-1); err != nil {
			return err
		}
	}
	return w.delete(low, high)
}

func (w *WatchedLog) deleteBackwards(low, high uint64) error {
	for ; high-low >= deleteChunk; high -= deleteChunk {
		if err := w.delete(high-deleteChunk+1, high); err != nil {
			return err
		}
	}
	return w.delete(low, high)
}

func (w *WatchedLog) delete(low, high uint64) error {
	return w.watch(func() error { return w.LogStore.DeleteRange(low, high) })
}
