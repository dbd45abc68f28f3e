package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

const transferLeader = "transfer leader"

// askTimeout bounds one question to one node when there are others to ask.
const askTimeout = 2 * time.Second

// Status asks the node at an endpoint how it is. It needs no leader.
func (c *Client) Status(ctx context.Context, endpoint string) (*kvoncev1.StatusResponse, error) {
	r, err := ask(ctx, c, endpoint, func(ctx context.Context, n kvoncev1.ClusterClient) (*kvoncev1.StatusResponse, error) {
		return n.Status(ctx, &kvoncev1.StatusRequest{})
	})
	if err != nil {
		return nil, askError(ctx, "status", err)
	}
	return r, nil
}

// ListClients returns up to limit registered clients after an id, in the order of their ids, as one node has them. A
// limit of 0 is as many as a page holds.
func (c *Client) ListClients(ctx context.Context, afterID, limit uint64) (*kvoncev1.ListClientsResponse, error) {
	return askAny(ctx, c, "list clients", func(ctx context.Context, n kvoncev1.ClusterClient) (*kvoncev1.ListClientsResponse, error) {
		return n.ListClients(ctx, &kvoncev1.ListClientsRequest{AfterId: afterID, Limit: limit})
	})
}

// Settings returns the replicated settings, as one node has them.
func (c *Client) Settings(ctx context.Context) ([]*kvoncev1.SettingInfo, error) {
	r, err := askAny(ctx, c, "settings", func(ctx context.Context, n kvoncev1.ClusterClient) (*kvoncev1.GetSettingsResponse, error) {
		return n.GetSettings(ctx, &kvoncev1.GetSettingsRequest{})
	})
	return r.GetSettings(), err
}

// TransferLeader makes another voter lead: the one with the given id, or for an empty id the one that is most up to
// date. It returns the new leader, as the old one knows it.
func (c *Client) TransferLeader(ctx context.Context, id string) (*kvoncev1.Leader, error) {
	leader, err := c.findLeader(ctx)
	if err != nil {
		return nil, err
	}
	r, err := ask(ctx, c, leader, func(ctx context.Context, n kvoncev1.ClusterClient) (*kvoncev1.TransferLeaderResponse, error) {
		return n.TransferLeader(ctx, &kvoncev1.TransferLeaderRequest{NodeId: id})
	})
	if err != nil {
		return nil, askError(ctx, transferLeader, err)
	}
	return r.GetLeader(), nil
}

// findLeader returns the client address of the leader.
func (c *Client) findLeader(ctx context.Context) (string, error) {
	var address string
	_, err := askAny(ctx, c, "find leader", func(ctx context.Context, n kvoncev1.ClusterClient) (*kvoncev1.StatusResponse, error) {
		r, err := n.Status(ctx, &kvoncev1.StatusRequest{})
		address = r.GetLeader().GetClientAddress()
		if err == nil && address == "" {
			err = status.Error(codes.Unavailable, "the node knows no leader")
		}
		return r, err
	})
	return address, err
}

// ask asks one node.
func ask[R any](ctx context.Context, c *Client, addr string, question func(context.Context, kvoncev1.ClusterClient) (R, error)) (R, error) {
	var none R
	if c.ctx.Err() != nil {
		return none, ErrClosed
	}
	conn, err := c.dial(addr)
	if err != nil {
		return none, err
	}
	defer conn.Close()
	return question(ctx, kvoncev1.NewClusterClient(conn))
}

// askAny asks one node after the other until one answers, ctx ends, or one says that the question can't be.
func askAny[R any](ctx context.Context, c *Client, op string, question func(context.Context, kvoncev1.ClusterClient) (R, error)) (R, error) {
	var none R
	err := errors.New("no node was asked")
	for n := 0; ; n++ {
		for _, addr := range c.known() {
			if ctx.Err() != nil || c.ctx.Err() != nil {
				return none, c.askEnded(ctx, op, err)
			}
			var r R
			if r, err = askBriefly(ctx, c, addr, question); err == nil {
				return r, nil
			}
			if status.Code(err) == codes.InvalidArgument {
				return none, askError(ctx, op, err)
			}
		}
		c.sleep(ctx, c.config.timing.reconnect.delay(n))
	}
}

func askBriefly[R any](ctx context.Context, c *Client, addr string, question func(context.Context, kvoncev1.ClusterClient) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return ask(ctx, c, addr, question)
}

// known returns the addresses of nodes, the current one first.
func (c *Client) known() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.engine
	var addrs []string
	if e.link != nil {
		addrs = append(addrs, e.link.addr)
	}
	return append(append(addrs, e.endpoints.configured...), e.endpoints.learned...)
}

func (c *Client) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

func (c *Client) askEnded(ctx context.Context, op string, last error) error {
	if c.ctx.Err() != nil {
		last = ErrClosed
	}
	return askError(ctx, op, last)
}

// askError makes the error for a question that wasn't answered. Questions change nothing, except that a transfer of
// leadership may have happened although nobody said so.
func askError(ctx context.Context, op string, err error) error {
	out := &Error{Op: op, Code: CodeUnavailable, Outcome: NotApplied, Message: status.Convert(err).Message()}
	code := status.Code(err)
	switch {
	case errors.Is(err, ErrClosed):
		out.Code, out.Message = CodeClosed, ""
	case code == codes.InvalidArgument:
		out.Code = wireCode(kvoncev1.Code_INVALID_ARGUMENT)
	case code == codes.FailedPrecondition:
		out.Code = wireCode(kvoncev1.Code_NOT_LEADER)
	case op == transferLeader:
		out.Outcome = Unknown
	}
	if ctx.Err() != nil {
		out.Cause = contextError(ctx)
	}
	return out
}
