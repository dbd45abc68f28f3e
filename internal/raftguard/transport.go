package raftguard

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Inner is a transport with all the methods that raft looks for. Wrapping raft.Transport alone would lose pre-vote,
// silently.
type Inner interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

var (
	_ Inner = (*raft.NetworkTransport)(nil)
	_ Inner = (*raft.InmemTransport)(nil)
	_ Inner = (*Transport)(nil)
)

// Transport guards what a node sends and receives.
type Transport struct {
	Inner
	*acks
	snapshot *SnapshotGuard

	once     sync.Once
	consumer chan raft.RPC
	end      sync.Once
	closed   chan struct{}
}

// NewTransport wraps the transport of the node self.
func NewTransport(inner Inner, self raft.ServerID) *Transport {
	return &Transport{Inner: inner, acks: newAcks(self), consumer: make(chan raft.RPC), closed: make(chan struct{})}
}

// SetSnapshotGuard makes the transport help with logs that end exactly at a snapshot; see SnapshotGuard. It must be
// called before raft starts.
func (t *Transport) SetSnapshotGuard(g *SnapshotGuard) { t.snapshot = g }

// SetHeartbeatHandler does nothing, so that heartbeats go through raft's main loop like everything else (#695).
func (t *Transport) SetHeartbeatHandler(handler func(raft.RPC)) {
	if !guardHeartbeat {
		t.Inner.SetHeartbeatHandler(handler)
	}
}

// AppendEntriesPipeline refuses pipelining (#612). Raft then sends one message at a time.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if !guardPipeline {
		return t.Inner.AppendEntriesPipeline(id, target)
	}
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends a commit index that covers only what this message lets the follower verify, and takes down
// when a message was sent that the follower accepted.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := time.Now()
	err := t.Inner.AppendEntries(id, target, clamp(req), resp)
	if err == nil {
		t.accepted(id, req.Term, resp.Term, sent)
	}
	return err
}

// clamp limits the commit index to the last entry that the message names. A heartbeat names none, and carries no
// commit index.
func clamp(req *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	verified := req.PrevLogEntry + uint64(len(req.Entries))
	if !guardClamp || req.LeaderCommitIndex <= verified {
		return req
	}
	clamped := *req
	clamped.LeaderCommitIndex = verified
	return &clamped
}

// Consumer hands messages to raft. Those that a log which ends exactly at a snapshot would reject for ever are mended
// on the way; see SnapshotGuard.
func (t *Transport) Consumer() <-chan raft.RPC {
	if t.snapshot == nil {
		return t.Inner.Consumer()
	}
	t.once.Do(func() { go t.forward() })
	return t.consumer
}

// Close implements raft.WithClose. It ends the goroutine that Consumer started.
func (t *Transport) Close() error {
	t.end.Do(func() { close(t.closed) })
	return t.Inner.Close()
}

// forward runs until Close: the inner transport never closes its channel.
func (t *Transport) forward() {
	for {
		select {
		case rpc := <-t.Inner.Consumer():
			if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && t.snapshot.proves(req) {
				mended := *req // an in-memory transport shares the request with its sender
				mended.PrevLogEntry, mended.PrevLogTerm = 0, 0
				rpc.Command = &mended
			}
			t.hand(rpc)
		case <-t.closed:
			return
		}
	}
}

func (t *Transport) hand(rpc raft.RPC) {
	select {
	case t.consumer <- rpc:
	case <-t.closed:
		rpc.Respond(nil, raft.ErrTransportShutdown) // the channel has room for the one answer
	}
}
