package raftguard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// scripted answers messages as a test says.
type scripted struct {
	*raft.InmemTransport
	answer func(id raft.ServerID, req *raft.AppendEntriesRequest) (uint64, error)
}

func (s *scripted) AppendEntries(id raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	term, err := s.answer(id, req)
	resp.Term = term
	return err
}

func accept(_ raft.ServerID, req *raft.AppendEntriesRequest) (uint64, error) { return req.Term, nil }

func newScripted(self raft.ServerID, answer func(raft.ServerID, *raft.AppendEntriesRequest) (uint64, error)) *Transport {
	return NewTransport(&scripted{inmem(self)[0], answer}, self)
}

func send(tr *Transport, id raft.ServerID, term uint64) {
	_ = tr.AppendEntries(id, raft.ServerAddress(id), &raft.AppendEntriesRequest{Term: term}, &raft.AppendEntriesResponse{})
}

// TestVerifyLeaderCountsNonVoters: raft's own proof of leadership succeeds by the answer of a non-voter, while the
// only other voter is gone and may be the leader of a new term by now (G5).
func TestVerifyLeaderCountsNonVoters(t *testing.T) {
	trs := inmem("a", "b", "n")
	b, _ := newPeer(t, "b", trs[1]), newPeer(t, "n", trs[2])
	tr := NewTransport(trs[0], "a")
	c := voters("a", "b", "n")
	c.Servers[2].Suffrage = raft.Nonvoter
	n := newNode("a", tr)
	n.bootstrap(t, c)
	r := n.start(t)
	elect(t, r, b, "a", "a")
	read := func(d time.Duration) error {
		since := time.Now()
		require.NoError(t, Await(within(t, patience), r.VerifyLeader()))
		return tr.WaitConfirmed(within(t, d), r.CurrentTerm(), since, func() raft.Configuration { return c })
	}
	require.NoError(t, read(patience))
	b.set(silent)
	require.ErrorIs(t, read(100*time.Millisecond), context.DeadlineExceeded, "bare raft says yes, the guard doesn't")
}

// TestProofNeedsMessagesSentAfterTheRead: VerifyLeader takes any answer that comes after the read, the guard only
// those to messages that were sent after it. The answer to an old message may have waited in a paused process (G5).
func TestProofNeedsMessagesSentAfterTheRead(t *testing.T) {
	sent, release := make(chan struct{}, 1), make(chan struct{})
	tr := newScripted("a", func(_ raft.ServerID, req *raft.AppendEntriesRequest) (uint64, error) {
		sent <- struct{}{}
		<-release
		return req.Term, nil
	})
	c := voters("a", "b")
	done := make(chan struct{})
	go func() { send(tr, "b", 3); close(done) }()
	<-sent
	before := time.Now().Add(-time.Hour)
	since := time.Now()
	close(release)
	<-done
	require.True(t, tr.Confirmed(3, before, c), "for a read that came before the message it is a proof")
	require.False(t, tr.Confirmed(3, since, c))
	send(tr, "b", 3)
	require.True(t, tr.Confirmed(3, since, c))
}

func TestConfirmed(t *testing.T) {
	five := voters("a", "b", "c", "d", "e")
	observers := voters("a", "b", "c", "d", "e")
	for _, i := range []int{3, 4} {
		observers.Servers[i].Suffrage = raft.Nonvoter
	}
	for name, c := range map[string]struct {
		configuration raft.Configuration
		from          []raft.ServerID
		want          bool
	}{
		"alone":                      {voters("a"), nil, true},
		"one of two":                 {voters("a", "b"), nil, false},
		"two of two":                 {voters("a", "b"), []raft.ServerID{"b"}, true},
		"two of five":                {five, []raft.ServerID{"b"}, false},
		"three of five":              {five, []raft.ServerID{"b", "e"}, true},
		"the same one twice":         {five, []raft.ServerID{"b", "b"}, false},
		"non-voters don't count":     {observers, []raft.ServerID{"d", "e"}, false},
		"a voter beside them does":   {observers, []raft.ServerID{"d", "e", "c"}, true},
		"not a voter itself":         {voters("b", "c"), []raft.ServerID{"b"}, false},
		"not itself, but the others": {voters("b", "c"), []raft.ServerID{"b", "c"}, true},
		"strangers don't count":      {voters("a", "b"), []raft.ServerID{"z"}, false},
		"nobody votes":               {raft.Configuration{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			tr, since := newScripted("a", accept), time.Now().Add(-time.Nanosecond)
			for _, id := range c.from {
				send(tr, id, 3)
			}
			require.Equal(t, c.want, tr.Confirmed(3, since, c.configuration))
		})
	}
}

func TestProofIsForOneTerm(t *testing.T) {
	var answered uint64
	var failure error
	tr := newScripted("a", func(raft.ServerID, *raft.AppendEntriesRequest) (uint64, error) { return answered, failure })
	c, since := voters("a", "b"), time.Now().Add(-time.Nanosecond)
	answered = 4
	send(tr, "b", 4)
	require.True(t, tr.Confirmed(4, since, c))
	require.False(t, tr.Confirmed(5, since, c), "not for a newer term")
	answered = 5
	send(tr, "b", 5)
	require.False(t, tr.Confirmed(4, since, c), "nor for an older one")
	require.False(t, tr.Confirmed(4, since, voters("a")), "even alone")
	send(tr, "b", 4)
	require.True(t, tr.Confirmed(5, since, c), "a late message of an older term changes nothing")

	failure = errors.New("unreachable")
	since = time.Now()
	send(tr, "b", 5)
	require.False(t, tr.Confirmed(5, since, c), "no answer is no proof")
	failure, answered = nil, 7
	send(tr, "b", 5)
	require.False(t, tr.Confirmed(5, since, c), "an answer of a newer term is a refusal")
	_, ok := tr.LastAck("b")
	require.False(t, ok)
}

// TestProofIsStrict: nobody knows which of two things came first that happened at one tick of the clock.
func TestProofIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, since := newScripted("a", accept), time.Now()
		send(tr, "b", 3)
		require.False(t, tr.Confirmed(3, since, voters("a", "b")))
		<-time.After(time.Nanosecond)
		send(tr, "b", 3)
		require.True(t, tr.Confirmed(3, since, voters("a", "b")))
	})
}

func TestWaitConfirmed(t *testing.T) {
	tr, c := newScripted("a", accept), voters("a", "b")
	asked := make(chan struct{}, 16)
	wait := func(ctx context.Context, term uint64) <-chan error {
		result := make(chan error, 1)
		since := time.Now().Add(-time.Nanosecond)
		go func() {
			result <- tr.WaitConfirmed(ctx, term, since, func() raft.Configuration {
				asked <- struct{}{}
				return c
			})
		}()
		<-asked
		return result
	}
	proved := wait(context.Background(), 3)
	send(tr, "b", 3)
	require.NoError(t, <-proved)
	at, ok := tr.LastAck("b")
	require.True(t, ok)
	require.WithinDuration(t, time.Now(), at, time.Minute)

	passed := wait(context.Background(), 3)
	send(tr, "z", 4)
	require.ErrorIs(t, <-passed, ErrTermPassed)

	ctx, cancel := context.WithCancelCause(context.Background())
	ended := wait(ctx, 4)
	why := errors.New("the caller went away")
	cancel(why)
	require.ErrorIs(t, <-ended, why)
}
