package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// peerService answers what other nodes ask on the client port.
type peerService struct {
	kvoncev1.UnimplementedPeerServer
	node *Node
}

// ReadIndex implements the Peer service.
func (p *peerService) ReadIndex(ctx context.Context, r *kvoncev1.ReadIndexRequest) (*kvoncev1.ReadIndexResponse, error) {
	k := p.node.core.Load()
	if k == nil {
		return nil, status.Error(codes.Unavailable, errNotReady.Error())
	}
	if err := sameCluster(k, r.GetIncarnation()); err != nil {
		return nil, err
	}
	index, err := k.readIndexHere(ctx)
	switch {
	case errors.Is(err, errNotLeader):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &kvoncev1.ReadIndexResponse{Index: index}, nil
}

// readIndexHere does a round on this node, which must lead: asking on would go in circles.
func (k *core) readIndexHere(ctx context.Context) (uint64, error) {
	if err := k.gate.check(); err != nil {
		return 0, err
	}
	type answer struct {
		view *fsm.State
		err  error
	}
	done := make(chan answer, 1)
	k.reads.Read(func(view *fsm.State, err error) { done <- answer{view, err} })
	select {
	case a := <-done:
		if a.err != nil {
			return 0, a.err
		}
		return a.view.Index(), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Digest implements the Peer service.
func (p *peerService) Digest(_ context.Context, r *kvoncev1.DigestRequest) (*kvoncev1.DigestResponse, error) {
	k := p.node.core.Load()
	if k == nil {
		return nil, status.Error(codes.Unavailable, errNotReady.Error())
	}
	if err := sameCluster(k, r.GetIncarnation()); err != nil {
		return nil, err
	}
	sum, known := k.machine.digests.at(r.GetIndex())
	return &kvoncev1.DigestResponse{Known: known, Sum: sum, Scheme: fsm.DigestScheme}, nil
}

func sameCluster(k *core, incarnation []byte) error {
	if own := k.machine.View().Incarnation(); string(incarnation) != string(own[:]) {
		return status.Errorf(codes.FailedPrecondition, "this is cluster %x, not %x", own, incarnation)
	}
	return nil
}

// reconnectSoon keeps the wait for a node that is back short; gRPC's own grows to two minutes.
var reconnectSoon = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: time.Second,
})

// remotes are the nodes' connections to each other's client ports.
type remotes struct {
	incarnation func() fsm.Incarnation

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

func newRemotes(incarnation func() fsm.Incarnation) *remotes {
	return &remotes{incarnation: incarnation, conns: map[string]*grpc.ClientConn{}}
}

// readIndex asks the leader at an address for an index.
func (r *remotes) readIndex(ctx context.Context, address string) (uint64, error) {
	peer, err := r.to(address)
	if err != nil {
		return 0, err
	}
	cluster := r.incarnation()
	out, err := peer.ReadIndex(ctx, &kvoncev1.ReadIndexRequest{Incarnation: cluster[:]})
	return out.GetIndex(), err
}

// digest asks a node at an address for its digest after an entry.
func (r *remotes) digest(ctx context.Context, address string, index uint64) (sum uint64, known bool) {
	peer, err := r.to(address)
	if err != nil {
		return 0, false
	}
	cluster := r.incarnation()
	out, err := peer.Digest(ctx, &kvoncev1.DigestRequest{Incarnation: cluster[:], Index: index})
	return out.GetSum(), err == nil && out.GetKnown() && out.GetScheme() == fsm.DigestScheme
}

// to returns the connection to an address. There are as many as addresses that nodes of this cluster have had.
func (r *remotes) to(address string) (kvoncev1.PeerClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn, ok := r.conns[address]
	if !ok {
		var err error
		if conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), reconnectSoon); err != nil {
			return nil, err
		}
		r.conns[address] = conn
	}
	return kvoncev1.NewPeerClient(conn), nil
}

// Close closes the connections.
func (r *remotes) Close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		err = errors.Join(err, conn.Close())
	}
	clear(r.conns)
	return err
}
