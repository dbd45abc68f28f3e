package raftguard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of leadership transfers (#696).
const (
	// TransferRest is how long no transfer is tried after one that failed. It is longer than the longest back-off
	// of replication, in which raft leaves a transfer pending.
	TransferRest = 15 * time.Second
	// MaxTransportTimeout is the most that the timeout of raft's transport should be. A transfer that failed ends for
	// raft only when its last message has been answered or timed out.
	MaxTransportTimeout = 4 * time.Second
	// stuckProbe and stuckLimit: this often the flag is looked for, and at the stuckLimit-th time in a row that it is
	// found while no transfer runs it is stuck. Together they are longer than MaxTransportTimeout.
	stuckProbe = 2 * time.Second
	stuckLimit = 5
	// stuckWait bounds one look.
	stuckWait = time.Second
	// noSuchIndex is where no configuration was ever stored.
	noSuchIndex = math.MaxUint64
)

// ErrTransferRunning says that a transfer is running already.
var ErrTransferRunning = errors.New("a leadership transfer is running")

// TransferRestError says that a transfer failed a moment ago, and how long none is tried.
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
	DemoteVoter(id raft.ServerID, prevIndex uint64, timeout time.Duration) raft.IndexFuture
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

// To hands leadership to a voter and returns when that has ended. Its errors are ErrTransferRunning, a
// *TransferRestError, what the probe said, or what raft said. A transfer that ctx ends counts as failed; raft ends it
// after its election timeout.
func (t *Transfer) To(ctx context.Context, id raft.ServerID, address raft.ServerAddress) error {
	if err := t.begin(); err != nil {
		return err
	}
	if err := t.probe(ctx, raft.Server{ID: id, Address: address}); err != nil {
		t.end(false)
		return fmt.Errorf("leadership transfer: node %s doesn't answer: %w", id, err)
	}
	err := Await(ctx, t.raft.LeadershipTransferToServer(id, address))
	t.end(err != nil && !errors.Is(err, raft.ErrNotLeader)) // a follower has tried nothing
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

func (t *Transfer) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.running
}

// Run watches for the flag that a failed transfer can leave behind, until ctx ends. No call of raft shows it, but
// raft refuses changes because of a transfer while none runs.
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

// stuck looks once, by a change of configuration that can't succeed: raft looks at the flag first, and then finds that
// the change was made for another configuration than the present one. Nothing is written, as it would be for a
// barrier, so that an idle cluster stays idle.
func (t *Transfer) stuck(ctx context.Context) bool {
	if !guardTransfer || t.raft.State() != raft.Leader || !t.idle() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*stuckWait)
	defer cancel()
	err := Await(ctx, t.raft.DemoteVoter("", noSuchIndex, stuckWait))
	return errors.Is(err, raft.ErrLeadershipTransferInProgress) && t.idle()
}
