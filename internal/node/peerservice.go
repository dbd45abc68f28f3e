package node

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
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
	if own := k.machine.View().Incarnation(); string(r.GetIncarnation()) != string(own[:]) {
		return nil, status.Errorf(codes.FailedPrecondition, "this is cluster %x, not %x", own, r.GetIncarnation())
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

// leaderConn keeps a connection to the leader's client port.
type leaderConn struct {
	mu      sync.Mutex
	address string
	conn    *grpc.ClientConn
}

func (l *leaderConn) readIndex(ctx context.Context, address string, cluster fsm.Incarnation) (uint64, error) {
	conn, err := l.to(address)
	if err != nil {
		return 0, err
	}
	out, err := kvoncev1.NewPeerClient(conn).ReadIndex(ctx, &kvoncev1.ReadIndexRequest{Incarnation: cluster[:]})
	return out.GetIndex(), err
}

// to returns the connection to an address; one to another address is closed.
func (l *leaderConn) to(address string) (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address == address && l.conn != nil {
		return l.conn, nil
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	if l.conn != nil {
		_ = l.conn.Close() // nothing is under way on it: there is one round at a time
	}
	l.address, l.conn = address, conn
	return conn, nil
}

// Close closes the connection.
func (l *leaderConn) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return nil
	}
	return l.conn.Close()
}
