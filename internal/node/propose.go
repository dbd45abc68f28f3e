package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/raftguard"
	"github.com/kvonce/kvonce/registry"
)

// Bounds of the proposer.
const (
	// maxQueue and maxQueueBytes are how many proposals wait for an entry; beyond them callers hear that the node is
	// busy.
	maxQueue      = 16384
	maxQueueBytes = 64 << 20
	// maxEntries is how many entries may be on their way at once. Two keep the disk busy while the next batch
	// gathers; more would make the batches smaller.
	maxEntries = 2
	// enqueueTimeout bounds how long raft may take to accept an entry. Beyond it the entry was not proposed.
	enqueueTimeout = time.Second
	// proposalTimeout is how long a caller is kept waiting before its outcome is called unknown.
	proposalTimeout = 10 * time.Second
)

// Errors of a proposal. Those before the log are refusals: the entry was never proposed.
var (
	errNotLeader      = errors.New("this node doesn't lead")
	errBusy           = errors.New("the queue of proposals is full")
	errTransferring   = errors.New("leadership is being handed over")
	errNotReady       = errors.New("the cluster has no leader or hasn't started yet")
	errShuttingDown   = errors.New("the node is shutting down")
	errLeadershipLost = errors.New("leadership was lost before the entry was known to be committed")
	errTimeout        = errors.New("the entry wasn't committed in time")
	errTooLarge       = errors.New("the request is too large for the log")
)

// proposal is something for the log with its caller: a touch, a request of a client, or another item; a tick when
// it is none of them.
type proposal struct {
	touch   *fsm.Touch
	client  uint64
	secret  registry.Verifier
	request *fsm.Request
	item    *fsm.Item
	// size is about what it adds to an entry, in bytes.
	size int
	// reply is called exactly once (for a tick only when it is refused). It must not block.
	reply func(fsm.Result, error)
}

// log is what the proposer needs of raft.
type raftLog interface {
	Apply(cmd []byte, timeout time.Duration) raft.ApplyFuture
}

// proposer gathers proposals into entries. Its Run goroutine owns the queue's end and the stamps.
type proposer struct {
	log     raftLog
	gate    *gate
	clock   *clock
	limits  Tuning
	queue   chan proposal
	queued  atomic.Int64 // bytes
	slots   chan struct{}
	mu      sync.Mutex
	started []time.Time // of the entries on their way, oldest first
	closed  atomic.Bool
	waiters sync.WaitGroup
	counts  struct {
		proposals, entries, refused, unknown atomic.Uint64
	}
}

func newProposer(log raftLog, g *gate, c *clock, limits Tuning) *proposer {
	return &proposer{log: log, gate: g, clock: c, limits: limits,
		queue: make(chan proposal, maxQueue), slots: make(chan struct{}, maxEntries)}
}

// Propose queues a proposal or calls its reply with a refusal.
func (p *proposer) Propose(x proposal) {
	if p.closed.Load() {
		x.reply(fsm.Result{}, errShuttingDown)
		return
	}
	if err := p.gate.check(); err != nil {
		x.reply(fsm.Result{}, err)
		return
	}
	if p.queued.Add(int64(x.size)) > maxQueueBytes {
		p.queued.Add(-int64(x.size))
		x.reply(fsm.Result{}, errBusy)
		return
	}
	select {
	case p.queue <- x:
	default:
		p.queued.Add(-int64(x.size))
		x.reply(fsm.Result{}, errBusy)
	}
}

// Run proposes entries until ctx ends, then refuses what is queued and waits for what was proposed.
func (p *proposer) Run(ctx context.Context) {
	defer p.waiters.Wait()
	defer p.refuseQueue()
	for {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		select {
		case first := <-p.queue:
			p.propose(ctx, p.gather(first))
		case <-ctx.Done():
			return
		}
	}
}

// Close refuses new proposals. Those that are queued still go out.
func (p *proposer) Close() { p.closed.Store(true) }

func (p *proposer) refuseQueue() {
	p.Close()
	for {
		select {
		case x := <-p.queue:
			x.reply(fsm.Result{}, errShuttingDown)
		default:
			return
		}
	}
}

// gather takes what is queued, up to the size of an entry.
func (p *proposer) gather(first proposal) []proposal {
	batch, size := []proposal{first}, first.size
	defer func() { p.queued.Add(-int64(size)) }()
	for len(batch) < p.limits.BatchRequests && size < p.limits.BatchBytes {
		select {
		case x := <-p.queue:
			batch = append(batch, x)
			size += x.size
		default:
			return batch
		}
	}
	return batch
}

// propose hands an entry to raft, unless leadership was lost while it waited.
func (p *proposer) propose(ctx context.Context, batch []proposal) {
	if err := p.gate.check(); err != nil {
		refuse(batch, err)
		<-p.slots
		return
	}
	now := time.Now()
	entry, order := build(batch)
	p.counts.proposals.Add(uint64(len(batch)))
	p.counts.entries.Add(1)
	entry.Time, entry.Wall = p.clock.stamp(now), uint64(now.UnixMilli())
	p.begin(now)
	f := p.log.Apply(entry.Encode(nil), enqueueTimeout)
	p.waiters.Go(func() {
		p.await(ctx, f, order)
		p.end(now)
		<-p.slots
	})
}

func refuse(batch []proposal, err error) {
	for _, x := range batch {
		x.reply(fsm.Result{}, err)
	}
}

// build makes the entry of a batch and the order in which its results stand. Requests of one client that follow
// each other become a group.
func build(batch []proposal) (*fsm.Entry, []proposal) {
	e := &fsm.Entry{}
	order := make([]proposal, 0, len(batch))
	for _, x := range batch {
		if x.touch != nil {
			e.Touches = append(e.Touches, *x.touch)
			order = append(order, x)
		}
	}
	for _, x := range batch {
		switch {
		case x.request != nil:
			addRequest(e, x)
		case x.item != nil:
			e.Items = append(e.Items, *x.item)
		default:
			continue
		}
		order = append(order, x)
	}
	return e, order
}

func addRequest(e *fsm.Entry, x proposal) {
	if n := len(e.Items); n > 0 {
		g := &e.Items[n-1].Group
		if e.Items[n-1].Kind == fsm.ItemGroup && g.Client == x.client && g.Verifier == x.secret {
			g.Requests = append(g.Requests, *x.request)
			return
		}
	}
	e.Items = append(e.Items, fsm.Item{Kind: fsm.ItemGroup,
		Group: fsm.Group{Client: x.client, Verifier: x.secret, Requests: []fsm.Request{*x.request}}})
}

// await waits for one entry and answers its callers, also when ctx ends: raft may never answer after a shutdown.
func (p *proposer) await(ctx context.Context, f raft.ApplyFuture, order []proposal) {
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	err := raftguard.Await(ctx, f)
	if err != nil {
		p.fail(order, outcomeError(err))
		return
	}
	done, ok := f.Response().(applied)
	if !ok || done.err != nil || len(done.results) != len(order) {
		refuse(order, errTooLarge) // the entry couldn't be read and changed nothing
		return
	}
	for i, x := range order {
		x.reply(done.results[i], nil)
	}
}

// fail answers the callers of an entry that raft didn't apply, as far as this node knows.
func (p *proposer) fail(order []proposal, err error) {
	if errors.Is(err, errTimeout) || errors.Is(err, errLeadershipLost) {
		p.counts.unknown.Add(uint64(len(order)))
	} else {
		p.counts.refused.Add(uint64(len(order)))
	}
	refuse(order, err)
}

// outcomeError maps what raft says to what the caller may conclude. Only what raft says before it takes an entry is
// a refusal; everything else leaves the outcome unknown.
func outcomeError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return errBusy
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return errTransferring
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, raftguard.ErrAbandoned):
		return errTimeout
	}
	return errLeadershipLost
}

func (p *proposer) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, now)
}

func (p *proposer) end(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.started {
		if t.Equal(now) {
			p.started = append(p.started[:i], p.started[i+1:]...)
			return
		}
	}
}

// Oldest returns when the oldest entry on its way was proposed, zero for none.
func (p *proposer) Oldest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.started) == 0 {
		return time.Time{}
	}
	return p.started[0]
}

// Drain waits until nothing is queued or on its way, or ctx ends.
func (p *proposer) Drain(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(p.queue) > 0 || !p.Oldest().IsZero() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
