package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// once does something with the first request that matches, and serves everything else.
func once(match func(*kvoncev1.Request) bool, a func() action) script {
	var done atomic.Bool
	return func(_ *fakeNode, r *kvoncev1.Request) action {
		if match(r) && done.CompareAndSwap(false, true) {
			return a()
		}
		return serve
	}
}

// writes returns a script that does something with writes and serves everything else.
func writes(a func() action) script {
	return func(_ *fakeNode, r *kvoncev1.Request) action {
		if isWrite(r) {
			return a()
		}
		return serve
	}
}

func always(a action) func() action { return func() action { return a } }

// A request whose answer was lost is sent again under the same sequence and salt, with the same command; it takes effect
// once (G1), and its answer is the first one (G3).
func TestRetryAfterLostAnswer(t *testing.T) {
	f := newFakeCluster(t, 3)
	f.does(once(isWrite, always(cutOff)))
	c := f.open()
	r, err := c.Increment(soon(t), "n", 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, r.Value)
	require.True(t, r.Replayed)

	copies := f.requests(isWrite)
	require.Len(t, copies, 2)
	a, b := copies[0].request.GetWrite(), copies[1].request.GetWrite()
	require.Equal(t, a.GetSequence(), b.GetSequence())
	require.Equal(t, a.GetSalt(), b.GetSalt())
	require.Len(t, a.GetSalt(), saltBytes)
	require.True(t, proto.Equal(a.GetCommand(), b.GetCommand()))
	require.Equal(t, copies[0].client, copies[1].client)
	require.Equal(t, "5", string(f.registry.view().keys["n"]))
}

// Each refusal that another copy may escape is retried until the caller's context ends.
func TestRefusalsAreRetried(t *testing.T) {
	for _, code := range []kvoncev1.Code{
		kvoncev1.Code_BUSY, kvoncev1.Code_TRANSFERRING, kvoncev1.Code_NOT_READY, kvoncev1.Code_NOT_LEADER, kvoncev1.Code_SHUTTING_DOWN,
		kvoncev1.Code_WINDOW_EXCEEDED, kvoncev1.Code_ANSWERS_FULL, kvoncev1.Code_OUT_OF_ORDER,
	} {
		t.Run(code.String(), func(t *testing.T) {
			f := newFakeCluster(t, 1)
			var n atomic.Int32
			f.does(writes(func() action {
				if n.Add(1) <= 3 {
					return refuse(code)
				}
				return serve
			}))
			_, err := f.open().Put(soon(t), "k", nil)
			require.NoError(t, err)
			require.EqualValues(t, 4, n.Load())
		})
	}
}

// A node that can't tell leaves the copy unresolved; another one finds out.
func TestUnknownAnswersAreRetried(t *testing.T) {
	for _, code := range []kvoncev1.Code{kvoncev1.Code_LEADERSHIP_LOST, kvoncev1.Code_TIMEOUT} {
		t.Run(code.String(), func(t *testing.T) {
			f := newFakeCluster(t, 1)
			f.does(once(isWrite, func() action {
				a := say(code, kvoncev1.Outcome_UNKNOWN)
				return a
			}))
			_, err := f.open().Put(soon(t), "k", nil)
			require.NoError(t, err)
		})
	}
}

// A refusal's retry_after is honoured.
func TestRetryAfter(t *testing.T) {
	f := newFakeCluster(t, 1)
	var first, second atomic.Int64
	f.does(writes(func() action {
		if first.CompareAndSwap(0, time.Now().UnixNano()) {
			a := refuse(kvoncev1.Code_BUSY)
			a.answer.RetryAfterMs = 120
			return a
		}
		second.Store(time.Now().UnixNano())
		return serve
	}))
	_, err := f.open().Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Duration(second.Load()-first.Load()), 115*time.Millisecond)
}

// A failure that the log decided is the answer: it isn't retried, and its outcome is not applied.
func TestDecidedFailure(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.registry.set("k", "text")
	c := f.open()
	_, err := c.Increment(soon(t), "k", 1)
	require.ErrorIs(t, err, ErrNotANumber)
	require.Equal(t, NotApplied, OutcomeOf(err))
	var e *Error
	require.ErrorAs(t, err, &e)
	require.NotZero(t, e.Meta.Index)
	require.Len(t, f.requests(isWrite), 1)
}

// Refusals that no copy can escape fold: not applied when every copy was refused, unknown when one was lost before.
func TestHopelessRefusals(t *testing.T) {
	for _, code := range []kvoncev1.Code{kvoncev1.Code_INVALID_ARGUMENT, kvoncev1.Code_REQUEST_TOO_LARGE, kvoncev1.Code_INVALID, kvoncev1.Code_WRONG_SECRET} {
		t.Run(code.String(), func(t *testing.T) {
			f := newFakeCluster(t, 1)
			f.does(writes(func() action { return refuse(code) }))
			_, err := f.open().Put(soon(t), "k", nil)
			require.Equal(t, NotApplied, OutcomeOf(err), err)
			require.Len(t, f.requests(isWrite), 1)

			var lost atomic.Bool
			f.does(writes(func() action {
				if lost.CompareAndSwap(false, true) {
					return cutOff
				}
				return refuse(code)
			}))
			_, err = f.open().Put(soon(t), "k", nil)
			require.Equal(t, Unknown, OutcomeOf(err), err)
			var u *UnknownError
			require.ErrorAs(t, err, &u)
			<-u.Done() // nothing more can be learned
		})
	}
}

// Sequences that the cluster no longer tells about are unknown, and aren't sent again; calls after them go on.
func TestUnknowableIsFinal(t *testing.T) {
	for _, code := range []kvoncev1.Code{kvoncev1.Code_STALE_SEQUENCE, kvoncev1.Code_SEQUENCE_REUSED} {
		t.Run(code.String(), func(t *testing.T) {
			f := newFakeCluster(t, 1)
			f.does(once(isWrite, func() action { return say(code, kvoncev1.Outcome_UNKNOWN) }))
			c := f.open()
			_, err := c.Put(soon(t), "k", nil)
			require.Equal(t, Unknown, OutcomeOf(err))
			var u *UnknownError
			require.ErrorAs(t, err, &u)
			_, err = u.Wait(soon(t))
			require.Equal(t, Unknown, OutcomeOf(err))
			_, err = c.Put(soon(t), "k", nil)
			require.NoError(t, err)
			require.Len(t, f.requests(isWrite), 2)
		})
	}
}

// Applied with the answer gone is an error that says so (G4).
func TestAnswerGone(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(writes(func() action { return say(kvoncev1.Code_ANSWER_GONE, kvoncev1.Outcome_APPLIED) }))
	_, err := f.open().Put(soon(t), "k", nil)
	require.ErrorIs(t, err, ErrAnswerGone)
	require.Equal(t, Applied, OutcomeOf(err))
}

// Every kind of call returns when its context ends, whatever the cluster does or doesn't do, with an error that holds
// the cause and, where nothing was sent, the outcome not applied.
func TestEveryCallEndsWithItsContext(t *testing.T) {
	states := map[string]struct {
		script script
		silent bool
		down   bool
		sent   bool
	}{
		"nobody listens":             {down: true},
		"nobody welcomes":            {silent: true},
		"no registration":            {script: func(*fakeNode, *kvoncev1.Request) action { return ignore }},
		"registration refused":       {script: func(*fakeNode, *kvoncev1.Request) action { return refuse(kvoncev1.Code_NOT_READY) }},
		"requests are refused":       {script: func(_ *fakeNode, r *kvoncev1.Request) action { return registerOnly(r, refuseFor(time.Minute)) }},
		"answers are lost":           {script: func(_ *fakeNode, r *kvoncev1.Request) action { return registerOnly(r, ignore) }, sent: true},
		"streams break at a request": {script: func(_ *fakeNode, r *kvoncev1.Request) action { return registerOnly(r, drop) }, sent: true},
	}
	for name, s := range states {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t, 2)
			f.does(s.script)
			for _, n := range f.nodes {
				n.silent = s.silent
				if s.down {
					n.stop()
				}
			}
			for call := range everyCall(nil) {
				do := everyCall(f.open())[call]
				ctx := within(t, 60*time.Millisecond)
				began := time.Now()
				err := do(ctx)
				require.Less(t, time.Since(began), 2*time.Second, call)
				require.ErrorIs(t, err, context.DeadlineExceeded, call)
				want := NotApplied
				if s.sent && call == "put" {
					want = Unknown
				}
				require.Equal(t, want, OutcomeOf(err), "%s: %v", call, err)
				if s.down {
					require.ErrorIs(t, err, ErrUnavailable, call)
				}
			}
		})
	}
}

// refuseFor refuses such that no other copy is sent for a while.
func refuseFor(d time.Duration) action {
	a := refuse(kvoncev1.Code_BUSY)
	a.answer.RetryAfterMs = milliseconds(d)
	return a
}

func registerOnly(r *kvoncev1.Request, a action) action {
	if r.GetRegister() != nil {
		return serve
	}
	return a
}

func everyCall(c *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"put":          func(ctx context.Context) error { _, err := c.Put(ctx, "k", nil); return err },
		"get":          func(ctx context.Context) error { _, err := c.Get(ctx, "k"); return err },
		"serializable": func(ctx context.Context) error { _, err := c.Get(ctx, "k", Serializable()); return err },
		"list": func(ctx context.Context) error {
			for _, err := range c.List(ctx, "k") {
				return err
			}
			return errors.New("nothing was listed, and no error")
		},
	}
}

// A context's own cause is in the error beside the plain one.
func TestCauseOfTheContext(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(writes(always(ignore)))
	c := f.open()
	because := errors.New("the user went home")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.Put(ctx, "k", nil)
		failed <- err
	}()
	require.Eventually(t, func() bool { return len(f.requests(isWrite)) == 1 }, 5*time.Second, time.Millisecond)
	cancel(because)
	err := <-failed
	require.ErrorIs(t, err, because)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Unknown, OutcomeOf(err))

	ctx, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	_, err = c.Put(ctx, "k", nil)
	require.Equal(t, NotApplied, OutcomeOf(err), "nothing is sent for a context that has ended")
	require.Len(t, f.requests(isWrite), 1)
}

// What can't be sent is refused before it is.
func TestRefusedLocally(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.open()
	ctx := soon(t)
	_, err := c.Put(ctx, "k", make([]byte, MaxRequestBytes))
	require.ErrorIs(t, err, ErrTooLarge)
	require.Equal(t, NotApplied, OutcomeOf(err))
	require.ErrorContains(t, err, "2097152")
	for _, err := range []error{
		second(c.Put(ctx, "", nil)), second(c.Get(ctx, "")), second(c.Delete(ctx, "")), second(c.Increment(ctx, "", 1)),
		second(c.Append(ctx, "", nil)), second(c.DeletePrefix(ctx, "")), second(c.Unregistered().Put(ctx, "", nil)),
	} {
		require.ErrorIs(t, err, ErrKeyEmpty)
		require.Equal(t, NotApplied, OutcomeOf(err))
	}
	require.Empty(t, f.requests(func(*kvoncev1.Request) bool { return true }))
}

func second[R any](_ R, err error) error { return err }

// A leader that is paused, as with SIGSTOP, is left: its stream has unanswered requests and gives no answer. What was
// sent to it is sent elsewhere under the same sequence.
func TestSilentNodeIsLeft(t *testing.T) {
	timing := defaultTiming()
	timing.silence, timing.check = 100*time.Millisecond, 10*time.Millisecond
	f := newFakeCluster(t, 3)
	c := f.open(withTiming(timing))
	_, err := c.Put(soon(t), "a", nil)
	require.NoError(t, err)
	f.does(func(n *fakeNode, r *kvoncev1.Request) action {
		if n.id == "n1" {
			return ignore
		}
		return serve
	})
	f.lead("n2")
	r, err := c.Put(soon(t), "k", nil)
	require.NoError(t, err)
	require.NotEqual(t, "n1", r.Node)
	sent := f.requests(func(r *kvoncev1.Request) bool { return string(r.GetWrite().GetCommand().GetPut().GetKey()) == "k" })
	require.Greater(t, len(sent), 1)
	require.Equal(t, sent[0].request.GetWrite().GetSequence(), sent[len(sent)-1].request.GetWrite().GetSequence())
}

// One request that gets no answer while others do isn't waited for without end.
func TestUnansweredRequestIsNoticed(t *testing.T) {
	l := newLink("a", "n", nil)
	timing := defaultTiming()
	now := time.Unix(0, 0)
	forgotten := l.send(flight{at: now})
	for range 20 {
		now = now.Add(time.Second)
		tag := l.send(flight{at: now})
		_, ok := l.take(tag, now)
		require.True(t, ok)
		require.Equal(t, now.Sub(time.Unix(0, 0)) > timing.answer, l.silent(&timing, now))
	}
	_, ok := l.take(forgotten, now)
	require.True(t, ok)
	require.False(t, l.silent(&timing, now.Add(time.Hour)), "nothing is owed")
}

// The more is on its way, the longer may a slow connection be silent.
func TestSilenceAllowsForSlowLinks(t *testing.T) {
	l := newLink("a", "n", nil)
	timing := defaultTiming()
	l.send(flight{size: MaxRequestBytes, at: time.Unix(0, 0)})
	require.False(t, l.silent(&timing, time.Unix(6, 0)))
	require.True(t, l.silent(&timing, time.Unix(60, 0)))
}

// Many callers, and streams that break all the time, before or after the log: every increment takes effect once (G1).
func TestIncrementsUnderFaults(t *testing.T) {
	f := newFakeCluster(t, 3)
	var n atomic.Int64
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if !isWrite(r) {
			return serve
		}
		switch n.Add(1) % 23 {
		case 5:
			return drop
		case 11:
			return cutOff
		case 17:
			return refuse(kvoncev1.Code_NOT_LEADER)
		}
		return serve
	})
	timing := defaultTiming()
	timing.reconnect = backoff{time.Millisecond, 5 * time.Millisecond}
	c := f.open(withTiming(timing))
	const callers, each = 8, 40
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range each {
				if _, err := c.Increment(soon(t), "n", 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	g, err := c.Get(soon(t), "n")
	require.NoError(t, err)
	require.Equal(t, "320", string(g.Value))
	require.NoError(t, c.Close(soon(t)))
	require.False(t, f.registry.view().closes[0].GetUnresolved())
	require.EqualValues(t, callers*each+1, f.registry.view().closes[0].GetFirstOutstanding())
}

// An idle client says that it is there before a third of its time to live is over, and what it has resolved; its own
// writes make that unnecessary. Missed touches don't make it give itself up.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t, 1)
		f.registry.ttlMs = 30_000
		c := f.open()
		_, err := c.Put(soon(t), "k", nil)
		require.NoError(t, err)
		id := c.ClientID()

		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Empty(t, f.requests(isTouch))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		touches := f.requests(isTouch)
		require.Len(t, touches, 1)
		require.EqualValues(t, 2, touches[0].request.GetTouch().GetProgress().GetFirstOutstanding())

		for range 10 {
			_, err := c.Put(soon(t), "k", nil)
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		require.Len(t, f.requests(isTouch), 1, "writes are sign enough")

		f.does(func(_ *fakeNode, r *kvoncev1.Request) action { return ignore })
		time.Sleep(10 * time.Minute)
		require.Equal(t, id, c.ClientID(), "only the log decides that a client is gone")
		require.Less(t, len(f.requests(isTouch)), 600, "a node that is silent isn't flooded")
		f.does(nil)
		time.Sleep(10 * time.Second)
		_, err = c.Put(soon(t), "k", nil)
		require.NoError(t, err)
		require.Equal(t, id, c.ClientID())
		require.NoError(t, c.Close(soon(t)))
		f.nodes[0].stop()
	})
}

func isTouch(r *kvoncev1.Request) bool { return r.GetTouch() != nil }

func isRegister(r *kvoncev1.Request) bool { return r.GetRegister() != nil }
