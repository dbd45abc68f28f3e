package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
)

// Bounds of reads.
const (
	// maxReads is how many reads wait for a round; beyond it callers hear that the node is busy.
	maxReads = 65536
	// readTimeout bounds a round: when a quorum doesn't answer in time, the reads are refused.
	readTimeout = 2 * time.Second
)

// readRaft is what reads need of raft.
type readRaft interface {
	VerifyLeader() raft.Future
	CommitIndex() uint64
	GetConfiguration() raft.ConfigurationFuture
}

// proof tells whether this node led at some moment after since, by answers to messages that were sent after it.
type proof interface {
	WaitConfirmed(ctx context.Context, term uint64, since time.Time, voters func() raft.Configuration) error
}

// reader answers linearizable reads. Its Run goroutine does one round at a time; what arrives meanwhile shares the
// next one.
//
// On the leader a round takes the commit index, then proves that this node still leads: a majority of voters must
// answer a message that was sent after the round began (Raft thesis, section 6.4; raft's own VerifyLeader counts
// answers to older messages and those of non-voters). Then it waits until the state machine has applied the last
// command up to that index. A follower asks the leader for such an index and waits until it has applied it too.
type reader struct {
	raft    readRaft
	logs    raft.LogStore
	proof   proof
	gate    *gate
	machine *machine
	// remote asks the leader for an index; it fails when none is known.
	remote func(ctx context.Context) (index uint64, err error)
	queue  chan read
	// fresh is the local time in nanoseconds at which the last completed round began, 0 for none.
	fresh atomic.Int64
	began time.Time // what fresh counts from

	counts struct{ reads, rounds atomic.Uint64 }
}

// read is a caller that waits for a view that is recent enough. Done is called exactly once and must not block.
type read struct {
	done func(*fsm.State, error)
}

func newReader(r readRaft, logs raft.LogStore, p proof, g *gate, m *machine, remote func(context.Context) (uint64, error)) *reader {
	return &reader{raft: r, logs: logs, proof: p, gate: g, machine: m, remote: remote,
		queue: make(chan read, maxReads), began: time.Now()}
}

// Read calls done with a view that holds every write that was acknowledged before this call.
func (r *reader) Read(done func(*fsm.State, error)) {
	select {
	case r.queue <- read{done}:
	default:
		done(nil, errBusy)
	}
}

// Run does rounds until ctx ends.
func (r *reader) Run(ctx context.Context) {
	for {
		select {
		case first := <-r.queue:
			reads := r.gather(first)
			r.counts.reads.Add(uint64(len(reads)))
			r.counts.rounds.Add(1)
			view, err := r.round(ctx)
			answer(reads, view, err)
		case <-ctx.Done():
			r.refuseQueue()
			return
		}
	}
}

func (r *reader) gather(first read) []read {
	reads := []read{first}
	for {
		select {
		case x := <-r.queue:
			reads = append(reads, x)
		default:
			return reads
		}
	}
}

func answer(reads []read, view *fsm.State, err error) {
	for _, x := range reads {
		x.done(view, err)
	}
}

func (r *reader) refuseQueue() {
	for {
		select {
		case x := <-r.queue:
			x.done(nil, errShuttingDown)
		default:
			return
		}
	}
}

// round returns a view as of some moment after it was called.
func (r *reader) round(ctx context.Context) (*fsm.State, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	since := time.Now()
	index, err := r.index(ctx, since)
	if err != nil {
		return nil, err
	}
	view, err := r.machine.WaitApplied(ctx, index)
	if err != nil {
		return nil, errNotReady
	}
	r.fresh.Store(int64(since.Sub(r.began)) + 1)
	return view, nil
}

// index returns an index of a command that holds every write acknowledged before since.
func (r *reader) index(ctx context.Context, since time.Time) (uint64, error) {
	term, ok := r.gate.leading()
	if !ok {
		return r.remote(ctx)
	}
	commit := r.raft.CommitIndex()
	r.raft.VerifyLeader() // makes raft send heartbeats now; its own verdict is not good enough
	if err := r.proof.WaitConfirmed(ctx, term, since, r.voters); err != nil {
		return 0, errNotReady
	}
	return r.lastCommand(commit), nil
}

// Age returns how old the local state may be: the time since the last completed round began. It is unknown before the
// first round.
func (r *reader) Age() (age time.Duration, known bool) {
	at := r.fresh.Load()
	if at == 0 {
		return 0, false
	}
	return time.Since(r.began.Add(time.Duration(at - 1))), true
}

func (r *reader) voters() raft.Configuration {
	return r.raft.GetConfiguration().Configuration()
}

// lastCommand returns the index of the last command up to commit that the state machine hasn't applied; 0 when there
// is none. No-op and barrier entries never reach the state machine, so it can't wait for those.
func (r *reader) lastCommand(commit uint64) uint64 {
	var l raft.Log
	for i := commit; i > r.machine.View().Index(); i-- {
		if err := r.logs.GetLog(i, &l); err != nil {
			return 0 // compacted, so that a snapshot of the state machine contains it
		}
		if l.Type == raft.LogCommand {
			return i
		}
	}
	return 0
}
