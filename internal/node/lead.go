package node

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/raftguard"
)

const (
	// barrierTimeout bounds one attempt at the barrier of a new leader, barrierPause is the wait before the next.
	barrierTimeout = 5 * time.Second
	barrierPause   = 50 * time.Millisecond
	// choresEvery is how often a leader looks for what is missing in the state.
	choresEvery = 200 * time.Millisecond
)

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
		select {
		case <-time.After(barrierPause):
		case <-ctx.Done():
		}
	}
	return false
}

// serve keeps the clock going and does the chores of a leader until ctx ends. The chores wait for other nodes and for
// the log; the clock must not.
func (l *leadership) serve(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { every(ctx, clockPass, l.keepTime) })
	wg.Go(func() { every(ctx, choresEvery, l.chores) })
	wg.Wait()
}

// every calls f now and then again and again until ctx ends.
func every(ctx context.Context, d time.Duration, f func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		f(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// keepTime moves the clock on, and proposes an entry when there was none for a while and something can expire.
func (l *leadership) keepTime(context.Context) {
	now := time.Now()
	l.clock.pass(now, l.propose.Oldest())
	if l.clock.sinceStamp(now) > tickAfter && l.machine.View().Expirable() {
		l.tick()
	}
}

// chores proposes what is missing in the state: the genesis, node records, and what the voters say of its digest.
func (l *leadership) chores(ctx context.Context) {
	view := l.machine.View()
	if !view.Born() {
		l.proposeGenesis(ctx)
		return
	}
	l.proposeRecords(ctx, view)
	if claim, ok := l.audit.claim(ctx); ok {
		l.proposeAndWait(ctx, fsm.Item{Kind: fsm.ItemClaim, Claim: claim})
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
