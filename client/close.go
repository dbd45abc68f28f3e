package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// maxFarewell is the most of the time given to Close that is kept for telling the cluster.
const maxFarewell = time.Second

// UnresolvedError says what was unresolved when a client was closed.
type UnresolvedError struct {
	// ClientID is the client that the requests belong to.
	ClientID uint64
	// Unknown counts the requests whose outcome isn't known: their effects may be there, or may appear yet.
	Unknown int
	// Told tells that the cluster took the close, so that no copy of them runs any more.
	Told bool
}

// Error says how many requests are unresolved.
func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("close: %d requests of client %d have an unknown outcome", e.Unknown, e.ClientID)
}

// Close ends the client. Calls that were not sent fail at once; Close waits until those that were are resolved, those
// given up by their callers too, and then tells the cluster that the client is no more. It returns when ctx ends at
// the latest, with an *UnresolvedError when the outcome of requests is unknown then, and another error when the
// cluster couldn't be told: then the client expires by itself. After Close every call fails with ErrClosed. Closing
// again waits for the first Close and returns what it returned.
func (c *Client) Close(ctx context.Context) error {
	if c.closing.CompareAndSwap(false, true) {
		c.closeErr = c.close(ctx)
		c.shutDown()
		close(c.closed)
	}
	select {
	case <-c.closed:
		return c.closeErr
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (c *Client) close(ctx context.Context) error {
	c.mu.Lock()
	c.engine.close()
	c.wakeLocked()
	c.mu.Unlock()
	c.awaitDrained(ctx)
	c.mu.Lock()
	farewell, unresolved := c.engine.leaveCluster()
	c.wakeLocked()
	c.mu.Unlock()
	if farewell == nil {
		return asUnresolved(unresolved)
	}
	select {
	case <-farewell.done:
	case <-ctx.Done():
	}
	return c.closeResult(ctx, farewell, unresolved)
}

// awaitDrained waits until no call is open, keeping some of the time for the close itself.
func (c *Client) awaitDrained(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(left/4, maxFarewell))
		defer cancel()
	}
	select {
	case <-c.engine.drained:
	case <-ctx.Done():
	}
}

// leaveCluster ends all calls that are still open and queues the close of the client, if there is one to close.
func (e *engine) leaveCluster() (farewell *call, unresolved *UnresolvedError) {
	e.last = true
	if id := e.id; id != nil && !id.ended {
		farewell = newCall(kindClose, "close")
		farewell.closed = &kvoncev1.Close{FirstOutstanding: id.ledger.first, Unresolved: id.ledger.unresolved > 0}
	}
	if n := e.endCalls(); n > 0 {
		unresolved = &UnresolvedError{Unknown: n}
		if e.id != nil {
			unresolved.ClientID = e.id.id
		}
	}
	if farewell != nil {
		e.retries.add(farewell, time.Time{})
	}
	return farewell, unresolved
}

// endCalls ends the calls that are open and returns how many of them have an unknown outcome.
func (e *engine) endCalls() (unknown int) {
	for _, c := range e.openCalls() {
		switch {
		case c.finished:
		case c.kind == kindRead || c.copies.harmless():
			e.finish(c, nil, c.fail(CodeClosed, NotApplied, ""), 0)
		default:
			unknown++
			e.finish(c, nil, c.fail(CodeClosed, Unknown, "the client was closed before the outcome was known"), keep)
		}
	}
	return unknown
}

// openCalls returns the calls of users that are not finished and have been sent.
func (e *engine) openCalls() []*call {
	open := slices.Concat(e.resends.calls, e.retries.calls)
	for l := range e.links {
		for _, f := range l.pending {
			if f.call != nil {
				open = append(open, f.call)
			}
		}
	}
	return slices.DeleteFunc(open, func(c *call) bool { return c.finished || c.kind == kindRegister || c.kind == kindClose })
}

func asUnresolved(err *UnresolvedError) error {
	if err == nil {
		return nil
	}
	return err
}

func (c *Client) closeResult(ctx context.Context, farewell *call, unresolved *UnresolvedError) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if unresolved != nil {
		unresolved.Told = farewell.finished && farewell.err == nil
		return unresolved
	}
	if farewell.finished {
		return asError(farewell.err)
	}
	err := c.engine.reason(farewell)
	err.Cause = contextError(ctx)
	return err
}

// shutDown stops everything and ends whatever waits.
func (c *Client) shutDown() {
	c.mu.Lock()
	c.engine.close()
	c.mu.Unlock()
	c.cancel()
	c.goroutines.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.endCalls()
}
