package client

import (
	"context"
	"time"
)

// UnknownError is the error of a write whose outcome isn't known: its context ended while a copy of the request may
// have reached the log. The client goes on resolving the request in the background, under the same sequence, until its
// outcome is known or nothing more can be learned. The request holds its place in the window until then.
type UnknownError struct {
	err    *Error
	client *Client
	call   *call
}

// Error says which call it was and why it was given up.
func (e *UnknownError) Error() string { return e.err.Error() }

// Unwrap returns the *Error with the details; below it lies the cause of the context.
func (e *UnknownError) Unwrap() error { return e.err }

// Done returns a channel that is closed when the request is resolved: Wait then returns at once.
func (e *UnknownError) Done() <-chan struct{} { return e.call.done }

// Wait waits until the request is resolved and returns what the call would have returned. An error with outcome Applied
// means that the request took effect and that its answer isn't kept: the client keeps MaxKeptAnswers of them. When ctx
// ends first, the error is another *UnknownError for the same request.
func (e *UnknownError) Wait(ctx context.Context) (Result, error) {
	select {
	case <-e.call.done:
		return e.resolved()
	default:
	}
	select {
	case <-e.call.done:
		return e.resolved()
	case <-ctx.Done():
		err := *e.err
		err.Cause = contextError(ctx)
		return Result{}, &UnknownError{err: &err, client: e.client, call: e.call}
	}
}

// Cancel makes the outcome final: the request's own if it has run, and an error that is ErrCancelled, with outcome
// NotApplied, if it hasn't; then no copy of it ever will. When ctx ends first the error is another *UnknownError, and
// the client goes on cancelling.
func (e *UnknownError) Cancel(ctx context.Context) (Result, error) {
	e.client.mu.Lock()
	e.client.engine.cancel(e.call, time.Now())
	e.client.wakeLocked()
	e.client.mu.Unlock()
	return e.Wait(ctx)
}

// resolved returns the end of the request. The lock is taken because kept answers are dropped under it.
func (e *UnknownError) resolved() (Result, error) {
	e.client.mu.Lock()
	r, err := e.call.response, e.call.err
	e.client.mu.Unlock()
	if err != nil {
		return Result{}, err
	}
	return resultOf(e.call.node, r), nil
}
