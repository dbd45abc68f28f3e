package raftguard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of leadership transfers (#696).
const (
	// TransferRest is how long no transfer is tried after one that failed. It is longer than the longest back-off
	// of replication, in which raft leaves a transfer pending.
	TransferRest = 15 * time.Second
	// stuckProbe and stuckLimit: this often the flag is looked for, and this many times in a row it may be found
	// while no transfer runs.
	stuckProbe = 2 * time.Second
	stuckLimit = 5
	// probeBarrier bounds one look.
	probeBarrier = time.Second
)

// ErrTransferRunning says that a transfer is running already.
var ErrTransferRunning = errors.New("a leadership transfer is running")

// TransferRestError says that a transfer failed a moment ago.
type TransferRestError struct{ Remaining time.Duration }

func (e *TransferRestError) Error() string {
	return fmt.Sprintf("a leadership transfer has failed; try again in %v", e.Remaining.Round(time.Second))
}

// StuckTransferError says that raft refuses writes because of a transfer that has ended.
type StuckTransferError struct{}

func (*StuckTransferError) Error() string {
	return "raft is stuck in a leadership transfer that ended long ago and refuses all writes"
}

// transferRaft is what a transfer needs of raft.
type transferRaft interface {
	LeadershipTransferToServer(id raft.ServerID, address raft.ServerAddress) raft.Future
	Barrier(timeout time.Duration) raft.Future
	State() raft.RaftState
}

// Transfer hands leadership over, carefully: only to a node that answers, one at a time, and not soon after a failure.
type Transfer struct {
	raft  transferRaft
	probe func(context.Context, raft.Server) error
	fatal func(error)

	mu      sync.Mutex
	running bool
	failed  time.Time
}

// NewTransfer makes a Transfer. Probe asks a node whether it is there. Fatal must end the process.
func NewTransfer(r transferRaft, probe func(context.Context, raft.Server) error, fatal func(error)) *Transfer {
	return &Transfer{raft: r, probe: probe, fatal: fatal}
}

// To hands leadership to a voter and returns when that has ended.
func (t *Transfer) To(ctx context.Context, id raft.ServerID, address raft.ServerAddress) error {
	if err := t.begin(); err != nil {
		return err
	}
	if err := t.probe(ctx, raft.Server{ID: id, Address: address}); err != nil {
		t.end(false)
		return fmt.Errorf("leadership transfer: node %s doesn't answer: %w", id, err)
	}
	err := Await(ctx, t.raft.LeadershipTransferToServer(id, address))
	t.end(err != nil)
	if err != nil {
		return fmt.Errorf("leadership transfer to %s: %w", id, err)
	}
	return nil
}

func (t *Transfer) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !guardTransfer {
		return nil
	}
	if t.running {
		return ErrTransferRunning
	}
	if rest := TransferRest - time.Since(t.failed); rest > 0 && !t.failed.IsZero() {
		return &TransferRestError{rest}
	}
	t.running = true
	return nil
}

func (t *Transfer) end(failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = false
	if failed {
		t.failed = time.Now()
	}
}

// suspect tells whether a transfer has failed, and none runs.
func (t *Transfer) suspect() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.running && !t.failed.IsZero()
}

// Run watches for the flag that a failed transfer can leave behind, which no call of raft shows: a barrier that is
// refused because of a transfer while none runs. A barrier is an entry in the log, so only a leader that has failed
// to hand over before is asked.
func (t *Transfer) Run(ctx context.Context) {
	tick := time.NewTicker(stuckProbe)
	defer tick.Stop()
	stuck := 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !t.stuck(ctx) {
			stuck = 0
			continue
		}
		if stuck++; stuck == stuckLimit {
			t.fatal(&StuckTransferError{})
		}
	}
}

// stuck looks once.
func (t *Transfer) stuck(ctx context.Context) bool {
	if !guardTransfer || t.raft.State() != raft.Leader || !t.suspect() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeBarrier)
	defer cancel()
	err := Await(ctx, t.raft.Barrier(probeBarrier))
	return errors.Is(err, raft.ErrLeadershipTransferInProgress) && t.suspect()
}
