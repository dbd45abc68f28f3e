package raftguard

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

var errDead = errors.New("no answer")

func reachable(context.Context, raft.Server) error   { return nil }
func unreachable(context.Context, raft.Server) error { return errDead }

// TestStuckTransfer is hashicorp/raft #696: two transfers to a dead node, and a loss of leadership, leave a later
// leader that refuses all writes. With the guard there is no second transfer; and where raft is stuck already, the
// watchdog finds it, without writing anything.
func TestStuckTransfer(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		r, b := leaderWithDeadPeer(t)
		transfer := NewTransfer(r, reachable, func(error) {}) // the node died after the probe
		hand := func() error { return Await(within(t, patience), r.LeadershipTransferToServer("d", "d")) }
		if guarded {
			hand = func() error { return transfer.To(within(t, patience), "d", "d") }
		}
		require.ErrorContains(t, hand(), "timeout")
		require.Error(t, hand())
		depose(t, r, b)
		require.NoError(t, b.TimeoutNow("a", "a", &raft.TimeoutNowRequest{RPCHeader: header("b")}, &raft.TimeoutNowResponse{}))
		require.Eventually(t, func() bool { return r.State() == raft.Leader }, patience, moment)
		before := r.LastIndex()
		if !guarded {
			require.Never(t, func() bool { return !transfer.stuck(t.Context()) }, 300*time.Millisecond, moment, "the fault shows")
			err := Await(within(t, patience), r.Apply([]byte("x"), time.Second))
			require.ErrorIs(t, err, raft.ErrLeadershipTransferInProgress)
			return
		}
		require.Eventually(t, func() bool { return r.CommitIndex() >= before }, patience, moment)
		require.False(t, transfer.stuck(t.Context()))
		require.Equal(t, before, r.LastIndex(), "to look for it writes nothing")
		require.NoError(t, Await(within(t, patience), r.Apply([]byte("x"), time.Second)))
	})
}

// leaderWithDeadPeer makes a the leader of a, b and d, which lacks an entry and never answers.
func leaderWithDeadPeer(t *testing.T) (*raft.Raft, *peer) {
	t.Helper()
	_, inner := raft.NewInmemTransportWithTimeout("a", time.Minute)
	trs := inmem("b", "d")
	for _, tr := range trs {
		inner.Connect(tr.LocalAddr(), tr)
		tr.Connect("a", inner)
	}
	b, d := newPeer(t, "b", trs[0]), newPeer(t, "d", trs[1])
	d.set(silent)
	n := newNode("a", inner)
	n.config = testConfig("a", 100*time.Millisecond)
	n.config.HeartbeatTimeout, n.config.ElectionTimeout = longTimers, longTimers
	n.bootstrap(t, voters("a", "b", "d"))
	r := n.start(t)
	elect(t, r, b, "a", "a")
	require.NoError(t, r.ReloadConfig(raft.ReloadableConfig{TrailingLogs: 10240, SnapshotInterval: longTimers,
		SnapshotThreshold: 8192, HeartbeatTimeout: 100 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond}))
	require.NoError(t, Await(within(t, patience), r.Apply([]byte("x"), time.Second)))
	return r, b
}

// depose makes a step down by a message of a newer leader.
func depose(t *testing.T, r *raft.Raft, b *peer) {
	t.Helper()
	req := &raft.AppendEntriesRequest{RPCHeader: header("b"), Term: r.CurrentTerm() + 1}
	require.NoError(t, b.AppendEntries("a", "a", req, &raft.AppendEntriesResponse{}))
	require.Eventually(t, func() bool { return r.State() != raft.Leader }, patience, moment)
}

// answered is a future with its answer.
type answered struct{ err error }

func (a answered) Error() error { return a.err }
func (answered) Index() uint64  { return 0 }

// raftStub answers transfers and looks as a test says.
type raftStub struct {
	mu        sync.Mutex
	state     raft.RaftState
	transfers int
	looks     int
	transfer  raft.Future
	look      error
}

func (r *raftStub) LeadershipTransferToServer(raft.ServerID, raft.ServerAddress) raft.Future {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transfers++
	return r.transfer
}

func (r *raftStub) DemoteVoter(raft.ServerID, uint64, time.Duration) raft.IndexFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	return answered{r.look}
}

func (r *raftStub) State() raft.RaftState { return r.state }

func TestTransferRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &raftStub{transfer: answered{errors.New("leadership transfer timeout")}}
		transfer := NewTransfer(r, reachable, nil)
		ctx := context.Background()
		require.ErrorContains(t, transfer.To(ctx, "b", "b"), "timeout")
		<-time.After(5 * time.Second)
		var rest *TransferRestError
		require.ErrorAs(t, transfer.To(ctx, "c", "c"), &rest)
		require.Equal(t, 10*time.Second, rest.Remaining)
		require.Equal(t, 1, r.transfers, "raft wasn't asked")
		<-time.After(rest.Remaining)
		r.transfer = answered{}
		require.NoError(t, transfer.To(ctx, "c", "c"))
		require.NoError(t, transfer.To(ctx, "c", "c"), "none after one that succeeded")
		r.transfer = answered{raft.ErrNotLeader}
		require.ErrorIs(t, transfer.To(ctx, "c", "c"), raft.ErrNotLeader)
		require.ErrorIs(t, transfer.To(ctx, "c", "c"), raft.ErrNotLeader, "nor after one that a follower refused")
	})
}

func TestTransferProbesFirst(t *testing.T) {
	r := &raftStub{transfer: answered{}}
	transfer := NewTransfer(r, unreachable, nil)
	require.ErrorIs(t, transfer.To(context.Background(), "d", "d"), errDead)
	require.ErrorIs(t, transfer.To(context.Background(), "d", "d"), errDead, "a probe that fails isn't a failed transfer")
	require.Zero(t, r.transfers)
}

func TestOneTransferAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := make(promise)
		r := &raftStub{transfer: pending}
		transfer := NewTransfer(r, reachable, nil)
		first := make(chan error, 1)
		go func() { first <- transfer.To(context.Background(), "b", "b") }()
		synctest.Wait()
		require.ErrorIs(t, transfer.To(context.Background(), "c", "c"), ErrTransferRunning)
		pending <- nil
		require.NoError(t, <-first)

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, transfer.To(ctx, "b", "b"), ErrAbandoned)
		var rest *TransferRestError
		require.ErrorAs(t, transfer.To(context.Background(), "b", "b"), &rest, "one that was given up may go on")
		pending <- nil
	})
}

func TestWatchdog(t *testing.T) {
	refused := raft.ErrLeadershipTransferInProgress
	for name, c := range map[string]struct {
		state   raft.RaftState
		answers []error
		fatal   bool
	}{
		"stuck":                  {raft.Leader, []error{refused, refused, refused, refused, refused}, true},
		"not long enough":        {raft.Leader, []error{refused, refused, refused, refused}, false},
		"not in a row":           {raft.Leader, []error{refused, refused, errDead, refused, refused, refused, refused}, false},
		"healthy":                {raft.Leader, []error{errDead, errDead, errDead, errDead, errDead, errDead}, false},
		"a follower can't tell":  {raft.Follower, []error{refused, refused, refused, refused, refused}, false},
		"told once, not forever": {raft.Leader, []error{refused, refused, refused, refused, refused, refused, refused}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &raftStub{state: c.state}
				var reasons []error
				transfer := NewTransfer(r, reachable, func(err error) { reasons = append(reasons, err) })
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { transfer.Run(ctx); close(done) }()
				<-time.After(stuckProbe / 2)
				for _, answer := range c.answers {
					r.mu.Lock()
					r.look = answer
					r.mu.Unlock()
					<-time.After(stuckProbe)
				}
				cancel()
				<-done
				if !c.fatal {
					require.Empty(t, reasons)
					return
				}
				require.Equal(t, []error{&StuckTransferError{}}, reasons)
			})
		})
	}
}

// TestWatchdogLeavesOwnTransfersAlone: while a transfer runs raft is right to refuse.
func TestWatchdogLeavesOwnTransfersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := make(promise)
		r := &raftStub{state: raft.Leader, transfer: pending, look: raft.ErrLeadershipTransferInProgress}
		transfer := NewTransfer(r, reachable, func(err error) { t.Errorf("fatal: %v", err) })
		ctx, cancel := context.WithCancel(context.Background())
		running := make(chan struct{})
		go func() { transfer.Run(ctx); close(running) }()
		ended := make(chan error, 1)
		go func() { ended <- transfer.To(context.Background(), "b", "b") }()
		<-time.After(10 * stuckProbe)
		require.Zero(t, r.looks)
		pending <- nil
		require.NoError(t, <-ended)
		cancel()
		<-running
	})
}
