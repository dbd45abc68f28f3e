package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// memCluster is a cluster of cores in one process, with a network and stores in memory.
type memCluster struct {
	t     testing.TB
	nodes []*memNode
}

// memNode is one of them. Its stores outlive the core, as a disk outlives a process.
type memNode struct {
	id     string
	net    *raft.InmemTransport
	disk   *raft.InmemStore
	snaps  raft.SnapshotStore
	tuning Tuning
	*core
	stop  context.CancelFunc
	done  chan struct{}
	fatal chan error
}

// testTuning has short timeouts: in memory nothing is slow.
func testTuning() Tuning {
	t := DefaultTuning()
	t.HeartbeatTimeout, t.ElectionTimeout, t.LeaderLeaseTimeout = 300*time.Millisecond, 300*time.Millisecond, 250*time.Millisecond
	return t
}

func newMemCluster(t testing.TB, n int, change func(*memNode)) *memCluster {
	c := &memCluster{t: t}
	for i := range n {
		m := &memNode{id: fmt.Sprintf("n%d", i+1), disk: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore(), tuning: testTuning()}
		if change != nil {
			change(m)
		}
		c.nodes = append(c.nodes, m)
	}
	for _, m := range c.nodes {
		conf := raft.DefaultConfig()
		conf.LocalID = raft.ServerID(m.id)
		_, tr := raft.NewInmemTransport("x")
		require.NoError(t, raft.BootstrapCluster(conf, m.disk, m.disk, m.snaps, tr, c.configuration()))
		c.start(m)
	}
	return c
}

func (c *memCluster) configuration() (conf raft.Configuration) {
	for _, m := range c.nodes {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(m.id), Address: raft.ServerAddress(m.id)})
	}
	return conf
}

// start starts a node on its stores and connects it to all others.
func (c *memCluster) start(m *memNode) {
	_, m.net = raft.NewInmemTransportWithTimeout(raft.ServerAddress(m.id), time.Second)
	m.fatal = make(chan error, 16)
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("KVONCE_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", m.id)
	}
	settings := fsm.DefaultSettings()
	settings[fsm.ClientTTLMin] = 1000
	k, err := newCore(coreConfig{
		id: raft.ServerID(m.id), tuning: m.tuning, stores: stores{m.disk, m.disk, m.snaps}, transport: m.net,
		records: c.records,
		genesis: fsm.Genesis{ClusterName: "test", Settings: settings},
		remotes: &memRemotes{c, m},
		probe:   func(context.Context, string) error { return nil },
		log:     log, fatal: func(err error) { m.fatal <- err },
	})
	require.NoError(c.t, err)
	m.core = k
	for _, o := range c.nodes {
		if o != m && o.core != nil {
			c.connect(m, o)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.done = cancel, make(chan struct{})
	go func() { k.Run(ctx); close(m.done) }()
}

// records are those that nodes would have learned from each other's hellos.
func (c *memCluster) records() (list []fsm.Node) {
	for _, m := range c.nodes {
		list = append(list, fsm.Node{ID: m.id, ClientAddress: m.id + ":client"})
	}
	return list
}

// memRemotes asks other nodes of the cluster directly.
type memRemotes struct {
	c    *memCluster
	self *memNode
}

func (r *memRemotes) at(address string) (*core, error) {
	for _, m := range r.c.nodes {
		if m.id+":client" == address && m.core != nil {
			return m.core, nil
		}
	}
	return nil, errors.New("no node there")
}

func (r *memRemotes) readIndex(ctx context.Context, address string) (uint64, error) {
	k, err := r.at(address)
	if err != nil {
		return 0, err
	}
	return k.readIndexHere(ctx)
}

func (r *memRemotes) digest(_ context.Context, address string, index uint64) (uint64, bool) {
	k, err := r.at(address)
	if err != nil {
		return 0, false
	}
	return k.machine.digests.at(index)
}

func (c *memCluster) connect(a, b *memNode) {
	a.net.Connect(raft.ServerAddress(b.id), b.net)
	b.net.Connect(raft.ServerAddress(a.id), a.net)
}

func (c *memCluster) cut(a, b *memNode) {
	a.net.Disconnect(raft.ServerAddress(b.id))
	b.net.Disconnect(raft.ServerAddress(a.id))
}

// isolate cuts a node from all others.
func (c *memCluster) isolate(m *memNode) {
	for _, o := range c.nodes {
		if o != m {
			c.cut(m, o)
		}
	}
}

// crash ends a node without any farewell; what it has stored stays.
func (c *memCluster) crash(m *memNode) {
	c.isolate(m)
	m.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	require.NoError(c.t, m.Shutdown(ctx))
	<-m.done
	m.core = nil
}

func (c *memCluster) close() {
	for _, m := range c.nodes {
		if m.core != nil {
			c.crash(m)
		}
	}
}

// leader waits for a node whose gate is open and whose cluster is born.
func (c *memCluster) leader(among ...*memNode) *memNode {
	c.t.Helper()
	if len(among) == 0 {
		among = c.nodes
	}
	var found *memNode
	require.Eventually(c.t, func() bool {
		for _, m := range among {
			if m.core == nil {
				continue
			}
			if _, ok := m.gate.leading(); ok && m.machine.View().Born() && m.raft.State() == raft.Leader {
				found = m
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond, "no leader")
	return found
}

// do sends one request to a node and waits for the answer.
func (m *memNode) do(caller transport.Caller, r *kvoncev1.Request) *kvoncev1.Response {
	answer := make(chan *kvoncev1.Response, 1)
	m.requests.Do(caller, r, func(out *kvoncev1.Response) { answer <- out })
	return <-answer
}
