package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/fsm"
)

// stubLog takes entries and answers them when told, or never.
type stubLog struct{ entries chan *stubFuture }

type stubFuture struct {
	entry *fsm.Entry
	done  chan error
	resp  any
}

func (s *stubLog) Apply(b []byte, _ time.Duration) raft.ApplyFuture {
	e, err := fsm.DecodeEntry(b)
	f := &stubFuture{entry: e, done: make(chan error, 1)}
	if err != nil {
		f.done <- err
	}
	s.entries <- f
	return f
}

func (f *stubFuture) Error() error  { return <-f.done }
func (f *stubFuture) Index() uint64 { return 0 }
func (f *stubFuture) Response() any { return f.resp }

func startProposer(t *testing.T) (*proposer, *stubLog) {
	log := &stubLog{entries: make(chan *stubFuture, 16)}
	g := &gate{}
	g.open(1)
	p := newProposer(log, g, &clock{}, DefaultTuning())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p, log
}

// propose proposes an unregistered command and returns where its outcome comes.
func propose(p *proposer, size int) chan error {
	out := make(chan error, 1)
	p.Propose(proposal{item: &fsm.Item{Kind: fsm.ItemUnregistered, Command: []byte("x")}, size: size,
		reply: func(_ fsm.Result, err error) { out <- err }})
	return out
}

func TestG4OutcomesOfAProposal(t *testing.T) {
	for _, c := range []struct {
		raft error
		want error
	}{
		{raft.ErrNotLeader, errNotLeader},
		{raft.ErrEnqueueTimeout, errBusy},
		{raft.ErrLeadershipTransferInProgress, errTransferring},
		{raft.ErrLeadershipLost, errLeadershipLost},
		{raft.ErrRaftShutdown, errLeadershipLost},
		{errors.New("anything else"), errLeadershipLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, log := startProposer(t)
			out := propose(p, 1)
			(<-log.entries).done <- c.raft
			require.Equal(t, c.want, <-out, c.raft.Error())
		})
	}
}

func TestG4ProposalIsAnsweredInTimeWhenRaftHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := startProposer(t)
		begin := time.Now()
		out := propose(p, 1)
		f := <-log.entries
		require.Equal(t, errTimeout, <-out)
		require.Equal(t, proposalTimeout, time.Since(begin))
		f.done <- nil // lets the goroutine that waits for raft end
	})
}

func TestProposalsGatherWhileEntriesAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := startProposer(t)
		first, second := propose(p, 1), propose(p, 1)
		a := <-log.entries
		synctest.Wait()
		var rest []chan error
		for range 100 {
			rest = append(rest, propose(p, 1))
		}
		synctest.Wait()
		entries := []*stubFuture{a}
		n := len(a.entry.Items)
		for n < 102 {
			for _, f := range entries {
				f.done <- raft.ErrNotLeader
			}
			f := <-log.entries
			entries = []*stubFuture{f}
			n += len(f.entry.Items)
		}
		entries[0].done <- raft.ErrNotLeader
		for _, out := range append(rest, first, second) {
			require.Equal(t, errNotLeader, <-out)
		}
		require.LessOrEqual(t, p.counts.entries.Load(), uint64(4), "a hundred proposals share an entry")
	})
}

func TestQueueIsBoundedByBytes(t *testing.T) {
	p := newProposer(&stubLog{}, &gate{}, &clock{}, DefaultTuning())
	p.gate.open(1)
	for range maxQueueBytes >> 20 {
		require.Empty(t, propose(p, 1<<20))
	}
	require.Equal(t, errBusy, <-propose(p, 1<<20))
}
