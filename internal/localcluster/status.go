package localcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

const (
	// pollEvery is how often nodes are asked while something is awaited.
	pollEvery = 50 * time.Millisecond
	// statusTimeout bounds one question.
	statusTimeout = time.Second
)

// errNoLeader means that no node says that it leads.
var errNoLeader = errors.New("no node leads")

// Status asks a node about itself.
func (c *Cluster) Status(ctx context.Context, id string) (*kvoncev1.StatusResponse, error) {
	n := c.Node(id)
	if n == nil {
		return nil, fmt.Errorf("there is no node %q", id)
	}
	return n.Status(ctx)
}

// Status asks the node about itself, over a connection of its own: one that is kept would wait between its attempts
// to reach a node that was just started.
func (n *Node) Status(ctx context.Context) (*kvoncev1.StatusResponse, error) {
	conn, err := grpc.NewClient(n.ClientAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	status, err := kvoncev1.NewClusterClient(conn).Status(ctx, &kvoncev1.StatusRequest{})
	if err != nil {
		err = fmt.Errorf("node %s: %w", n.id, err)
	}
	return status, errors.Join(err, conn.Close())
}

// survey is what all nodes say of themselves at about the same time; nil for one that doesn't answer.
type survey []*kvoncev1.StatusResponse

func (c *Cluster) survey(ctx context.Context) survey {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	all := make(survey, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		if n.State().PID == 0 {
			continue
		}
		wg.Go(func() {
			if s, err := n.Status(ctx); err == nil {
				all[i] = s
			}
		})
	}
	wg.Wait()
	return all
}

// leader returns the position of the node that says it leads, in the highest term if several do; -1 for none.
func (all survey) leader() int {
	found := -1
	for i, s := range all {
		if s.GetRole() == "leader" && s.GetReady() && (found < 0 || s.GetTerm() > all[found].GetTerm()) {
			found = i
		}
	}
	return found
}

// Leader returns the node that leads now and serves, with its status.
func (c *Cluster) Leader(ctx context.Context) (*Node, *kvoncev1.StatusResponse, error) {
	all := c.survey(ctx)
	i := all.leader()
	if i < 0 {
		return nil, nil, errNoLeader
	}
	return c.nodes[i], all[i], nil
}

// WaitReady waits until every node that is wanted serves requests and all name one leader, and returns that. Stopped
// nodes and those that were given up don't count. The error says what was missing when ctx ended.
func (c *Cluster) WaitReady(ctx context.Context) (leader *Node, err error) {
	err = c.poll(ctx, func(all survey) error {
		if err := c.ready(all); err != nil {
			return err
		}
		leader = c.nodes[all.leader()]
		return nil
	})
	return leader, err
}

// poll takes surveys until one satisfies check.
func (c *Cluster) poll(ctx context.Context, check func(survey) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check(c.survey(ctx))
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.over:
			return ErrNotRunning
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// ready says why the cluster isn't ready, if it isn't.
func (c *Cluster) ready(all survey) error {
	i := all.leader()
	if i < 0 {
		return errNoLeader
	}
	for k, n := range c.nodes {
		switch s := all[k]; {
		case !n.State().Wanted:
		case s == nil:
			return fmt.Errorf("node %s doesn't answer", n.id)
		case !s.GetReady():
			return fmt.Errorf("node %s isn't ready (%s)", n.id, s.GetRole())
		case s.GetLeader().GetNodeId() != c.nodes[i].id || s.GetLeader().GetClientAddress() == "":
			return fmt.Errorf("node %s doesn't know the leader", n.id)
		}
	}
	return nil
}
