package localcluster_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/localcluster"
	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
)

// answered waits until a node has one leader and serves again.
func answered(t *testing.T, c *localcluster.Cluster, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s, err := c.Status(within(t, time.Second), id)
		return err == nil && s.Ready
	}, clustertest.ReadyTimeout, 20*time.Millisecond, "%s", c.Node(id).LogTail())
}

// A node can be stopped, killed, paused and started, and the others go on.
func TestNodesComeAndGo(t *testing.T) {
	clustertest.Exclusive(t)
	c := clustertest.Start(t, localcluster.Config{})
	leader, status, err := c.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, leader.ID(), status.NodeId)
	require.Len(t, status.Members, 3)

	exit, err := leader.Stop(within(t, 15*time.Second))
	require.NoError(t, err)
	require.Equal(t, 0, exit.Code, exit.Text)
	require.Zero(t, leader.State().PID)
	next := clustertest.WaitReady(t, c)
	require.NotEqual(t, leader.ID(), next.ID(), "a stopped node hands leadership over")
	_, err = c.Status(within(t, time.Second), leader.ID())
	require.Error(t, err)
	require.NoError(t, leader.Start(t.Context()))
	answered(t, c, leader.ID())

	exit, err = next.Kill(within(t, 5*time.Second))
	require.NoError(t, err)
	require.Equal(t, -1, exit.Code, exit.Text)
	require.NoError(t, next.Start(t.Context()))
	paused := clustertest.WaitReady(t, c)
	require.NoError(t, paused.Pause(t.Context()))
	require.Eventually(t, func() bool {
		l, _, err := c.Leader(t.Context())
		return err == nil && l != paused
	}, 20*time.Second, 50*time.Millisecond, "a paused leader is replaced")
	require.NoError(t, paused.Continue(t.Context()))
	clustertest.WaitReady(t, c)
	_, err = c.Status(t.Context(), "n9")
	require.ErrorContains(t, err, `no node "n9"`)
}

// A killed leader is replaced, and comes back by itself.
func TestKillLeader(t *testing.T) {
	clustertest.Exclusive(t)
	c := clustertest.Start(t, localcluster.Config{RestartDelay: 100 * time.Millisecond})
	for range 2 {
		f, err := c.KillLeader(within(t, clustertest.ReadyTimeout))
		require.NoError(t, err)
		require.NotZero(t, f.PID)
		require.Positive(t, f.After)
		answered(t, c, f.Killed.ID())
		require.NotEqual(t, f.PID, f.Killed.State().PID)
	}
}

// G2: a node whose folder was emptied takes no part, and the rest serves.
func TestG2EmptiedNodeIsGivenUp(t *testing.T) {
	clustertest.Exclusive(t)
	config := localcluster.Config{RestartDelay: 50 * time.Millisecond, DataDir: t.TempDir(), BasePort: clustertest.FreePorts(t, 3)}
	c, stop := clustertest.StartUntil(t, config)
	stop()
	require.NoError(t, os.RemoveAll(c.Node("n1").DataDir()))

	c, _ = clustertest.StartUntil(t, config)
	n := c.Node("n1")
	require.Eventually(t, func() bool { return n.State().GaveUp }, clustertest.ReadyTimeout, 20*time.Millisecond)
	require.Equal(t, 10, n.State().Last.Code)
	require.Contains(t, n.LogTail(), "under a new id", "it says the way out")
	leader := clustertest.WaitReady(t, c)
	require.NotEqual(t, "n1", leader.ID())
}

// Ports that somebody has are found before any node is started.
func TestPortsInUse(t *testing.T) {
	clustertest.Exclusive(t)
	config := localcluster.Config{Nodes: 1, DataDir: t.TempDir(), BasePort: clustertest.FreePorts(t, 1), Binary: clustertest.Build(t)}
	clustertest.Start(t, config)
	config.DataDir = t.TempDir()
	other, err := localcluster.New(config)
	require.NoError(t, err)
	require.ErrorContains(t, other.Run(t.Context()), "another --base-port may be free")
	require.NoDirExists(t, other.Node("n1").DataDir())
	_, err = other.WaitReady(t.Context())
	require.ErrorIs(t, err, localcluster.ErrNotRunning)
}
