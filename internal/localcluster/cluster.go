package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// stopTimeout is how long nodes may take to stop gracefully before they are killed.
const stopTimeout = 15 * time.Second

// portTimeout is how long old data wait for their ports: nodes whose parent died need a moment to stop.
const portTimeout = 15 * time.Second

var (
	// ErrNotRunning means that the cluster has ended.
	ErrNotRunning = errors.New("the cluster isn't running")
	// ErrAllGaveUp means that no node is left that could be started again.
	ErrAllGaveUp = errors.New("no node is left that could be started again")
)

// Cluster is a cluster of processes. Use New.
type Cluster struct {
	config Config
	nodes  []*Node
	out    *log.Logger
	over   chan struct{} // closed when Run has returned
	gaveUp atomic.Int32  // nodes that won't be started again
	giveUp context.CancelCauseFunc
	// patience is how long nodes may take to stop.
	patience time.Duration
}

// New makes a cluster. Nothing is started, and nothing is read or written, before Run.
func New(config Config) (*Cluster, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Log == nil {
		config.Log = io.Discard
	}
	c := &Cluster{config: config, out: log.New(config.Log, "", 0), over: make(chan struct{}), patience: stopTimeout}
	for i := 1; i <= config.Nodes; i++ {
		c.nodes = append(c.nodes, newNode(c, i))
	}
	return c, nil
}

// Run starts all nodes and supervises them until ctx ends, then stops them gracefully, all at once and without
// handing leadership over. Nodes that haven't stopped after 15 s are killed. No node is left when it returns. Run
// may be called once.
//
// The error is an ErrInUse, ErrDiffers or ErrLayout when the data folder can't be used, and ErrAllGaveUp when every
// node ended in a way that starting it again can't cure.
func (c *Cluster) Run(ctx context.Context) error {
	defer close(c.over)
	folder, err := openFolder(&c.config)
	if err != nil {
		return err
	}
	if err := c.awaitPorts(ctx, folder.old); err != nil {
		return errors.Join(err, folder.Close())
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.giveUp = cancel
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() { (&supervisor{node: n, wanted: true}).run(inner) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return folder.Close()
	}
	return errors.Join(context.Cause(inner), folder.Close())
}

// Nodes returns all nodes in the order of their numbers.
func (c *Cluster) Nodes() []*Node { return append([]*Node(nil), c.nodes...) }

// Node returns the node with an id, nil if there is none.
func (c *Cluster) Node(id string) *Node {
	for _, n := range c.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// Endpoints returns the client addresses of all nodes.
func (c *Cluster) Endpoints() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.ClientAddress())
	}
	return list
}

func (c *Cluster) say(format string, args ...any) { c.out.Printf(format, args...) }

// awaitPorts returns when all ports are free. With old data they may be held by nodes that are about to stop; with
// new data somebody else has them.
func (c *Cluster) awaitPorts(ctx context.Context, old bool) error {
	ctx, cancel := context.WithTimeout(ctx, portTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for said := false; ; said = true {
		err := c.checkPorts()
		if err == nil || !old {
			return err
		}
		if !said {
			c.say("waiting: %v", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (c *Cluster) checkPorts() error {
	for _, n := range c.nodes {
		for _, offset := range []int{clientOffset, raftOffset, httpOffset} {
			l, err := net.Listen("tcp", c.config.address(offset, n.number))
			if err != nil {
				return fmt.Errorf("node %s can't have its port (another --base-port may be free): %w", n.id, err)
			}
			if err := l.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
