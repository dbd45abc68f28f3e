package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Client is a client of a kvonce cluster. It is safe for use by many goroutines, and meant to be shared by them: one
// Client is one registered client, one window and one stream, whatever the number of callers.
//
// A Client has one lock, which guards all of its protocol state and is never held across I/O. Its goroutines are: the
// manager, which finds nodes and changes between them; for each stream (one, and for a moment those it leaves) a sender
// and a receiver; and while it looks for a node, one for each attempt. There is none per call.
type Client struct {
	// Commands change data, each of them once.
	Commands

	config config
	// ctx ends when the client is closed; streams live in it.
	ctx    context.Context
	cancel context.CancelFunc
	// wanted holds a token when the manager should look whether a connection is needed.
	wanted     chan struct{}
	goroutines sync.WaitGroup
	closing    atomic.Bool
	closed     chan struct{}
	closeErr   error // set before closed is closed

	mu     sync.Mutex
	engine *engine
	// session is the one that new requests go to; nil without a connection.
	session *session
}

// Open makes a client and starts it. It fails on options that can't be and, with WithEagerRegistration, when the
// registration fails or ctx ends before it is done; otherwise it doesn't wait for the cluster. Ctx bounds Open alone.
// The client must be closed.
func Open(ctx context.Context, options ...Option) (*Client, error) {
	config, err := configOf(options)
	if err != nil {
		return nil, err
	}
	c := &Client{config: config, wanted: make(chan struct{}, 1), closed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.Commands = Commands{submit: c.write}
	c.engine = newEngine(&c.config)
	c.engine.register(time.Now())
	eager := c.engine.registering
	c.goroutines.Go(c.run)
	if eager == nil {
		return c, nil
	}
	if err := c.awaitRegistration(ctx, eager); err != nil {
		c.shutDown()
		return nil, err
	}
	return c, nil
}

func (c *Client) awaitRegistration(ctx context.Context, r *call) error {
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.finished {
		return asError(r.err)
	}
	err := c.engine.reason(r)
	err.Cause = contextError(ctx)
	return err
}

// asError keeps a nil *Error from becoming an error that isn't nil.
func asError(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}

// ClientID returns the id of the registered client, or 0 when there is none: before the first write, and after an
// expiry until the next write.
func (c *Client) ClientID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine.id == nil {
		return 0
	}
	return c.engine.id.id
}

// Unregistered returns commands that are sent without a client: at most once, and never again after the request may
// have reached the log. They cost the cluster no memory, and leave the caller with an outcome that stays unknown when
// an answer is lost.
func (c *Client) Unregistered() *Unregistered {
	return &Unregistered{Commands{submit: c.writeUnregistered}}
}

// Unregistered has the commands that are sent without a client. See Client.Unregistered.
type Unregistered struct{ Commands }

// write runs a command under this client.
func (c *Client) write(ctx context.Context, op string, cmd *kvoncev1.Command) (Result, error) {
	x := newCommand(kindWrite, op, cmd)
	r, err := c.do(ctx, x)
	if err != nil && err.Outcome == Unknown {
		return Result{}, &UnknownError{err: err, client: c, call: x}
	}
	if err != nil {
		return Result{}, err
	}
	return resultOf(x.node, r), nil
}

func (c *Client) writeUnregistered(ctx context.Context, op string, cmd *kvoncev1.Command) (Result, error) {
	x := newCommand(kindUnregistered, op, cmd)
	r, err := c.do(ctx, x)
	if err != nil {
		return Result{}, err
	}
	return resultOf(x.node, r), nil
}

// do runs a call until it is finished or ctx ends.
func (c *Client) do(ctx context.Context, x *call) (*kvoncev1.Response, *Error) {
	if err := c.begin(ctx, x); err != nil {
		return nil, err
	}
	select {
	case <-x.done:
		return x.response, x.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.engine.giveUp(x, contextError(ctx)); err != nil {
		return nil, err
	}
	return x.response, x.err
}

func (c *Client) begin(ctx context.Context, x *call) *Error {
	if x.size > MaxRequestBytes {
		err := x.fail(wireCode(kvoncev1.Code_REQUEST_TOO_LARGE), NotApplied, "a request may have at most 2097152 bytes")
		err.Limit = MaxRequestBytes
		return err
	}
	if ctx.Err() != nil {
		err := x.fail(CodeNotSent, NotApplied, "")
		err.Cause = contextError(ctx)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.engine.add(x); err != nil {
		return err
	}
	c.wakeLocked()
	return nil
}

// wakeLocked makes whoever can send look: the sender of the session, or else the manager.
func (c *Client) wakeLocked() {
	if c.session != nil {
		signal(c.session.wake)
	} else {
		signal(c.wanted)
	}
}

// signal leaves a token in a channel with room for one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
