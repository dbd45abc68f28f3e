package raftguard

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func tcp(t *testing.T) *raft.NetworkTransport {
	t.Helper()
	tr, err := raft.NewTCPTransportWithConfig("127.0.0.1:0", nil, &raft.NetworkTransportConfig{
		MaxPool: 3, Timeout: time.Second, MaxRPCsInFlight: 1, Logger: hclog.NewNullLogger()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// TestHeartbeatOfNewTerm is hashicorp/raft #695: the heartbeat of a new leader is handled while the old leader waits
// for its next entry. Without the guard that entry is stored with the new term, which the old leader never led (G2, G6).
func TestHeartbeatOfNewTerm(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		inner, b := tcp(t), newPeer(t, "b", tcp(t))
		n := newNode("a", inner)
		if guarded {
			n.transport = NewTransport(inner, "a")
		}
		n.bootstrap(t, raft.Configuration{Servers: []raft.Server{
			{ID: "a", Address: inner.LocalAddr()}, {ID: "b", Address: b.LocalAddr()}}})
		r := n.start(t)
		elect(t, r, b, "a", inner.LocalAddr())
		term := r.CurrentTerm()

		var resp raft.AppendEntriesResponse
		beat := &raft.AppendEntriesRequest{RPCHeader: header("b"), Term: term + 1}
		require.NoError(t, b.AppendEntries("a", inner.LocalAddr(), beat, &resp))
		require.Equal(t, term+1, resp.Term)
		err := Await(within(t, patience), r.Apply([]byte("phantom"), time.Second))

		var last raft.Log
		require.NoError(t, n.logs.GetLog(r.LastIndex(), &last))
		if guarded {
			require.ErrorIs(t, err, raft.ErrNotLeader)
			require.Equal(t, term, last.Term)
			return
		}
		require.Equal(t, "phantom", string(last.Data))
		require.Equal(t, term+1, last.Term, "the fault shows")
	})
}

// onlyTransport is how a wrapper goes wrong: it embeds the interface.
type onlyTransport struct{ raft.Transport }

// TestTransportKeepsPreVoteAndClose: raft looks for both by a type assertion, and does without when it fails.
func TestTransportKeepsPreVoteAndClose(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		inner := tcp(t)
		n := newNode("a", onlyTransport{inner})
		if guarded {
			n.transport = NewTransport(inner, "a")
		}
		var log strings.Builder
		n.config.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})
		r := n.start(t)
		require.NoError(t, Await(within(t, patience), r.Shutdown()))
		require.Equal(t, guarded, inner.IsShutdown(), "raft closes the transport")
		require.Equal(t, !guarded, strings.Contains(log.String(), "pre-vote is disabled"))
	})
}

// jamming is a transport whose pipelines have room for one message. The follower refuses the first one, once the
// sender waits with the second.
type jamming struct {
	*raft.InmemTransport
	armed   atomic.Bool
	refused chan struct{}
}

func (j *jamming) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	if !j.armed.Load() {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	return &jam{answers: make(chan raft.AppendFuture), closed: make(chan struct{}), refused: j.refused}, nil
}

type jam struct {
	answers chan raft.AppendFuture
	closed  chan struct{}
	refused chan struct{}
	sent    *raft.AppendEntriesRequest
}

type refusal struct{ req *raft.AppendEntriesRequest }

func (refusal) Error() error                          { return nil }
func (refusal) Start() time.Time                      { return time.Now() }
func (r refusal) Request() *raft.AppendEntriesRequest { return r.req }
func (r refusal) Response() *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Term: r.req.Term}
}

func (j *jam) AppendEntries(req *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if j.sent == nil {
		j.sent = req
		return refusal{req}, nil
	}
	j.answers <- refusal{j.sent}
	close(j.refused)
	<-j.closed // there is no room until somebody takes answers, or closes the pipeline
	return nil, raft.ErrPipelineShutdown
}

func (j *jam) Consumer() <-chan raft.AppendFuture { return j.answers }
func (j *jam) Close() error                       { close(j.closed); return nil }

// TestPipelineDeadlock is #612: after a refused message nobody takes the answers of the pipeline any more, and the
// sender waits for room in it for ever.
func TestPipelineDeadlock(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		trs := inmem("a", "b")
		b := newPeer(t, "b", trs[1])
		inner := &jamming{InmemTransport: trs[0], refused: make(chan struct{})}
		n := newNode("a", inner)
		if guarded {
			n.transport = NewTransport(inner, "a")
		}
		n.bootstrap(t, voters("a", "b"))
		r := n.start(t)
		elect(t, r, b, "a", "a")
		inner.armed.Store(true)
		if guarded {
			for range 10 {
				require.NoError(t, Await(within(t, patience), r.Apply([]byte("x"), time.Second)))
			}
			return
		}
		_ = r.Apply([]byte("wakes replication"), time.Second)
		select {
		case <-inner.refused:
		case <-time.After(patience):
			require.Fail(t, "no pipeline was used")
		}
		err := Await(within(t, 300*time.Millisecond), r.Apply([]byte("x"), time.Second))
		require.ErrorIs(t, err, ErrAbandoned, "the fault shows: b gets nothing any more")
	})
}

// TestCommitIndexClamp: a follower whose log ends with entries of a deposed leader is told a commit index beyond the
// entries that the message lets it compare. Without the guard it applies what was never committed (G6).
func TestCommitIndexClamp(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		trs := inmem("leader", "f")
		n := newNode("f", trs[1])
		fill(t, n.logs, voters("leader", "f"), 1, 1, 5, "ok")
		fill(t, n.logs, voters("leader", "f"), 2, 6, 9, "stale")
		r := n.start(t)
		var sender Inner = trs[0]
		if guarded {
			sender = NewTransport(trs[0], "leader")
		}
		req := &raft.AppendEntriesRequest{RPCHeader: header("leader"), Term: 3, PrevLogEntry: 5, PrevLogTerm: 1, LeaderCommitIndex: 8}
		var resp raft.AppendEntriesResponse
		require.NoError(t, sender.AppendEntries("f", "f", req, &resp))
		require.True(t, resp.Success)
		require.Equal(t, uint64(8), req.LeaderCommitIndex, "the request itself is raft's")
		want := []string{"ok2", "ok3", "ok4", "ok5"}
		if !guarded {
			want = append(want, "stale6", "stale7", "stale8")
		}
		require.Eventually(t, func() bool { return len(n.machine.get()) >= len(want) }, patience, moment)
		require.Equal(t, want, n.machine.get())
		require.Equal(t, uint64(1+len(want)), r.CommitIndex())
	})
}

func TestClampLeavesWhatIsRight(t *testing.T) {
	entries := []*raft.Log{{Index: 8}, {Index: 9}}
	for name, c := range map[string]struct {
		req  raft.AppendEntriesRequest
		want uint64
	}{
		"heartbeat":           {raft.AppendEntriesRequest{Term: 3}, 0},
		"behind the entries":  {raft.AppendEntriesRequest{PrevLogEntry: 7, Entries: entries, LeaderCommitIndex: 8}, 8},
		"at the last entry":   {raft.AppendEntriesRequest{PrevLogEntry: 7, Entries: entries, LeaderCommitIndex: 9}, 9},
		"beyond the entries":  {raft.AppendEntriesRequest{PrevLogEntry: 7, Entries: entries, LeaderCommitIndex: 20}, 9},
		"beyond, no entries":  {raft.AppendEntriesRequest{PrevLogEntry: 7, LeaderCommitIndex: 20}, 7},
		"from the very start": {raft.AppendEntriesRequest{Entries: entries[:1], LeaderCommitIndex: 20}, 1},
	} {
		require.Equal(t, c.want, clamp(&c.req).LeaderCommitIndex, name)
	}
	heartbeat := &raft.AppendEntriesRequest{Term: 3}
	require.Same(t, heartbeat, clamp(heartbeat))
}

// handing is a transport whose incoming messages a test hands over.
type handing struct {
	*raft.InmemTransport
	messages chan raft.RPC
}

func (h *handing) Consumer() <-chan raft.RPC { return h.messages }

// TestCloseAnswersWhatWaits: a message that raft doesn't take any more gets an answer, so that its sender needn't
// wait for its time-out.
func TestCloseAnswersWhatWaits(t *testing.T) {
	guard, err := NewSnapshotGuard(raft.NewInmemStore(), raft.NewInmemSnapshotStore())
	require.NoError(t, err)
	inner := &handing{inmem("a")[0], make(chan raft.RPC)}
	tr := NewTransport(inner, "a")
	tr.SetSnapshotGuard(guard)
	require.Equal(t, tr.Consumer(), tr.Consumer(), "one channel, however often raft asks")
	answer := make(chan raft.RPCResponse, 1)
	inner.messages <- raft.RPC{Command: &raft.AppendEntriesRequest{}, RespChan: answer}
	require.NoError(t, tr.Close())
	require.NoError(t, tr.Close())
	select {
	case a := <-answer:
		require.ErrorIs(t, a.Error, raft.ErrTransportShutdown)
	case <-time.After(patience):
		require.Fail(t, "no answer")
	}
}
