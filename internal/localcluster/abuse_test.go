package localcluster_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/localcluster"
)

// ports returns all ports of a cluster.
func ports(c *localcluster.Cluster) (list []string) {
	for _, n := range c.Nodes() {
		list = append(list, n.ClientAddress(), n.RaftAddress(), n.HTTPAddress())
	}
	return list
}

// A thousand connections that say nothing, or half of something, on every kind of port don't keep the cluster from
// serving (rqlite #2686, hashicorp/raft #12 of hraftd: HTTP sent to the raft port).
func TestSilentConnectionsDisturbNobody(t *testing.T) {
	c := start(t)
	k := open(t, c)
	var held []net.Conn
	defer func() {
		for _, conn := range held {
			_ = conn.Close() // the node may have closed it before
		}
	}()
	for i := range 1000 {
		conn, err := net.Dial("tcp", ports(c)[i%9])
		require.NoError(t, err)
		held = append(held, conn)
		if i%3 == 0 {
			_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n")) // a node that hangs up at once is right too
		}
	}
	l := startLoad(k, "n", 16)
	l.progress(t, 2000)
	_, err := c.KillLeader(within(t, 30*time.Second)) // an election works beside them
	require.NoError(t, err)
	l.progress(t, 500)
	l.finish(t, k, "n")
}

func TestRandomBytesOnEveryPort(t *testing.T) {
	c := start(t)
	k := open(t, c)
	l := startLoad(k, "n", 16)
	var sent atomic.Int64
	for range 20 {
		for _, address := range ports(c) {
			for _, head := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "KVR1\xff\xff\xff\xff", "KVR1\x00\x00\x00\x10"} {
				b := make([]byte, 512)
				_, _ = rand.Read(b) // never fails
				sent.Add(hurl(t, address, append([]byte(head), b...)))
			}
		}
	}
	l.progress(t, 500)
	l.finish(t, k, "n")
	require.Positive(t, sent.Load())
	for _, n := range c.Nodes() {
		require.NotZero(t, n.State().PID, "%s must be up", n.ID())
		s, err := n.Status(within(t, 5*time.Second))
		require.NoError(t, err)
		require.True(t, s.Ready)
	}
}

// hurl sends bytes and waits for the other end to hang up, or a moment. It returns how many bytes were taken.
func hurl(t *testing.T, address string, b []byte) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Millisecond)))
	n, _ := conn.Write(b)            // it may hang up in the middle
	_, _ = io.Copy(io.Discard, conn) // until it does, or the deadline comes
	require.NoError(t, conn.Close())
	return int64(n)
}

// While the leader is paused a follower's linearizable read is right or an error, and works again after the election.
func TestG5FollowerReadsWhileTheLeaderIsPaused(t *testing.T) {
	c := start(t)
	l, err := c.WaitReady(within(t, 30*time.Second))
	require.NoError(t, err)
	writeElsewhere(t, c, nil, "1")
	require.NoError(t, l.Pause(within(t, time.Second)))
	for _, n := range c.Nodes() {
		if n == l {
			continue
		}
		k := openPinned(t, n)
		got, err := k.Get(within(t, 20*time.Second), "k") // retried until the election is over
		require.NoError(t, err)
		require.Equal(t, "1", string(got.Value))
		require.Equal(t, n.ID(), got.Node, "the answer names the follower")
	}
	writeElsewhere(t, c, l, "2")
	require.NoError(t, l.Continue(within(t, time.Second)))
	got, err := openPinned(t, l).Get(within(t, 20*time.Second), "k")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(2), string(got.Value))
}
