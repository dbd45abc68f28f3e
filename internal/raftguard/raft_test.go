package raftguard

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

const (
	patience = 5 * time.Second       // for what must happen
	moment   = 10 * time.Millisecond // between two looks
)

// longTimers is a time-out that never fires in a test; elections start by TimeoutNow.
const longTimers = time.Minute

// halves runs a test without and with the guard.
func halves(t *testing.T, test func(t *testing.T, guarded bool)) {
	t.Run("bare", func(t *testing.T) { test(t, false) })
	t.Run("guarded", func(t *testing.T) { test(t, true) })
}

// list is a state machine that keeps the data of every command. Its snapshot is the list.
type list struct {
	mu    sync.Mutex
	items []string
}

func (l *list) Apply(e *raft.Log) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, string(e.Data))
	return len(l.items)
}

func (l *list) Snapshot() (raft.FSMSnapshot, error) {
	return listSnapshot(strings.Join(l.get(), " ")), nil
}

func (l *list) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = strings.Fields(string(b))
	return nil
}

func (l *list) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}

type listSnapshot string

func (s listSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := io.WriteString(sink, string(s)); err != nil {
		return err
	}
	return sink.Close()
}

func (listSnapshot) Release() {}

func testConfig(id raft.ServerID, timers time.Duration) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID, c.Logger = id, hclog.NewNullLogger()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = timers, timers, timers
	c.CommitTimeout = 5 * time.Millisecond
	return c
}

// voters is a configuration in which the address of each node is its id.
func voters(ids ...raft.ServerID) (c raft.Configuration) {
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{ID: id, Address: raft.ServerAddress(id)})
	}
	return c
}

func header(id raft.ServerID) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(id), Addr: []byte(id)}
}

// fill stores the entries from..to of a term as commands; entry 1 is the configuration.
func fill(t *testing.T, logs raft.LogStore, c raft.Configuration, term, from, to uint64, data string) {
	t.Helper()
	for i := from; i <= to; i++ {
		l := &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "%s%d", data, i)}
		if i == 1 {
			l.Type, l.Data = raft.LogConfiguration, raft.EncodeConfiguration(c)
		}
		require.NoError(t, logs.StoreLog(l))
	}
}

// node is one real raft node; what isn't set is in memory.
type node struct {
	config    *raft.Config
	machine   *list
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	transport raft.Transport
}

func newNode(id raft.ServerID, transport raft.Transport) *node {
	s := raft.NewInmemStore()
	return &node{testConfig(id, longTimers), &list{}, s, s, raft.NewInmemSnapshotStore(), transport}
}

func (n *node) bootstrap(t *testing.T, c raft.Configuration) {
	t.Helper()
	require.NoError(t, raft.BootstrapCluster(n.config, n.logs, n.stable, n.snapshots, n.transport, c))
}

func (n *node) start(t *testing.T) *raft.Raft {
	t.Helper()
	r, err := raft.NewRaft(n.config, n.machine, n.logs, n.stable, n.snapshots, n.transport)
	require.NoError(t, err)
	t.Cleanup(func() { stop(r) })
	return r
}

// stop waits a little for the end of a node: in the bare halves it may never come.
func stop(r *raft.Raft) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = Await(ctx, r.Shutdown())
}

// peer stands for another node. It grants every vote and accepts every entry, or does what handle says.
type peer struct {
	Inner
	id raft.ServerID

	mu     sync.Mutex
	handle func(raft.RPC) // nil for agree
}

func newPeer(t *testing.T, id raft.ServerID, inner Inner) *peer {
	p := &peer{Inner: inner, id: id}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case rpc := <-inner.Consumer():
				p.answer(rpc)
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() { close(done) })
	return p
}

func (p *peer) set(handle func(raft.RPC)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle = handle
}

func (p *peer) answer(rpc raft.RPC) {
	p.mu.Lock()
	handle := p.handle
	p.mu.Unlock()
	if handle == nil {
		handle = agree
	}
	handle(rpc)
}

// silent never answers.
func silent(raft.RPC) {}

func agree(rpc raft.RPC) {
	h := raft.RPCHeader{ProtocolVersion: 3}
	switch c := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: h, Term: c.Term, Granted: true}, nil)
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: h, Term: c.Term, Granted: true}, nil)
	case *raft.AppendEntriesRequest:
		last := c.PrevLogEntry + uint64(len(c.Entries))
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: h, Term: c.Term, LastLog: last, Success: true}, nil)
	default:
		rpc.Respond(nil, fmt.Errorf("unexpected %T", c))
	}
}

// inmem makes transports in memory that reach each other.
func inmem(ids ...raft.ServerID) []*raft.InmemTransport {
	var all []*raft.InmemTransport
	for _, id := range ids {
		_, tr := raft.NewInmemTransport(raft.ServerAddress(id))
		all = append(all, tr)
	}
	for _, a := range all {
		for _, b := range all {
			a.Connect(b.LocalAddr(), b)
		}
	}
	return all
}

// elect lets a peer tell a node to stand for election, and waits until it has committed an entry as the leader.
func elect(t *testing.T, r *raft.Raft, p *peer, id raft.ServerID, at raft.ServerAddress) {
	t.Helper()
	last := r.LastIndex()
	req := &raft.TimeoutNowRequest{RPCHeader: header(p.id)}
	require.NoError(t, p.TimeoutNow(id, at, req, &raft.TimeoutNowResponse{}))
	require.Eventually(t, func() bool { return r.State() == raft.Leader && r.CommitIndex() > last }, patience, moment)
}

// within is a context that ends soon enough for what shouldn't happen.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
