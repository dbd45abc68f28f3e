package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// A client with nothing unresolved says so when it closes, and leaves nothing behind.
func TestCleanClose(t *testing.T) {
	f := newFakeCluster(t, 3)
	c := f.open()
	require.NoError(t, c.put(soon(t), "k"))
	require.NoError(t, c.Close(soon(t)))
	require.Len(t, f.registry.view().closes, 1)
	require.EqualValues(t, 2, f.registry.view().closes[0].GetFirstOutstanding())
	require.False(t, f.registry.view().closes[0].GetUnresolved())
	require.Empty(t, f.registry.view().clients)
	require.Empty(t, f.registry.view().tombs)
	require.NoError(t, c.Close(soon(t)), "closing again gives the same")

	for name, do := range everyCall(c) {
		err := do(soon(t))
		require.ErrorIs(t, err, ErrClosed, name)
		require.Equal(t, NotApplied, OutcomeOf(err), name)
	}
	require.ErrorIs(t, second(c.Unregistered().Put(soon(t), "k", nil)), ErrClosed)
	require.ErrorIs(t, second(c.Settings(soon(t))), ErrClosed)
	require.ErrorIs(t, second(c.Status(soon(t), f.nodes[0].addr)), ErrClosed)
}

// A client that never wrote has nobody to tell.
func TestCloseUnused(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.nodes[0].stop()
	require.NoError(t, f.open().Close(soon(t)))
}

// A close whose answer was lost is repeated; that the client is unknown then means that it is closed.
func TestCloseIsRepeated(t *testing.T) {
	f := newFakeCluster(t, 1)
	isClose := func(r *kvoncev1.Request) bool { return r.GetClose() != nil }
	f.does(once(isClose, always(cutOff)))
	c := f.open()
	require.NoError(t, c.put(soon(t), "k"))
	require.NoError(t, c.Close(soon(t)))
	require.Len(t, f.requests(isClose), 2)
}

// Close waits for requests that their callers have given up.
func TestCloseWaits(t *testing.T) {
	f := newFakeCluster(t, 1)
	release := make(chan struct{})
	f.does(writes(always(action{apply: true, until: release})))
	c := f.open()
	u := unknown(t, put(c, "k"))
	closed := make(chan error, 1)
	go func() { closed <- c.Close(soon(t)) }()
	require.Eventually(t, func() bool { return c.closing.Load() }, 5*time.Second, time.Millisecond)
	close(release)
	require.NoError(t, <-closed)
	require.False(t, f.registry.view().closes[0].GetUnresolved())
	_, err := u.Wait(soon(t))
	require.NoError(t, err, "the answer outlives the client")
}

// What is unresolved when the time for closing is over is said, to the caller and to the cluster, whose tombstone keeps
// the verdict; calls that wait return.
func TestCloseWithUnresolved(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(writes(always(ignore)))
	c := f.open()
	u := unknown(t, put(c, "given up"))
	waiting := make(chan error, 1)
	go func() { waiting <- c.put(soon(t), "waiting") }()
	require.Eventually(t, func() bool { return len(f.requests(isWrite)) == 2 }, 5*time.Second, time.Millisecond)
	id := c.ClientID()

	err := c.Close(within(t, 200*time.Millisecond))
	var left *UnresolvedError
	require.ErrorAs(t, err, &left)
	require.Equal(t, UnresolvedError{ClientID: id, Unknown: 2, Told: true}, *left)
	require.True(t, f.registry.view().closes[0].GetUnresolved())
	require.EqualValues(t, 1, f.registry.view().closes[0].GetFirstOutstanding())
	require.Contains(t, f.registry.view().tombs, id)
	for _, err := range []error{<-waiting, second(u.Wait(soon(t))), second(u.Cancel(soon(t)))} {
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, Unknown, OutcomeOf(err))
	}
}

// Close never hangs: not without a cluster, nor with one that says nothing, nor when it is closed twice at once.
func TestCloseEnds(t *testing.T) {
	for name, ruin := range map[string]func(*fakeCluster){
		"the cluster is down":   func(f *fakeCluster) { f.nodes[0].stop() },
		"the cluster is silent": func(f *fakeCluster) { f.does(func(*fakeNode, *kvoncev1.Request) action { return ignore }) },
		"everything is refused": func(f *fakeCluster) {
			f.does(func(*fakeNode, *kvoncev1.Request) action { return refuseFor(time.Minute) })
		},
		"nobody is welcomed":     func(f *fakeCluster) { f.nodes[0].silent = true; f.restart() },
		"streams break for ever": func(f *fakeCluster) { f.does(func(*fakeNode, *kvoncev1.Request) action { return drop }) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t, 1)
			c := f.open()
			require.NoError(t, c.put(soon(t), "k"))
			ruin(f)
			waiting := make(chan error, 1)
			go func() { waiting <- c.put(soon(t), "k") }()
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.engine.open == 1
			}, 5*time.Second, time.Millisecond)
			began := time.Now()
			again := make(chan error, 1)
			go func() { again <- c.Close(within(t, 50*time.Millisecond)) }()
			require.Error(t, c.Close(within(t, 100*time.Millisecond)))
			require.Error(t, <-again)
			require.Less(t, time.Since(began), 2*time.Second)
			require.ErrorIs(t, <-waiting, ErrClosed)
		})
	}
}

// A call that was refused and is to be sent again has not been applied when the client closes.
func TestCloseFoldsRefusedCalls(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(writes(func() action { return refuseFor(time.Minute) }))
	c := f.open()
	waiting := make(chan error, 1)
	go func() { waiting <- c.put(context.WithoutCancel(t.Context()), "k") }()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.engine.resends.Len() == 1
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, c.Close(within(t, 100*time.Millisecond)))
	err := <-waiting
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, NotApplied, OutcomeOf(err))
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Option{
		"no endpoints":      WithEndpoints(),
		"an empty endpoint": WithEndpoints("a:1", ""),
		"a long name":       WithName(string(make([]byte, maxNameBytes+1))),
		"no UTF-8":          WithName("\xff"),
		"a negative ttl":    WithTTL(-1),
		"a tiny ttl":        WithTTL(time.Microsecond),
		"a negative bound":  WithMaxUnresolved(-1),
	} {
		_, err := Open(t.Context(), o)
		require.Error(t, err, name)
	}
}
