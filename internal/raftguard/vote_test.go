package raftguard

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

var (
	voteTerm      = []byte(keyVoteTerm)
	voteCandidate = []byte(keyVoteCandidate)
	errPower      = errors.New("power cut")
)

// crashing loses power between the two writes of a vote.
type crashing struct {
	raft.StableStore
	on atomic.Bool
}

func (c *crashing) Set(key, v []byte) error {
	if c.on.Load() {
		return errPower
	}
	return c.StableStore.Set(key, v)
}

// TestTornVote is hashicorp/raft #661: a vote is half written when the power goes. Without the guard the node, whose
// log ends at (10, 5), then takes the vote it gave in an older term for one of the new term, and votes for a node
// whose log ends at (1, 1): what was committed is lost (G2).
func TestTornVote(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		logs := raft.NewInmemStore()
		fill(t, logs, voters("a", "b", "v"), 5, 1, 10, "committed")
		disk := &crashing{StableStore: raft.NewInmemStore()}
		ask := func(from raft.ServerID, term, last, lastTerm uint64) bool {
			trs := inmem("v", from)
			n := newNode("v", trs[0])
			n.logs, n.stable = logs, disk
			if guarded {
				n.stable = NewVoteStore(disk)
			}
			r := n.start(t)
			defer stop(r)
			var resp raft.RequestVoteResponse
			require.NoError(t, trs[1].RequestVote("v", "v", &raft.RequestVoteRequest{RPCHeader: header(from), Term: term,
				LastLogIndex: last, LastLogTerm: lastTerm}, &resp))
			return resp.Granted
		}
		require.True(t, ask("a", 6, 10, 5))
		require.True(t, ask("a", 6, 10, 5), "the same vote again")
		require.False(t, ask("b", 6, 10, 5), "one vote in a term")
		disk.on.Store(true)
		require.False(t, ask("b", 7, 10, 5))
		disk.on.Store(false)
		require.Equal(t, !guarded, ask("a", 7, 1, 1), "without the guard the fault shows")
		require.Equal(t, guarded, ask("b", 7, 10, 5))
	})
}

func TestVoteStore(t *testing.T) {
	bolt, err := OpenBolt(filepath.Join(t.TempDir(), "raft.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = bolt.Close() })
	s := NewVoteStore(bolt)

	_, err = s.GetUint64(voteTerm)
	require.EqualError(t, err, "not found", "raft compares this text")
	_, err = s.Get(voteCandidate)
	require.EqualError(t, err, "not found")

	require.NoError(t, bolt.SetUint64(voteTerm, 3))
	require.NoError(t, bolt.Set(voteCandidate, []byte("old")))
	requireVote(t, s, 3, "old")

	require.NoError(t, s.SetUint64(voteTerm, 4))
	requireVote(t, s, 3, "old")
	requireVote(t, NewVoteStore(bolt), 3, "old")
	require.NoError(t, s.Set(voteCandidate, []byte("a")))
	requireVote(t, s, 4, "a")
	requireVote(t, NewVoteStore(bolt), 4, "a")
	require.ErrorIs(t, s.Set(voteCandidate, []byte("b")), errNoTerm)
	requireVote(t, s, 4, "a")

	require.NoError(t, s.SetUint64([]byte("CurrentTerm"), 9))
	term, err := s.GetUint64([]byte("CurrentTerm"))
	require.NoError(t, err)
	require.Equal(t, uint64(9), term)
	require.NoError(t, s.Set([]byte("other"), []byte("x")))
	v, err := bolt.Get([]byte("other"))
	require.NoError(t, err)
	require.Equal(t, "x", string(v))

	require.NoError(t, bolt.Set([]byte(keyVote), []byte("short")))
	_, err = s.GetUint64(voteTerm)
	require.ErrorContains(t, err, "damaged")
	_, err = s.Get(voteCandidate)
	require.ErrorContains(t, err, "damaged")
}

func requireVote(t *testing.T, s *VoteStore, term uint64, candidate string) {
	t.Helper()
	gotTerm, err := s.GetUint64(voteTerm)
	require.NoError(t, err)
	got, err := s.Get(voteCandidate)
	require.NoError(t, err)
	require.Equal(t, term, gotTerm)
	require.Equal(t, candidate, string(got))
}

// failing is a store that can't be read.
type failing struct{ raft.StableStore }

func (failing) Get([]byte) ([]byte, error) { return nil, errPower }

func TestUnreadableVoteIsNotAMissingOne(t *testing.T) {
	s := NewVoteStore(failing{raft.NewInmemStore()})
	_, err := s.GetUint64(voteTerm)
	require.ErrorIs(t, err, errPower)
	_, err = s.Get(voteCandidate)
	require.ErrorIs(t, err, errPower)
}

func TestVoteStoreIsSafeForManyGoroutines(t *testing.T) {
	s := NewVoteStore(raft.NewInmemStore())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for term := range uint64(100) {
				_ = s.SetUint64(voteTerm, term)
				_ = s.Set(voteCandidate, []byte{byte(i)})
				_, _ = s.GetUint64(voteTerm)
				_, _ = s.Get(voteCandidate)
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.SetUint64(voteTerm, 500))
	require.NoError(t, s.Set(voteCandidate, []byte("a")))
	requireVote(t, s, 500, "a")
}
