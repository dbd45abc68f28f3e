package client

import (
	"container/list"
	"slices"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// maxReissues bounds under how many registrations a call is sent that one after the other expire before it runs.
const maxReissues = 8

// engine is the protocol state of a client: its identity, what waits, what is on its way. It is stepped under the
// client's lock, by the callers, the sender and the receiver. It does no I/O, starts nothing, and has no clock of its
// own, so that whole histories of it can be tested in no time.
type engine struct {
	config    *config
	endpoints *endpoints

	id          *identity
	registering *call
	// eager asks for a registration though no write waits.
	eager bool
	// incarnation of the cluster that the client has settled on; nil while it knows none.
	incarnation []byte

	// link is where new requests go, nil without a connection; links has those too that are left but not gone.
	link  *link
	links map[*link]struct{}
	// writes have no sequence yet; others are reads and unregistered commands that were never sent.
	writes, others list.List
	// resends are writes, retries everything else, of which another copy is to be sent.
	resends, retries resendQueue

	// open counts the calls of users that aren't finished, abandoned those of them whose callers have given up.
	open, abandoned int
	kept            keptAnswers

	closing bool
	// last tells that the close of the client itself is on its way.
	last bool
	// drained is closed when the client is closing and no call is open.
	drained chan struct{}

	// lastEntry is when the last own entry was sent that the log has applied; nextTouch when the next touch is due.
	lastEntry, nextTouch time.Time
	touching             bool

	// fruitless counts the connections that brought no decision. trouble is what the last one failed with.
	fruitless int
	trouble   error
	// wrongCluster counts the rounds of endpoints in which every node that answered is of another cluster.
	wrongCluster int
}

func newEngine(c *config) *engine {
	return &engine{config: c, endpoints: newEndpoints(c.endpoints, c.pinned), links: make(map[*link]struct{}),
		drained: make(chan struct{}), resends: resendQueue{ordered: c.ordered}, eager: c.eager}
}

// add takes a call in.
func (e *engine) add(c *call) *Error {
	switch {
	case e.closing:
		return c.fail(CodeClosed, NotApplied, "")
	case e.writes.Len()+e.others.Len() >= MaxWaiting:
		return c.fail(CodeTooManyWaiting, NotApplied, "")
	}
	e.open++
	if c.kind == kindWrite {
		c.wait(&e.writes)
	} else {
		c.wait(&e.others)
	}
	return nil
}

func (c *call) wait(l *list.List) { c.waits, c.element = l, l.PushBack(c) }

// dequeue takes a call out of wherever it waits.
func (e *engine) dequeue(c *call) {
	if c.element != nil {
		c.waits.Remove(c.element)
		c.element = nil
	}
	e.queueOf(c).remove(c)
}

func (e *engine) queueOf(c *call) *resendQueue {
	if c.kind == kindWrite {
		return &e.resends
	}
	return &e.retries
}

// wanted reports whether there is something to do on a connection.
func (e *engine) wanted() bool {
	return e.id != nil || e.needsIdentity() || e.others.Len() > 0 || e.retries.Len() > 0
}

func (e *engine) needsIdentity() bool {
	return e.id == nil && (e.registering != nil || e.writes.Len() > 0 || e.eager)
}

// finish ends a call: with a response, or an error. Held is what the ledger is told.
func (e *engine) finish(c *call, r *kvoncev1.Response, err *Error, held int) {
	e.dequeue(c)
	c.finished, c.response, c.err = true, r, err
	if c.seq != 0 {
		c.identity.ledger.resolve(c.seq, held)
	}
	close(c.done)
	if c.abandoned {
		e.abandoned--
		e.kept.add(c)
	}
	if c.kind != kindRegister && c.kind != kindClose {
		e.open--
	}
	e.settle()
}

// settle lets go of an identity that has ended once the last of its requests is resolved, and notes when a closing
// client has nothing left.
func (e *engine) settle() {
	if e.id != nil && e.id.ended && e.id.ledger.unresolved == 0 {
		e.config.log.Warn("client is gone; the next write registers anew", "client", e.id.id)
		e.id = nil
		if e.link != nil && e.link.identity != nil {
			e.link.retire()
		}
	}
	if e.closing && e.open == 0 {
		select {
		case <-e.drained:
		default:
			close(e.drained)
		}
	}
}

// again queues a call of which another copy must be sent.
func (e *engine) again(c *call, l *link, now time.Time) {
	due := time.Time{}
	if l == nil || !l.retired {
		due = now.Add(e.config.timing.refused.delay(c.attempts))
		c.attempts++
	}
	if after := c.refusal.GetRetryAfterMs(); after > 0 {
		wish := min(time.Duration(after)*time.Millisecond, e.config.timing.maxRetry)
		due = now.Add(max(wish, due.Sub(now)))
	}
	e.queueOf(c).add(c, due)
}

// giveUp ends a call for its caller. It returns the error with the folded outcome, or nil when the call was finished
// already. A write whose outcome is unknown goes on without its caller.
func (e *engine) giveUp(c *call, cause error) *Error {
	if c.finished {
		return nil
	}
	err := e.reason(c)
	err.Cause = cause
	switch {
	case c.copies.harmless() || c.kind == kindRead:
		err.Outcome = NotApplied
		e.finish(c, nil, err, 0)
	case c.kind == kindWrite:
		err.Outcome = Unknown
		c.abandoned = true
		e.abandoned++
	default:
		err.Outcome = Unknown
		e.finish(c, nil, err, keep)
	}
	return err
}

// reason says what a call was waiting for.
func (e *engine) reason(c *call) *Error {
	switch {
	case c.copies.flying > 0 || c.copies.lost:
		return c.fail(CodeUnanswered, Unknown, "the request was sent and not answered")
	case c.refusal != nil:
		return responseError(c, "", c.refusal, NotApplied)
	case e.link == nil:
		err := c.fail(CodeUnavailable, NotApplied, "no connection")
		if e.trouble != nil {
			err.Message += ": " + e.trouble.Error()
		}
		return err
	case e.id == nil && c.kind == kindWrite && e.registering != nil && e.registering.refusal != nil:
		err := responseError(c, "", e.registering.refusal, NotApplied)
		err.Message = "registration: " + err.Message
		return err
	case e.id != nil && c.kind == kindWrite && !e.hasRoom():
		return c.fail(CodeWindowFull, NotApplied, "too many earlier requests are unresolved")
	}
	return c.fail(CodeNotSent, NotApplied, "")
}

// hasRoom reports whether a new write may be sent under the identity.
func (e *engine) hasRoom() bool {
	limit := e.config.maxUnresolved
	return e.id.ledger.room() && (limit == 0 || e.abandoned < limit)
}

// cancel sends a cancel for an abandoned request in place of further copies.
func (e *engine) cancel(c *call, now time.Time) {
	if c.finished || c.cancelling {
		return
	}
	c.cancelling = true
	c.attempts = 0
	e.resends.add(c, now)
}

// reissue prepares a call, of which the log said that it never ran under its identity, to be sent under the next one:
// before the calls that were never sent, in its old place among those that were.
func (e *engine) reissue(c *call) {
	e.dequeue(c)
	before := e.writes.Front()
	for ; before != nil; before = before.Next() {
		other := before.Value.(*call)
		if other.identity != c.identity || other.seq > c.seq {
			break
		}
	}
	c.waits = &e.writes
	if before == nil {
		c.element = e.writes.PushBack(c)
	} else {
		c.element = e.writes.InsertBefore(c, before)
	}
	c.copies, c.refusal, c.attempts, c.salt = copies{}, nil, 0, drawSalt()
	c.reissues++
	c.identity.ledger.resolve(c.seq, 0)
	e.settle()
}

// forgetCluster gives up an identity whose cluster is no more. What was sent and not refused is unknown for good.
func (e *engine) forgetCluster() {
	e.incarnation = nil
	id := e.id
	if id == nil {
		return
	}
	id.ended, id.forgotten = true, true
	e.config.log.Warn("the cluster of this client is gone", "client", id.id)
	waiting := slices.Clone(e.resends.calls)
	for _, c := range waiting {
		switch {
		case c.copies.harmless() && !e.closing:
			e.reissue(c)
		case c.copies.harmless():
			e.finish(c, nil, c.fail(wireCode(kvoncev1.Code_WRONG_CLUSTER), NotApplied, ""), 0)
		default:
			e.finish(c, nil, c.fail(wireCode(kvoncev1.Code_WRONG_CLUSTER), Unknown, "the cluster that the request was sent to is gone"), keep)
		}
	}
	e.settle()
}

// registered takes on a new identity. The link goes: its hello named no client.
func (e *engine) registered(c *call, r *kvoncev1.Registered) {
	e.id = newIdentity(c.secret, r)
	e.incarnation = r.GetIncarnation()
	e.registering, e.eager = nil, false
	e.touching = false
	e.nextTouch = e.lastEntry.Add(e.touchInterval())
	e.config.log.Debug("registered", "client", e.id.id, "name", e.config.name)
}

// touchInterval is how long the client may go without an entry in the log.
func (e *engine) touchInterval() time.Duration {
	return time.Duration(e.id.ttlMs) * time.Millisecond / 3
}

// close refuses what was never sent, and everything from now on.
func (e *engine) close() {
	e.closing, e.eager = true, false
	for _, l := range []*list.List{&e.writes, &e.others} {
		for l.Len() > 0 {
			c := l.Front().Value.(*call)
			e.finish(c, nil, c.fail(CodeClosed, NotApplied, ""), 0)
		}
	}
	e.settle()
}

// keptAnswers are the answers that callers who gave up may still ask for, oldest first.
type keptAnswers struct {
	calls []*call
	bytes int
}

func (k *keptAnswers) add(c *call) {
	if c.response == nil {
		return
	}
	k.calls = append(k.calls, c)
	k.bytes += c.heldBytes()
	for len(k.calls) > MaxKeptAnswers || k.bytes > MaxKeptBytes {
		old := k.calls[0]
		k.calls[0] = nil
		k.calls = k.calls[1:]
		k.bytes -= old.heldBytes()
		old.err = responseError(old, old.node, old.response, Applied)
		old.err.Code, old.err.Message = wireCode(kvoncev1.Code_ANSWER_GONE), "the answer was dropped to make room for later ones"
		old.response = nil
	}
}
