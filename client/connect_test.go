package client

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func dialer(f *fakeCluster) grpc.DialOption { return grpc.WithContextDialer(f.dial) }

// counted counts connections by address.
type counted struct {
	f     *fakeCluster
	dials atomic.Int64
}

func (d *counted) dial(ctx context.Context, addr string) (net.Conn, error) {
	d.dials.Add(1)
	return d.f.dial(ctx, addr)
}

// The library goes where the leader is said to be, also when that endpoint was never configured.
func TestLeaderIsFollowed(t *testing.T) {
	f := newFakeCluster(t, 3)
	f.lead("n3")
	c := f.open(WithEndpoints(f.nodes[0].addr))
	r, err := c.Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n3", r.Node)

	f.lead("n2") // the old leader refuses with a hint
	r, err = c.Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n2", r.Node)

	f.nodes[0].stop() // the only configured one
	f.nodes[1].stop()
	f.lead("n3")
	r, err = c.Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n3", r.Node, "addresses from hints are remembered")
}

// Without hints the endpoints are tried in turn.
func TestEndpointsInTurn(t *testing.T) {
	f := newFakeCluster(t, 3)
	f.lead("nobody")
	f.does(func(n *fakeNode, _ *kvoncev1.Request) action {
		if n.id == "n3" {
			return serve
		}
		return refuse(kvoncev1.Code_NOT_READY)
	})
	timing := defaultTiming()
	timing.patience = 10 * time.Millisecond
	r, err := f.open(withTiming(timing)).Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n3", r.Node)
}

// An address that a node gives for the leader and that can't be reached from here is no obstacle.
func TestUnreachableHint(t *testing.T) {
	f := newFakeCluster(t, 2)
	f.does(func(n *fakeNode, _ *kvoncev1.Request) action {
		if n.id == "n2" {
			return serve
		}
		a := refuse(kvoncev1.Code_NOT_LEADER)
		a.answer.Leader = &kvoncev1.Leader{NodeId: "n2", ClientAddress: "127.0.0.1:1"}
		return a
	})
	f.lead("n2 by another name")
	r, err := f.open().Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n2", r.Node)
}

// A pinned client goes nowhere else.
func TestPinnedEndpoints(t *testing.T) {
	f := newFakeCluster(t, 2)
	f.lead("n2")
	c := f.open(WithPinnedEndpoints(f.nodes[0].addr))
	err := c.put(within(t, 100*time.Millisecond), "k")
	require.ErrorIs(t, err, ErrUnavailable)
	require.Equal(t, NotApplied, OutcomeOf(err), err)
	for _, s := range f.requests(func(*kvoncev1.Request) bool { return true }) {
		require.Equal(t, "n1", s.node)
	}
	f.does(func(*fakeNode, *kvoncev1.Request) action { return serve })
	_, err = c.Get(soon(t), "k", Serializable())
	require.ErrorIs(t, err, ErrNotFound)
}

// A node that takes the connection and says nothing doesn't hold up the next one.
func TestHangingEndpoint(t *testing.T) {
	f := newFakeCluster(t, 3)
	f.nodes[0].silent = true
	f.lead("n2")
	began := time.Now()
	r, err := f.open().Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n2", r.Node)
	require.Less(t, time.Since(began), defaultTiming().welcome)
}

// A hint at a leader that says nothing is given up, and the node that gave it is used.
func TestHangingLeader(t *testing.T) {
	timing := defaultTiming()
	timing.welcome = 50 * time.Millisecond
	f := newFakeCluster(t, 2)
	f.nodes[0].silent = true
	f.does(func(*fakeNode, *kvoncev1.Request) action { return serve })
	r, err := f.open(withTiming(timing), WithEndpoints(f.nodes[1].addr)).Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "n2", r.Node)
}

// Nodes that send the client from one to the other don't make it run hot.
func TestHintsInCircles(t *testing.T) {
	f := newFakeCluster(t, 2)
	f.lead("nobody")
	f.does(func(n *fakeNode, _ *kvoncev1.Request) action {
		other := f.nodes[0]
		if n == other {
			other = f.nodes[1]
		}
		a := refuse(kvoncev1.Code_NOT_LEADER)
		a.answer.Leader = &kvoncev1.Leader{NodeId: other.id, ClientAddress: other.addr}
		return a
	})
	d := &counted{f: f}
	c := f.open(WithDialOptions(grpc.WithContextDialer(d.dial)))
	err := c.put(within(t, 500*time.Millisecond), "k")
	require.Equal(t, NotApplied, OutcomeOf(err), err)
	require.Less(t, d.dials.Load(), int64(15))
	require.Less(t, len(f.requests(isRegister)), 15)
}

// A cluster that is down is tried at growing intervals, and found when it is back.
func TestReconnectBacksOff(t *testing.T) {
	f := newFakeCluster(t, 2)
	for _, n := range f.nodes {
		n.stop()
	}
	d := &counted{f: f}
	c := f.open(WithDialOptions(grpc.WithContextDialer(d.dial)))
	err := c.put(within(t, 600*time.Millisecond), "k")
	require.ErrorIs(t, err, ErrUnavailable)
	require.Less(t, d.dials.Load(), int64(20))
	f.nodes[1].start()
	f.lead("n2")
	require.NoError(t, c.put(soon(t), "k"))
}

// Moving to another node waits for the last answers on the old stream, so that a request that is refused there can
// still fold.
func TestOldStreamIsDrained(t *testing.T) {
	f := newFakeCluster(t, 2)
	release := make(chan struct{})
	f.does(func(n *fakeNode, r *kvoncev1.Request) action {
		if n.id == "n2" || isRegister(r) {
			return serve
		}
		a := f.notLeader()
		if string(r.GetWrite().GetCommand().GetPut().GetKey()) == "slow" {
			a.until = release
		}
		return a
	})
	c := f.open(WithEndpoints(f.nodes[0].addr), WithEagerRegistration())
	slow := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { slow <- c.put(ctx, "slow") }()
	require.Eventually(t, func() bool { return len(f.requests(isWrite)) == 1 }, 5*time.Second, time.Millisecond)
	f.lead("n2")
	require.NoError(t, c.put(soon(t), "quick"), "which makes the client move")
	close(release)
	require.NoError(t, <-slow)
	cancel()
	require.Equal(t, "n2", f.requests(isWrite)[len(f.requests(isWrite))-1].node)
}

func TestEndpointsOrder(t *testing.T) {
	now := time.Unix(100, 0)
	e := newEndpoints([]string{"a", "b", "c", "a"}, false)
	require.Equal(t, []string{"a", "b", "c"}, e.round(now))
	require.True(t, e.suggest("d"))
	require.Equal(t, []string{"d", "a", "b", "c"}, e.round(now))
	require.Equal(t, []string{"a", "b", "c", "d"}, e.round(now), "a hint counts once")
	e.failed("a", now)
	e.leave("b", now.Add(time.Second))
	require.Equal(t, []string{"c", "d", "a", "b"}, e.round(now), "the longest unused first")
	require.True(t, e.suggest("a"))
	require.Equal(t, []string{"c", "d", "a", "b"}, e.round(now.Add(hintRest/2)), "a hint at what has just failed isn't followed")
	require.True(t, e.suggest("b"))
	require.Equal(t, []string{"b", "c", "d", "a"}, e.round(now.Add(time.Second)))
	for i := range 40 {
		e.suggest(string(rune('A' + i)))
	}
	require.Len(t, e.learned, maxLearned)
	require.False(t, newEndpoints([]string{"a"}, true).suggest("b"))
}

func TestBackoff(t *testing.T) {
	b := backoff{50 * time.Millisecond, 2 * time.Second}
	for n, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000} {
		for range 50 {
			d := b.delay(n)
			require.GreaterOrEqual(t, d, want*time.Millisecond/2)
			require.LessOrEqual(t, d, want*time.Millisecond)
		}
	}
	require.LessOrEqual(t, b.delay(1<<40), 2*time.Second)
}
