package raftguard

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/hashicorp/raft"
)

// placeholder is the type of the entry that stands for a snapshot's last one. Raft reads only its index and term; a
// type that it doesn't know makes it stop, should it ever try to apply the entry.
const placeholder raft.LogType = math.MaxUint8

// position is a place in the log.
type position struct{ index, term uint64 }

// SnapshotGuard keeps log and snapshots of a follower in one piece (#697).
//
// A snapshot at (K, term) proves the prefix of the log up to K. When the log has no entry (K, term), what it has up
// to K isn't that prefix, and must go; entries above K stay for raft, which still remembers its last index: the next
// append cuts them off. GetLog(K) is then answered from memory, so that the leader's next entries find what they
// follow. This is done when the snapshot is complete, and again when the node starts, because a crash may come
// between. It must sit outside any cache of the log, so that the cache forgets what is deleted.
//
// Snapshots that this node takes itself come by as well: their log has the entry, or has compacted it already, and
// there is nothing to delete.
type SnapshotGuard struct {
	raft.LogStore
	snapshots raft.SnapshotStore

	mu     sync.Mutex
	newest position // of the newest snapshot
	tail   position // the last entry as raft remembers it: what it last stored, or found when it started
}

// NewSnapshotGuard wraps a log and a snapshot store, and mends what a crash has left.
func NewSnapshotGuard(logs raft.LogStore, snapshots raft.SnapshotStore) (*SnapshotGuard, error) {
	g := &SnapshotGuard{LogStore: logs, snapshots: snapshots}
	list, err := snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) > 0 {
		if err := g.complete(position{list[0].Index, list[0].Term}); err != nil {
			return nil, err
		}
	}
	return g, g.readTail()
}

// Logs returns the guarded log store.
func (g *SnapshotGuard) Logs() raft.LogStore {
	if !guardSnapshot {
		return g.LogStore
	}
	return guardedLogs{g}
}

// Snapshots returns the guarded snapshot store.
func (g *SnapshotGuard) Snapshots() raft.SnapshotStore {
	if !guardSnapshot {
		return g.snapshots
	}
	return guardedSnapshots{g.snapshots, g}
}

// complete is called when there is a snapshot at p, on disk.
func (g *SnapshotGuard) complete(p position) error {
	if !guardSnapshot || !g.advance(p) {
		return nil
	}
	var l raft.Log
	err := g.GetLog(p.index, &l)
	switch {
	case err == nil && l.Term == p.term:
		return nil
	case err != nil && !errors.Is(err, raft.ErrLogNotFound):
		return fmt.Errorf("compare the log with the snapshot at %d: %w", p.index, err)
	}
	return g.discard(p.index)
}

// advance makes p the newest snapshot, unless a newer one is there: one that this node takes may be complete after
// one that it was sent.
func (g *SnapshotGuard) advance(p position) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.index < g.newest.index {
		return false
	}
	g.newest = p
	return true
}

// discard deletes the log up to index.
func (g *SnapshotGuard) discard(index uint64) error {
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	if first == 0 || first > index {
		return nil
	}
	if err := g.DeleteRange(first, min(last, index)); err != nil {
		return fmt.Errorf("delete the part of the log that differs from the snapshot at %d: %w", index, err)
	}
	return nil
}

// readTail finds what raft is going to remember as its last entry.
func (g *SnapshotGuard) readTail() error {
	last, err := g.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	var l raft.Log
	if err := g.GetLog(last, &l); err != nil {
		return fmt.Errorf("read the last entry of the log: %w", err)
	}
	g.remember(l)
	return nil
}

func (g *SnapshotGuard) remember(l raft.Log) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tail = position{l.Index, l.Term}
}

// proves tells whether a message follows the snapshot in a log that ended exactly there with another term. Raft
// compares the message with its last entry in memory, which a snapshot doesn't correct; the snapshot has proved that
// prefix, so the comparison can be dropped.
func (g *SnapshotGuard) proves(req *raft.AppendEntriesRequest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	follows := g.newest == position{req.PrevLogEntry, req.PrevLogTerm}
	return guardSnapshot && follows && g.tail.index == g.newest.index && g.tail.term != g.newest.term
}

// standsFor tells whether the newest snapshot answers for an entry that the log hasn't got. Never for the first
// entry: raft looks it up to send it, not to compare it.
func (g *SnapshotGuard) standsFor(index uint64) (position, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest, index > 1 && index == g.newest.index
}

// guardedLogs answers for the index of the newest snapshot with the snapshot's term. It hides whether the inner
// store is monotonic: raft would throw away entries that the guard keeps.
type guardedLogs struct{ *SnapshotGuard }

// IsMonotonic implements raft.MonotonicLogStore.
func (guardedLogs) IsMonotonic() bool { return false }

// GetLog implements raft.LogStore.
func (l guardedLogs) GetLog(index uint64, out *raft.Log) error {
	err := l.LogStore.GetLog(index, out)
	p, ok := l.standsFor(index)
	if ok && (errors.Is(err, raft.ErrLogNotFound) || err == nil && out.Term != p.term) {
		*out = raft.Log{Index: p.index, Term: p.term, Type: placeholder}
		return nil
	}
	return err
}

// StoreLog implements raft.LogStore.
func (l guardedLogs) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (l guardedLogs) StoreLogs(entries []*raft.Log) error {
	err := l.LogStore.StoreLogs(entries)
	if err == nil && len(entries) > 0 {
		l.remember(*entries[len(entries)-1])
	}
	return err
}

// guardedSnapshots watches for snapshots that become complete.
type guardedSnapshots struct {
	raft.SnapshotStore
	guard *SnapshotGuard
}

// Create implements raft.SnapshotStore.
func (s guardedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, index, term, c, at, t)
	if err != nil {
		return nil, err
	}
	return &guardedSink{sink, s.guard, position{index, term}}, nil
}

type guardedSink struct {
	raft.SnapshotSink
	guard *SnapshotGuard
	at    position
}

// Close implements io.Closer: the snapshot is complete.
func (s *guardedSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return s.guard.complete(s.at)
}
