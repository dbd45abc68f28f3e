package raftguard

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// deleteChunk is how many entries one transaction of the log store deletes. A compaction in one piece would keep
// appends waiting.
const deleteChunk = 4096

// DiskStallError says that one write to the log has taken too long.
type DiskStallError struct{ Limit time.Duration }

func (e *DiskStallError) Error() string {
	return fmt.Sprintf("disk stall: a write to the log has taken more than %v", e.Limit)
}

// LogStoreError says that a write to the log failed. After a failed sync nothing is known about what is on disk.
type LogStoreError struct{ Err error }

func (e *LogStoreError) Error() string { return fmt.Sprintf("the log can't be written: %v", e.Err) }

// Unwrap returns what the store said.
func (e *LogStoreError) Unwrap() error { return e.Err }

// WatchedLog times every write to a log store (#503, #614) and lets none fail unnoticed.
type WatchedLog struct {
	raft.LogStore
	limit time.Duration
	fatal func(error)
	last  atomic.Int64
}

// NewWatchedLog wraps a log store. Fatal must end the process at once: an error return would not do, because the
// write may still land.
func NewWatchedLog(inner raft.LogStore, limit time.Duration, fatal func(error)) *WatchedLog {
	return &WatchedLog{LogStore: inner, limit: limit, fatal: fatal}
}

// LastWrite returns how long the last write took.
func (w *WatchedLog) LastWrite() time.Duration { return time.Duration(w.last.Load()) }

// StoreLog implements raft.LogStore.
func (w *WatchedLog) StoreLog(l *raft.Log) error { return w.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (w *WatchedLog) StoreLogs(logs []*raft.Log) error {
	start := time.Now()
	if guardStall {
		defer time.AfterFunc(w.limit, func() { w.fatal(&DiskStallError{w.limit}) }).Stop()
	}
	err := w.LogStore.StoreLogs(logs)
	w.last.Store(int64(time.Since(start)))
	if err != nil && guardStall {
		err = &LogStoreError{err}
		w.fatal(err)
	}
	return err
}

// DeleteRange implements raft.LogStore, a piece at a time. A range at the end of the log is deleted from its end
// backwards, any other one from its start: whenever a crash comes, what is left has no hole.
func (w *WatchedLog) DeleteRange(low, high uint64) error {
	last, err := w.LastIndex()
	if err != nil {
		return err
	}
	if high >= last {
		return w.deleteBackwards(low, high)
	}
	for ; high-low >= deleteChunk; low += deleteChunk {
		if err := w.LogStore.DeleteRange(low, low+deleteChunk-1); err != nil {
			return err
		}
	}
	return w.LogStore.DeleteRange(low, high)
}

func (w *WatchedLog) deleteBackwards(low, high uint64) error {
	for ; high-low >= deleteChunk; high -= deleteChunk {
		if err := w.LogStore.DeleteRange(high-deleteChunk+1, high); err != nil {
			return err
		}
	}
	return w.LogStore.DeleteRange(low, high)
}
