package raftguard

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// panicGrace is how long a failed write of a term or vote is kept from raft, which panics on it: time for the process
// to end by itself, with a reason and an exit code.
const panicGrace = 5 * time.Second

// StableStoreError says that a term or a vote couldn't be written.
type StableStoreError struct {
	Key string // raft's name for what was to be written
	Err error
}

func (e *StableStoreError) Error() string {
	return fmt.Sprintf("raft's %s can't be written: %v", e.Key, e.Err)
}

// Unwrap returns what the store said.
func (e *StableStoreError) Unwrap() error { return e.Err }

// WatchedStable watches the writes of terms and votes as WatchedLog does those of entries. Raft panics when it can't
// store its term; fatal is called first.
type WatchedStable struct {
	raft.StableStore
	limit time.Duration
	fatal func(error)
}

// NewWatchedStable wraps a stable store. It belongs inside a VoteStore. Fatal gets a *StableStoreError or, while the
// write still hangs after limit, a *DiskStallError.
func NewWatchedStable(inner raft.StableStore, limit time.Duration, fatal func(error)) *WatchedStable {
	return &WatchedStable{StableStore: inner, limit: limit, fatal: fatal}
}

// Set implements raft.StableStore.
func (w *WatchedStable) Set(key, v []byte) error {
	return w.watch(key, func() error { return w.StableStore.Set(key, v) })
}

// SetUint64 implements raft.StableStore.
func (w *WatchedStable) SetUint64(key []byte, v uint64) error {
	return w.watch(key, func() error { return w.StableStore.SetUint64(key, v) })
}

func (w *WatchedStable) watch(key []byte, write func() error) error {
	if !guardStall {
		return write()
	}
	stall := time.AfterFunc(w.limit, func() { w.fatal(&DiskStallError{w.limit}) })
	err := write()
	stall.Stop()
	if err == nil {
		return nil
	}
	failed := &StableStoreError{string(key), err}
	w.fatal(failed)
	<-time.After(panicGrace)
	return failed
}
