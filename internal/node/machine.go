package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
)

// machine runs the state machine under raft. Raft's apply goroutine owns the state; everybody else reads the view,
// which is a copy that was published after the last batch.
type machine struct {
	log   *slog.Logger
	fatal func(error)
	state *fsm.State
	view  atomic.Pointer[fsm.State]
	// digests remembers what the digest was after each of the last entries.
	digests digests

	mu      sync.Mutex
	changed chan struct{} // closed at the next publication
}

// applied is the response of the apply future of one entry.
type applied struct {
	results []fsm.Result
	err     error
}

func newMachine(log *slog.Logger, fatal func(error)) *machine {
	m := &machine{log: log, fatal: fatal, state: fsm.New(), changed: make(chan struct{})}
	m.publish()
	return m
}

// View returns the state after the last applied batch. It doesn't change.
func (m *machine) View() *fsm.State { return m.view.Load() }

func (m *machine) publish() {
	m.view.Store(m.state.Copy())
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// change returns a channel that is closed when another view is published.
func (m *machine) change() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// WaitApplied waits until a view contains the entry at index, which must be a command, and returns it.
func (m *machine) WaitApplied(ctx context.Context, index uint64) (*fsm.State, error) {
	for {
		next := m.change()
		if v := m.View(); v.Index() >= index {
			return v, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ApplyBatch implements raft.BatchingFSM. Raft hands configuration entries too; each log gets its response.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		results, err := m.state.Apply(l.Index, l.Term, l.Data)
		if err != nil {
			m.log.Error("log entry can't be read; every node skips it", "index", l.Index, "term", l.Term, "error", err)
		}
		m.digests.add(l.Index, m.state.Digest(), claimed(results))
		m.compare(results)
		out[i] = applied{results, err}
	}
	m.publish()
	return out
}

// compare stops a node whose state differs from what a majority has reported.
func (m *machine) compare(results []fsm.Result) {
	for i := range results {
		c := results[i].Claim
		if c == nil || c.Scheme != fsm.DigestScheme {
			continue
		}
		if own, known := m.digests.at(c.Index); known && own != c.Sum {
			m.fatal(doNotRestart("after entry %d the state of this node has digest %016x, a majority of the voters %016x: memory or disk is damaged; remove the node and add it again under a new id", c.Index, own, c.Sum))
		}
	}
}

// claimed tells whether an entry holds nothing but claims.
func claimed(results []fsm.Result) bool {
	for i := range results {
		if results[i].Claim == nil {
			return false
		}
	}
	return len(results) > 0
}

// Apply implements raft.FSM. Raft calls ApplyBatch instead.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// Snapshot implements raft.FSM. It only captures, in O(1); Persist runs beside the next entries.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	return &capture{m.state.Copy(), m.fatal}, nil
}

// Restore implements raft.FSM: the snapshot replaces everything.
func (m *machine) Restore(r io.ReadCloser) error {
	s, err := fsm.ReadSnapshot(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	m.state = s
	m.digests.clear()
	m.publish()
	m.log.Info("snapshot restored", "index", s.Index(), "term", s.Term(), "keys", s.Keys(), "clients", s.Registry().Clients())
	return nil
}

// capture is a state on its way to disk.
type capture struct {
	state *fsm.State
	fatal func(error)
}

// Persist implements raft.FSMSnapshot.
func (c *capture) Persist(sink raft.SnapshotSink) error {
	if err := c.state.WriteSnapshot(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (c *capture) Release() {}
