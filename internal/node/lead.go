package node

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/raftguard"
)

// barrierTimeout bounds one attempt at the barrier of a new leader.
const barrierTimeout = 5 * time.Second

// leadRaft is what leading needs of raft.
type leadRaft interface {
	Barrier(timeout time.Duration) raft.Future
	CurrentTerm() uint64
	State() raft.RaftState
}

// leadership opens and closes the gate, and proposes what only a leader proposes: the genesis, node records, ticks.
type leadership struct {
	raft    leadRaft
	gate    *gate
	clock   *clock
	machine *machine
	propose *proposer
	// records returns the node records this node knows from hellos, its own included.
	records func() []fsm.Node
	// genesis is what a new cluster starts from, but for the incarnation.
	genesis fsm.Genesis
	audit   *audit
	log     *slog.Logger

	// end ends the current leadership and waits until it has; owned by changed.
	end func()
}

// changed is called, one call at a time, when raft says that leadership was gained or lost.
func (l *leadership) changed(ctx context.Context, leader bool) {
	l.stop()
	if !leader {
		l.log.Info("leadership lost")
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	l.end = func() { cancel(); <-done }
	go func() {
		defer close(done)
		l.lead(ctx)
	}()
}

// stop ends a leadership, if there is one.
func (l *leadership) stop() {
	if l.end != nil {
		l.end()
		l.end = nil
	}
}

// lead opens the gate for the term once everything before it is applied, and serves it until ctx ends.
func (l *leadership) lead(ctx context.Context) {
	if !l.barrier(ctx) {
		return
	}
	term := l.raft.CurrentTerm()
	if l.raft.State() != raft.Leader {
		return
	}
	l.clock.reset(time.Duration(l.machine.View().Time())*time.Millisecond, time.Now())
	l.gate.open(term)
	defer l.gate.close()
	l.log.Info("leading", "term", term)
	l.serve(ctx)
}

func (l *leadership) barrier(ctx context.Context) bool {
	for ctx.Err() == nil && l.raft.State() == raft.Leader {
		attempt, cancel := context.WithTimeout(ctx, barrierTimeout)
		err := raftguard.Await(attempt, l.raft.Barrier(barrierTimeout))
		cancel()
		if err == nil {
			return true
		}
		l.log.Warn("barrier of the new term failed", "error", err)
	}
	return false
}

// serve keeps the clock going and proposes what is missing in the state.
func (l *leadership) serve(ctx context.Context) {
	passes := time.NewTicker(clockPass)
	defer passes.Stop()
	var records, audited time.Time // when node records and digests were last compared
	for {
		now := time.Now()
		l.clock.pass(now, l.propose.Oldest())
		view := l.machine.View()
		switch {
		case !view.Born():
			l.proposeGenesis(ctx)
		case now.Sub(records) > time.Second:
			records = now
			l.proposeRecords(ctx, view)
		case now.Sub(audited) > auditEvery:
			audited = now
			if claim, ok := l.audit.claim(ctx); ok {
				l.proposeAndWait(ctx, fsm.Item{Kind: fsm.ItemClaim, Claim: claim})
			}
		case view.Expirable() && l.clock.sinceStamp(now) > tickAfter:
			l.tick()
		}
		select {
		case <-passes.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *leadership) proposeGenesis(ctx context.Context) {
	g := l.genesis
	_, _ = rand.Read(g.Incarnation[:]) // never fails
	l.proposeAndWait(ctx, fsm.Item{Kind: fsm.ItemGenesis, Genesis: g})
}

// proposeRecords puts the records into the log that differ from those in the state.
func (l *leadership) proposeRecords(ctx context.Context, view *fsm.State) {
	for _, n := range l.records() {
		if was, ok := view.Node(n.ID); !ok || *was != n {
			l.proposeAndWait(ctx, fsm.Item{Kind: fsm.ItemNode, Node: n})
		}
	}
}

// tick proposes an entry that only moves cluster time.
func (l *leadership) tick() {
	l.propose.Propose(proposal{reply: func(fsm.Result, error) {}})
}

// proposeAndWait proposes an item without a caller, and waits for it.
func (l *leadership) proposeAndWait(ctx context.Context, it fsm.Item) {
	done := make(chan error, 1)
	l.propose.Propose(proposal{item: &it, size: 512, reply: func(_ fsm.Result, err error) { done <- err }})
	select {
	case err := <-done:
		if err != nil {
			l.log.Debug("own proposal failed; it will be made again", "error", err)
		}
	case <-ctx.Done():
	}
}
