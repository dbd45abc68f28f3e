package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func isUnregistered(r *kvoncev1.Request) bool { return r.GetUnregistered() != nil }

// An unregistered command is sent once, registers nobody, and is never sent again once it may have reached the log.
func TestUnregistered(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.open()
	r, err := c.Unregistered().Increment(soon(t), "n", 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Value)
	require.Empty(t, f.requests(isRegister))
	require.Zero(t, c.ClientID())

	for name, a := range map[string]action{
		"the stream breaks":       cutOff,
		"leadership is lost":      say(kvoncev1.Code_LEADERSHIP_LOST, kvoncev1.Outcome_UNKNOWN),
		"no answer comes in time": swallow,
	} {
		t.Run(name, func(t *testing.T) {
			before := len(f.requests(isUnregistered))
			f.does(func(*fakeNode, *kvoncev1.Request) action { return a })
			_, err := c.Unregistered().Increment(within(t, 100*time.Millisecond), "n", 1)
			require.Equal(t, Unknown, OutcomeOf(err), err)
			var u *UnknownError
			require.NotErrorAs(t, err, &u, "nothing more will be learned")
			require.Len(t, f.requests(isUnregistered), before+1)
		})
	}
}

// A refusal says that the only copy did nothing, so that another may be sent.
func TestUnregisteredAfterRefusal(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(once(isUnregistered, func() action { return refuse(kvoncev1.Code_BUSY) }))
	_, err := f.open().Unregistered().Put(soon(t), "k", nil)
	require.NoError(t, err)

	f.does(func(*fakeNode, *kvoncev1.Request) action { return refuseFor(time.Minute) })
	_, err = f.open().Unregistered().Put(within(t, 50*time.Millisecond), "k", nil)
	require.Equal(t, NotApplied, OutcomeOf(err), err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A decided failure is not applied.
func TestUnregisteredFailure(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.registry.set("k", "text")
	_, err := f.open().Unregistered().Increment(soon(t), "k", 1)
	require.ErrorIs(t, err, ErrNotANumber)
	require.Equal(t, NotApplied, OutcomeOf(err))
}
