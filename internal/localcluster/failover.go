package localcluster

import (
	"context"
	"fmt"
	"time"
)

// caughtUpEntries is how many entries a node may lag behind and still count as caught up: under load there is always
// something on its way.
const caughtUpEntries = 16

// Failover tells what became of a cluster whose leader was killed.
type Failover struct {
	// Killed led, with the process PID.
	Killed *Node
	PID    int
	// Leader leads now, in a later term. It may be the killed node, started again.
	Leader *Node
	// After is the time from the kill until the new leader said that it serves.
	After time.Duration
}

// KillLeader waits until every node is up and caught up, so that a majority remains, kills the leader (SIGKILL), and
// waits for a new one.
func (c *Cluster) KillLeader(ctx context.Context) (f Failover, err error) {
	var term uint64
	if err := c.poll(ctx, func(all survey) error {
		if err := c.caughtUp(all); err != nil {
			return err
		}
		f.Killed, term = c.nodes[all.leader()], all[all.leader()].GetTerm()
		f.PID = f.Killed.State().PID
		return nil
	}); err != nil {
		return f, err
	}
	start := time.Now()
	if _, err := f.Killed.Kill(ctx); err != nil {
		return f, err
	}
	err = c.poll(ctx, func(all survey) error {
		i := all.leader()
		if i < 0 || all[i].GetTerm() <= term {
			return errNoLeader
		}
		f.Leader, f.After = c.nodes[i], time.Since(start)
		return nil
	})
	return f, err
}

// caughtUp says why losing the leader now could cost the majority, if it could.
func (c *Cluster) caughtUp(all survey) error {
	if err := c.ready(all); err != nil {
		return err
	}
	var newest uint64
	for _, s := range all {
		newest = max(newest, s.GetCommitIndex())
	}
	for i, s := range all {
		switch {
		case s == nil:
			return fmt.Errorf("node %s isn't up", c.nodes[i].id)
		case s.GetAppliedIndex()+caughtUpEntries < newest:
			return fmt.Errorf("node %s has applied entry %d of %d", c.nodes[i].id, s.GetAppliedIndex(), newest)
		}
	}
	return nil
}
