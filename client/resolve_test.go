package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// unknown runs a write that the script leaves without an answer until its context ends.
func unknown(t testing.TB, write func(context.Context) error) *UnknownError {
	t.Helper()
	err := write(within(t, 30*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var u *UnknownError
	require.ErrorAs(t, err, &u)
	require.Equal(t, Unknown, OutcomeOf(err))
	return u
}

func put(c *Client, key string) func(context.Context) error {
	return func(ctx context.Context) error { return c.put(ctx, key) }
}

func isCancel(r *kvoncev1.Request) bool { return r.GetCancel() != nil }

// A request that was given up is resolved in the background, under its sequence, and Wait returns its answer. The first
// outstanding sequence doesn't pass it before.
func TestWaitForTheAnswer(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if r.GetWrite().GetSequence() == 1 {
			return ignore
		}
		return serve
	})
	c := f.open()
	u := unknown(t, func(ctx context.Context) error { return second(c.Increment(ctx, "n", 7)) })
	_, err := u.Wait(within(t, 10*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, Unknown, OutcomeOf(err))
	_, err = c.Put(soon(t), "k", nil)
	require.NoError(t, err)
	copies := f.requests(isWrite)
	require.EqualValues(t, 1, copies[len(copies)-1].request.GetWrite().GetProgress().GetFirstOutstanding())

	f.does(nil)
	f.nodes[0].stop()
	f.nodes[0].start()
	var again *UnknownError
	require.ErrorAs(t, err1(u.Wait(within(t, time.Nanosecond))), &again)
	r, err := again.Wait(soon(t))
	require.NoError(t, err)
	require.EqualValues(t, 7, r.Ops[0].Number)
	r, err = u.Wait(soon(t))
	require.NoError(t, err, "the answer is kept")
	require.EqualValues(t, 7, r.Ops[0].Number)

	_, err = c.Put(soon(t), "k", nil)
	require.NoError(t, err)
	copies = f.requests(isWrite)
	require.EqualValues(t, 3, copies[len(copies)-1].request.GetWrite().GetProgress().GetFirstOutstanding())
}

func err1[R any](_ R, err error) error { return err }

// A context that ends after every copy was refused one by one leaves a request that never ran (not applied): it isn't
// sent any more, and the first outstanding sequence passes it.
func TestRefusedCopiesFold(t *testing.T) {
	f := newFakeCluster(t, 1)
	var copies atomic.Int32
	f.does(writes(func() action {
		if copies.Add(1) < 3 {
			return refuse(kvoncev1.Code_BUSY)
		}
		return refuseFor(time.Minute)
	}))
	c := f.open()
	err := c.put(within(t, 200*time.Millisecond), "a")
	require.Equal(t, NotApplied, OutcomeOf(err), err)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, f.requests(isWrite), 3)

	f.does(nil)
	require.NoError(t, c.put(soon(t), "b"))
	sent := f.requests(isWrite)
	last := sent[len(sent)-1].request.GetWrite()
	require.EqualValues(t, 2, last.GetSequence())
	require.EqualValues(t, 2, last.GetProgress().GetFirstOutstanding())
	require.Nil(t, f.registry.view().keys["a"])
}

func (c *Client) put(ctx context.Context, key string) error {
	return second(c.Put(ctx, key, []byte("v")))
}

// One copy that was lost makes the request unknown, however many were refused after it.
func TestG4LostCopyNeverFolds(t *testing.T) {
	f := newFakeCluster(t, 1)
	var copies int
	f.does(writes(func() action {
		if copies++; copies == 1 {
			return cutOff
		}
		return refuse(kvoncev1.Code_BUSY)
	}))
	c := f.open()
	u := unknown(t, put(c, "a"))
	f.does(nil)
	_, err := u.Wait(soon(t))
	require.NoError(t, err, "it had run")
}

// Cancel makes the outcome final: the request never runs, not even a late copy of it, or it ran and has its answer.
func TestCancel(t *testing.T) {
	t.Run("before it ran", func(t *testing.T) {
		f := newFakeCluster(t, 1)
		f.does(writes(always(ignore)))
		c := f.open()
		u := unknown(t, put(c, "a"))
		r, err := u.Cancel(soon(t))
		require.ErrorIs(t, err, ErrCancelled)
		require.Equal(t, NotApplied, OutcomeOf(err))
		require.Empty(t, r.Ops)
		late := f.requests(isWrite)[0]
		answer := f.registry.apply(late.client, c.engine.id.secret, late.request)
		require.Equal(t, kvoncev1.Code_CANCELLED, answer.GetCode())
		require.Nil(t, f.registry.view().keys["a"])
		_, err = u.Wait(soon(t))
		require.ErrorIs(t, err, ErrCancelled)
	})
	t.Run("after it ran", func(t *testing.T) {
		f := newFakeCluster(t, 1)
		f.does(writes(always(swallow)))
		u := unknown(t, func(ctx context.Context) error { return second(f.open().Increment(ctx, "n", 3)) })
		r, err := u.Cancel(soon(t))
		require.NoError(t, err)
		require.EqualValues(t, 3, r.Ops[0].Number)
	})
	t.Run("over refusals and broken streams", func(t *testing.T) {
		f := newFakeCluster(t, 1)
		var n int
		f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
			switch {
			case isWrite(r):
				return ignore
			case isCancel(r):
				if n++; n < 5 {
					return []action{drop, refuse(kvoncev1.Code_BUSY), cutOff, refuse(kvoncev1.Code_NOT_LEADER)}[n-1]
				}
			}
			return serve
		})
		u := unknown(t, put(f.open(), "a"))
		_, err := u.Cancel(within(t, time.Nanosecond))
		require.Equal(t, Unknown, OutcomeOf(err))
		_, err = u.Wait(soon(t))
		require.ErrorIs(t, err, ErrCancelled, "cancelling goes on without the caller")
		require.Len(t, f.requests(isWrite), 1, "a cancel is sent in place of further copies")
	})
}

// An answer that was dropped to make room is gone; that the request took effect is still known.
func TestKeptAnswersAreBounded(t *testing.T) {
	var k keptAnswers
	calls := make([]*call, MaxKeptAnswers+5)
	for i := range calls {
		calls[i] = newCommand(kindWrite, "put", &kvoncev1.Command{})
		calls[i].response = &kvoncev1.Response{Code: kvoncev1.Code_OK, Index: uint64(i)}
		k.add(calls[i])
	}
	require.Len(t, k.calls, MaxKeptAnswers)
	require.Nil(t, calls[4].response)
	require.Equal(t, Applied, calls[4].err.Outcome)
	require.ErrorIs(t, calls[4].err, ErrAnswerGone)
	require.EqualValues(t, 4, calls[4].err.Meta.Index)
	require.NotNil(t, calls[5].response)

	large := newCommand(kindWrite, "put", &kvoncev1.Command{})
	large.response = &kvoncev1.Response{Message: string(make([]byte, MaxKeptBytes))}
	k.add(large)
	require.Empty(t, k.calls)
	require.Zero(t, k.bytes)
	require.ErrorIs(t, large.err, ErrAnswerGone)
}

// The window bounds how far sequences run ahead of an unresolved one. Then new calls wait, and have sent nothing when
// their contexts end; other answers go on.
func TestWindowFull(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.registry.window = 3
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if r.GetWrite().GetSequence() == 1 {
			return ignore
		}
		return serve
	})
	c := f.open()
	u := unknown(t, put(c, "a"))
	require.NoError(t, c.put(soon(t), "b"))
	require.NoError(t, c.put(soon(t), "c"))
	err := c.put(within(t, 30*time.Millisecond), "d")
	require.Equal(t, NotApplied, OutcomeOf(err))
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, CodeWindowFull, e.Code)
	require.Len(t, f.requests(isWrite), 3, "nothing was sent for it, and no sequence used")
	_, err = c.Get(soon(t), "b")
	require.NoError(t, err, "reads need no room")

	waiting := make(chan error, 1)
	go func() { waiting <- c.put(soon(t), "e") }()
	_, err = u.Cancel(soon(t))
	require.ErrorIs(t, err, ErrCancelled)
	require.NoError(t, <-waiting, "there is room again")
}

// WithMaxUnresolved makes new writes wait earlier.
func TestMaxUnresolved(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if r.GetWrite().GetSequence() == 1 {
			return ignore
		}
		return serve
	})
	c := f.open(WithMaxUnresolved(1))
	u := unknown(t, put(c, "a"))
	require.Equal(t, NotApplied, OutcomeOf(c.put(within(t, 30*time.Millisecond), "b")))
	_, err := u.Cancel(soon(t))
	require.ErrorIs(t, err, ErrCancelled)
	require.NoError(t, c.put(soon(t), "b"))
}

// Answers that the cluster holds above the first outstanding sequence are named as received when they are large, so
// that they are dropped and later requests find room.
func TestReceivedAnswersMakeRoom(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.registry.answerCap = 2000
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if r.GetWrite().GetSequence() == 1 {
			return ignore
		}
		return serve
	})
	c := f.open()
	u := unknown(t, put(c, "a"))
	for range 10 { // more than there is room for: 8 answers with their overhead, if none is named
		if err := c.put(within(t, 100*time.Millisecond), "b"); err != nil {
			require.ErrorIs(t, err, ErrAnswersFull)
			require.Equal(t, NotApplied, OutcomeOf(err))
		}
	}
	_, err := u.Cancel(soon(t))
	require.ErrorIs(t, err, ErrCancelled)
	require.NoError(t, c.put(soon(t), "b"))
}
