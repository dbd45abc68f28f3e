package raftguard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// promise is a future that a test resolves.
type promise chan error

func (p promise) Error() error { return <-p }

func TestAwait(t *testing.T) {
	resolved := make(promise, 1)
	resolved <- nil
	require.NoError(t, Await(context.Background(), resolved))
	resolved <- raft.ErrNotLeader
	require.ErrorIs(t, Await(context.Background(), resolved), raft.ErrNotLeader)

	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("shutting down")
	cancel(why)
	never := make(promise)
	err := Await(ctx, never)
	require.ErrorIs(t, err, ErrAbandoned)
	require.ErrorIs(t, err, why)
	close(never)
}

// TestApplyAfterShutdown is #498: with BatchApplyCh some calls made after Shutdown are queued where nobody reads. A
// bare wait for their futures never ends; every guarded one does, and says that the outcome is unknown (G4).
func TestApplyAfterShutdown(t *testing.T) {
	n := newNode("a", inmem("a")[0])
	n.config = testConfig("a", 50*time.Millisecond)
	n.config.BatchApplyCh = true
	n.bootstrap(t, voters("a"))
	r := n.start(t)
	require.Eventually(t, func() bool { return r.State() == raft.Leader }, patience, moment)
	f := r.Apply([]byte("x"), time.Second)
	require.NoError(t, Await(within(t, patience), f))
	require.Equal(t, 1, f.Response())
	require.NoError(t, Await(within(t, patience), r.Shutdown()))

	bare := make(chan struct{}, 64)
	abandoned := 0
	ctx := within(t, 200*time.Millisecond)
	for range cap(bare) {
		go func(f raft.Future) { _ = f.Error(); bare <- struct{}{} }(r.Apply([]byte("x"), time.Second))
		err := Await(ctx, r.Apply([]byte("x"), time.Second))
		require.Error(t, err)
		if errors.Is(err, ErrAbandoned) {
			abandoned++
		} else {
			require.ErrorIs(t, err, raft.ErrRaftShutdown)
		}
	}
	<-ctx.Done()
	require.Less(t, len(bare), cap(bare), "the fault shows: some bare waits are still there")
	require.Positive(t, abandoned)
}
