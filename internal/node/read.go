package node

import (
	"context"
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

// reader answers linearizable reads on the leader. Its Run goroutine does one round at a time; what arrives
// meanwhile shares the next one.
//
// A round takes the commit index, then proves that this node still leads: a majority of voters must answer a
// message that was sent after the round began (Raft thesis, section 6.4; raft's own VerifyLeader counts answers to
// older messages and those of non-voters). Then it waits until the state machine has applied the last command up
// to that index.
type reader struct {
	raft    readRaft
	logs    raft.LogStore
	proof   proof
	gate    *gate
	machine *machine
	queue   chan read
}

// read is a caller that waits for a view that is recent enough. Done is called exactly once and must not block.
type read struct {
	done func(*fsm.State, error)
}

func newReader(r readRaft, logs raft.LogStore, p proof, g *gate, m *machine) *reader {
	return &reader{raft: r, logs: logs, proof: p, gate: g, machine: m, queue: make(chan read, maxReads)}
}

// Read calls done with a view that holds every write that was acknowledged before this call.
func (r *reader) Read(done func(*fsm.State, error)) {
	if err := r.gate.check(); err != nil {
		done(nil, err)
		return
	}
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
	term, ok := r.gate.leading()
	if !ok {
		return nil, errNotLeader
	}
	since := time.Now()
	commit := r.raft.CommitIndex()
	r.raft.VerifyLeader() // makes raft send heartbeats now; its own verdict is not good enough
	if err := r.proof.WaitConfirmed(ctx, term, since, r.voters); err != nil {
		return nil, errNotReady
	}
	view, err := r.machine.WaitApplied(ctx, r.lastCommand(commit))
	if err != nil {
		return nil, errNotReady
	}
	return view, nil
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
