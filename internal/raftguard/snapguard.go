package raftguard

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// SnapshotGuard keeps log and snapshots of a follower in one piece (#697).
//
// A snapshot at (K, term) proves the prefix of the log up to K. When the log has no entry (K, term), what it has up
// to K isn't that prefix, and must go; entries above K stay for raft, which still remembers its last index: the next
// append cuts them off. GetLog(K) is then answered from memory, so that the leader's next entries find what they
// follow. This is done when the snapshot is complete, and again when the node starts, because a crash may come
// between. It must sit outside any cache of the log.
type SnapshotGuard struct {
	raft.LogStore
	snapshots raft.SnapshotStore

	mu          sync.Mutex
	index, term uint64 // of the newest snapshot
	endsAt      bool   // the log ended exactly at index, with another term
}

// NewSnapshotGuard wraps a log and a snapshot store, and mends what a crash has left.
func NewSnapshotGuard(logs raft.LogStore, snapshots raft.SnapshotStore) (*SnapshotGuard, error) {
	g := &SnapshotGuard{LogStore: logs, snapshots: snapshots}
	list, err := snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) == 0 {
		return g, nil
	}
	return g, g.installed(list[0].Index, list[0].Term)
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

// installed is called when the newest snapshot is at (index, term).
func (g *SnapshotGuard) installed(index, term uint64) error {
	if !guardSnapshot {
		return nil
	}
	var l raft.Log
	err := g.GetLog(index, &l)
	if err == nil && l.Term == term {
		g.remember(index, term, false)
		return nil
	}
	first, last, rangeErr := g.bounds()
	if rangeErr != nil {
		return rangeErr
	}
	g.remember(index, term, err == nil && last == index)
	if first == 0 || first > index {
		return nil
	}
	if err := g.DeleteRange(first, min(last, index)); err != nil {
		return fmt.Errorf("delete the part of the log that differs from the snapshot at %d: %w", index, err)
	}
	return nil
}

func (g *SnapshotGuard) bounds() (first, last uint64, err error) {
	if first, err = g.FirstIndex(); err == nil {
		last, err = g.LastIndex()
	}
	return first, last, err
}

func (g *SnapshotGuard) remember(index, term uint64, endsAt bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.index, g.term, g.endsAt = index, term, endsAt
}

// proves tells whether a message follows the snapshot in a log that ended exactly there with another term. Raft
// compares it with the (index, term) of its last entry in memory, which it never corrects; the snapshot has proved
// that prefix, so the comparison can be dropped.
func (g *SnapshotGuard) proves(req *raft.AppendEntriesRequest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return guardSnapshot && g.endsAt && req.PrevLogEntry == g.index && req.PrevLogTerm == g.term
}

// guardedLogs answers for the index of the newest snapshot with the snapshot's term. It hides whether the inner
// store is monotonic: raft would throw away entries that the guard keeps.
type guardedLogs struct{ *SnapshotGuard }

// IsMonotonic implements raft.MonotonicLogStore.
func (guardedLogs) IsMonotonic() bool { return false }

// GetLog implements raft.LogStore.
func (l guardedLogs) GetLog(index uint64, out *raft.Log) error {
	err := l.LogStore.GetLog(index, out)
	l.mu.Lock()
	defer l.mu.Unlock()
	if index != 0 && index == l.index && (err != nil || out.Term != l.term) {
		*out = raft.Log{Index: l.index, Term: l.term, Type: raft.LogNoop}
		return nil
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
	return &guardedSink{sink, s.guard, index, term}, nil
}

type guardedSink struct {
	raft.SnapshotSink
	guard       *SnapshotGuard
	index, term uint64
}

// Close implements io.Closer: the snapshot is complete.
func (s *guardedSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return s.guard.installed(s.index, s.term)
}
