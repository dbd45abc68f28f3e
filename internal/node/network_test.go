package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// netCluster runs whole nodes, with folders and ports, in one process.
type netCluster struct {
	t     testing.TB
	nodes []*netNode
}

type netNode struct {
	config Config
	node   *Node
	stop   context.CancelFunc
	ended  chan error
	conn   *grpc.ClientConn
}

func newNetCluster(t testing.TB, n int) *netCluster {
	c := &netCluster{t: t}
	dir := t.TempDir()
	var peers []Peer
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		conf := Config{ID: id, DataDir: filepath.Join(dir, id), ClusterName: "test", Settings: fsm.DefaultSettings(), Tuning: testTuning(),
			ListenClient: freePort(t), ListenRaft: freePort(t), ListenHTTP: freePort(t), Version: "test"}
		if os.Getenv("KVONCE_TEST_LOG") != "" {
			conf.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", id)
		}
		peers = append(peers, Peer{id, conf.ListenRaft})
		conn, err := grpc.NewClient(conf.ListenClient, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		c.nodes = append(c.nodes, &netNode{config: conf, conn: conn})
	}
	for _, m := range c.nodes {
		m.config.InitialCluster = append([]Peer(nil), peers...)
	}
	t.Cleanup(func() {
		for _, m := range c.nodes {
			if m.stop != nil {
				require.NoError(t, c.halt(m))
			}
		}
	})
	return c
}

func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

func (c *netCluster) start(nodes ...*netNode) {
	for _, m := range nodes {
		n, err := New(m.config)
		require.NoError(c.t, err)
		ctx, cancel := context.WithCancel(context.Background())
		m.node, m.stop, m.ended = n, cancel, make(chan error, 1)
		go func() { m.ended <- n.Run(ctx) }()
	}
}

// halt stops a node gracefully and returns what Run said.
func (c *netCluster) halt(m *netNode) error {
	m.stop()
	m.stop = nil
	select {
	case err := <-m.ended:
		return err
	case <-time.After(15 * time.Second):
		c.t.Fatal("the node doesn't stop")
		return nil
	}
}

func (m *netNode) status(ctx context.Context) (*kvoncev1.StatusResponse, error) {
	return kvoncev1.NewClusterClient(m.conn).Status(ctx, &kvoncev1.StatusRequest{})
}

// ready waits until a node serves and knows the addresses of all.
func (c *netCluster) ready(nodes ...*netNode) {
	c.t.Helper()
	for _, m := range nodes {
		require.Eventually(c.t, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s, err := m.status(ctx)
			return err == nil && s.Ready && s.Leader.GetClientAddress() != ""
		}, 30*time.Second, 20*time.Millisecond, "%s isn't ready", m.config.ID)
	}
}

// call sends one request to the leader, wherever it is now, until it is not refused.
func (c *netCluster) call(r *kvoncev1.Request) *kvoncev1.Response {
	c.t.Helper()
	var out *kvoncev1.Response
	require.Eventually(c.t, func() bool {
		for _, m := range c.nodes {
			if m.stop == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			resp, err := kvoncev1.NewKVClient(m.conn).Call(ctx, &kvoncev1.CallRequest{Hello: &kvoncev1.Hello{}, Request: r})
			cancel()
			if err == nil && resp.Response.GetOutcome() != kvoncev1.Outcome_REFUSED {
				out = resp.Response
				return true
			}
		}
		return false
	}, 20*time.Second, 20*time.Millisecond)
	return out
}

func put(key, value string) *kvoncev1.Request {
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Unregistered{Unregistered: &kvoncev1.Command{Kind: &kvoncev1.Command_Put{
		Put: &kvoncev1.Put{Key: []byte(key), Value: []byte(value)}}}}}
}

func get(key string) *kvoncev1.Request {
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Read{Read: &kvoncev1.Read{Kind: &kvoncev1.Read_Get{Get: &kvoncev1.Get{Key: []byte(key)}}}}}
}

func TestNodesStartStopAndKeepTheirData(t *testing.T) {
	c := newNetCluster(t, 3)
	c.start(c.nodes...)
	c.ready(c.nodes...)
	require.Equal(t, kvoncev1.Code_OK, c.call(put("k", "olá")).Code)
	for _, m := range c.nodes {
		require.NoError(t, c.halt(m))
	}
	c.start(c.nodes...)
	c.ready(c.nodes...)
	require.Equal(t, "olá", string(c.call(get("k")).GetRead().Kvs[0].Value))
}

func TestG2EmptiedNodeTakesNoPart(t *testing.T) {
	for _, emptied := range []int{0, 2} { // the node that decided, and another
		t.Run(fmt.Sprint("n", emptied+1), func(t *testing.T) {
			c := newNetCluster(t, 3)
			c.start(c.nodes...)
			c.ready(c.nodes...)
			m := c.nodes[emptied]
			require.NoError(t, c.halt(m))
			require.NoError(t, os.RemoveAll(m.config.DataDir))
			c.start(m)
			err := <-m.ended
			m.stop = nil
			require.Equal(t, ExitDoNotRestart, ExitCode(err), "%v", err)
			require.ErrorContains(t, err, "under a new id")
			require.Equal(t, kvoncev1.Code_OK, c.call(put("k", "v")).Code, "the others go on")
		})
	}
}

func TestG2LostRaftFolderIsRefused(t *testing.T) {
	c := newNetCluster(t, 1)
	c.start(c.nodes...)
	c.ready(c.nodes...)
	m := c.nodes[0]
	require.NoError(t, c.halt(m))
	require.NoError(t, os.RemoveAll(filepath.Join(m.config.DataDir, raftFolder)))
	c.start(m)
	err := <-m.ended
	m.stop = nil
	require.Equal(t, ExitDoNotRestart, ExitCode(err), "%v", err)
}

func TestSecondProcessOnADataFolder(t *testing.T) {
	c := newNetCluster(t, 1)
	c.start(c.nodes...)
	c.ready(c.nodes...)
	other := c.nodes[0].config
	other.ListenClient, other.ListenRaft, other.AdvertiseRaft = freePort(t), freePort(t), ""
	other.InitialCluster = []Peer{{"n1", other.ListenRaft}}
	n, err := New(other)
	require.NoError(t, err)
	require.ErrorContains(t, n.Run(context.Background()), fmt.Sprintf("in use by another process (pid %d)", os.Getpid()))
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	c := newNetCluster(t, 1)
	m := c.nodes[0]
	c.start(m)
	c.ready(m)
	require.Equal(t, kvoncev1.Code_OK, c.call(put("k", "v")).Code)
	require.NoError(t, m.node.core.Load().Snapshot(context.Background()))
	files, err := filepath.Glob(filepath.Join(m.config.DataDir, raftFolder, "snapshots", "*-*", "state.bin"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, c.halt(m))
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	c.start(m)
	err = <-m.ended
	m.stop = nil
	require.Equal(t, ExitDoNotRestart, ExitCode(err), "%v", err)
	require.ErrorContains(t, err, "under a new id")
}

func TestSnapshotIsTakenByBytes(t *testing.T) {
	c := newNetCluster(t, 1)
	m := c.nodes[0]
	m.config.Tuning.SnapshotBytes = 1 << 20
	c.start(m)
	c.ready(m)
	for i := range 3 {
		require.Equal(t, kvoncev1.Code_OK, c.call(put(fmt.Sprint(i), string(make([]byte, 1<<19)))).Code)
	}
	require.Eventually(t, func() bool {
		s, err := m.status(context.Background())
		return err == nil && s.SnapshotIndex > 0
	}, 10*time.Second, 20*time.Millisecond)
}
