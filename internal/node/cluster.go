package node

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/registry"
	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// maxListed is how many clients one call lists.
const maxListed = 1000

// backend is what the gRPC service asks. It answers from the first moment; requests are refused until raft runs.
type backend struct {
	node *Node
}

// Welcome implements transport.Backend.
func (b *backend) Welcome(h *kvoncev1.Hello) *kvoncev1.Welcome {
	w := &kvoncev1.Welcome{Code: kvoncev1.Code_OK, ClusterName: b.node.config.ClusterName, NodeId: b.node.config.ID}
	k := b.node.core.Load()
	if k == nil {
		return w
	}
	w.Leader = k.Leader()
	view := k.machine.View()
	if !view.Born() {
		return w
	}
	incarnation := view.Incarnation()
	w.Incarnation = incarnation[:]
	if want := h.GetIncarnation(); len(want) > 0 && string(want) != string(incarnation[:]) {
		w.Code = kvoncev1.Code_WRONG_CLUSTER
		w.Message = fmt.Sprintf("this is cluster %x, not %x", incarnation, want)
	}
	return w
}

// Do implements transport.Backend.
func (b *backend) Do(c transport.Caller, r *kvoncev1.Request, reply func(*kvoncev1.Response)) {
	k := b.node.core.Load()
	if k == nil {
		reply(responseToError(errNotReady))
		return
	}
	k.requests.Do(c, r, reply)
}

// Status implements transport.Backend.
func (b *backend) Status(context.Context, *kvoncev1.StatusRequest) (*kvoncev1.StatusResponse, error) {
	c := &b.node.config
	out := &kvoncev1.StatusResponse{NodeId: c.ID, ClusterName: c.ClusterName, Version: c.Version, Role: "starting"}
	if k := b.node.core.Load(); k != nil {
		k.describe(out)
	}
	return out, nil
}

// describe fills in what raft and the state say.
func (k *core) describe(out *kvoncev1.StatusResponse) {
	view := k.machine.View()
	out.Leader = k.Leader()
	out.Role = roleOf(k.raft.State())
	out.Term, out.CommitIndex, out.LastLogIndex = k.raft.CurrentTerm(), k.raft.CommitIndex(), k.raft.LastIndex()
	if snapshots, err := k.config.stores.snapshots.List(); err == nil && len(snapshots) > 0 {
		out.SnapshotIndex = snapshots[0].Index
	}
	describeState(out, view)
	out.Replayed = k.requests.replayed.Load()
	out.Ready = out.Leader != nil && view.Born() && k.behind() == 0
	for _, s := range k.raft.GetConfiguration().Configuration().Servers {
		out.Members = append(out.Members, memberOf(view, s))
	}
}

// behind returns the index of a command that is committed but not applied yet, 0 for none.
func (k *core) behind() uint64 { return k.reads.lastCommand(k.raft.CommitIndex()) }

func describeState(out *kvoncev1.StatusResponse, view *fsm.State) {
	r := view.Registry()
	if view.Born() {
		incarnation := view.Incarnation()
		out.Incarnation = incarnation[:]
	}
	out.AppliedIndex, out.Revision, out.ClusterTimeMs = view.Index(), view.Revision(), view.Time()
	out.Clients, out.Tombstones = uint64(r.Clients()), uint64(r.Tombstones())
	out.Answers, out.AnswerBytes = uint64(r.Answers()), r.AnswerBytes()
	out.Keys, out.KeySpaceBytes = uint64(view.Keys()), view.KeySpaceBytes()
	out.Digest = fmt.Sprintf("%016x", view.Digest())
}

func memberOf(view *fsm.State, s raft.Server) *kvoncev1.Member {
	m := &kvoncev1.Member{Id: string(s.ID), RaftAddress: string(s.Address), Voter: s.Suffrage == raft.Voter}
	if n, ok := view.Node(m.Id); ok {
		m.ClientAddress, m.HttpAddress, m.Version = n.ClientAddress, n.HTTPAddress, n.Version
	}
	return m
}

func roleOf(s raft.RaftState) string {
	switch s {
	case raft.Leader:
		return "leader"
	case raft.Candidate:
		return "candidate"
	}
	return "follower"
}

// ListClients implements transport.Backend.
func (b *backend) ListClients(_ context.Context, r *kvoncev1.ListClientsRequest) (*kvoncev1.ListClientsResponse, error) {
	k, err := b.running()
	if err != nil {
		return nil, err
	}
	limit := r.GetLimit()
	if limit == 0 || limit > maxListed {
		limit = maxListed
	}
	view := k.machine.View()
	out := &kvoncev1.ListClientsResponse{}
	view.Registry().EachClient(r.GetAfterId()+1, func(c *registry.Client) bool {
		if uint64(len(out.Clients)) == limit {
			out.More = true
			return false
		}
		out.Clients = append(out.Clients, &kvoncev1.ClientInfo{Id: c.ID, Name: c.Name, TtlMs: c.TTL, IdleMs: view.Time() - c.LastActive,
			FirstOutstanding: c.First, Answers: c.Answers(), AnswerBytes: c.AnswerBytes(), Ordered: c.Ordered, Window: c.Window})
		return true
	})
	return out, nil
}

// GetSettings implements transport.Backend.
func (b *backend) GetSettings(context.Context, *kvoncev1.GetSettingsRequest) (*kvoncev1.GetSettingsResponse, error) {
	k, err := b.running()
	if err != nil {
		return nil, err
	}
	values := k.machine.View().Settings()
	out := &kvoncev1.GetSettingsResponse{}
	for i, d := range fsm.SettingInfos() {
		out.Settings = append(out.Settings, &kvoncev1.SettingInfo{Name: d.Name, Value: values[i], DefaultValue: d.Default,
			Min: d.Min, Max: d.Max, Unit: d.Unit, Description: d.Description})
	}
	return out, nil
}

// TransferLeader implements transport.Backend.
func (b *backend) TransferLeader(ctx context.Context, r *kvoncev1.TransferLeaderRequest) (*kvoncev1.TransferLeaderResponse, error) {
	k, err := b.running()
	if err != nil {
		return nil, err
	}
	if k.raft.State() != raft.Leader {
		return nil, status.Error(codes.FailedPrecondition, "this node doesn't lead")
	}
	if err := k.transferTo(ctx, r.GetNodeId()); err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	return &kvoncev1.TransferLeaderResponse{Leader: k.Leader()}, nil
}

func (k *core) transferTo(ctx context.Context, id string) error {
	if id == "" {
		return k.HandOver(ctx)
	}
	for _, s := range k.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == id && s.Suffrage == raft.Voter {
			return k.transfer.To(ctx, s.ID, s.Address)
		}
	}
	return fmt.Errorf("no voter has the id %q", id)
}

func (b *backend) running() (*core, error) {
	if k := b.node.core.Load(); k != nil && k.machine.View().Born() {
		return k, nil
	}
	return nil, status.Error(codes.Unavailable, errNotReady.Error())
}
