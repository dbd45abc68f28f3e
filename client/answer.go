package client

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// answer takes in a response.
func (e *engine) answer(l *link, r *kvoncev1.Response, now time.Time) {
	f, ok := l.take(r.GetTag(), now)
	if !ok {
		return
	}
	e.steer(l, r, now)
	e.observe(l, f, r)
	switch f.kind {
	case kindTouch:
		e.touched(r, now)
	case kindRegister:
		e.registerAnswered(l, f.call, r, now)
	case kindClose:
		e.closeAnswered(l, f.call, r, now)
	case kindRead:
		e.readAnswered(l, f.call, r, now)
	case kindUnregistered:
		e.unregisteredAnswered(l, f.call, r, now)
	default:
		e.writeAnswered(l, f, r, now)
	}
	e.settle()
}

// steer decides whether the node is still the right one to ask.
func (e *engine) steer(l *link, r *kvoncev1.Response, now time.Time) {
	switch r.GetCode() {
	case kvoncev1.Code_NOT_LEADER:
		addr := l.elsewhere(r.GetLeader())
		if addr != "" && !e.endpoints.resting(addr, now) && e.endpoints.suggest(addr) {
			e.leave(l, now)
			return
		}
		e.unready(l, now)
	case kvoncev1.Code_NOT_READY, kvoncev1.Code_TRANSFERRING, kvoncev1.Code_TIMEOUT, kvoncev1.Code_LEADERSHIP_LOST:
		e.unready(l, now)
	case kvoncev1.Code_SHUTTING_DOWN, kvoncev1.Code_WRONG_CLUSTER:
		e.leave(l, now)
	default:
		if r.GetOutcome() != kvoncev1.Outcome_REFUSED {
			e.fruitless, l.unready = 0, time.Time{}
		}
	}
}

// unready leaves a node that has been without a leader for too long.
func (e *engine) unready(l *link, now time.Time) {
	if l.unready.IsZero() {
		l.unready = now
	} else if now.Sub(l.unready) > e.config.timing.patience {
		e.leave(l, now)
	}
}

// leave retires the link to a node that is of no use.
func (e *engine) leave(l *link, now time.Time) {
	e.endpoints.leave(l.addr, now)
	l.retire()
}

// observe notes what a response says about the client as such: that it was heard of in the log, or is no more.
func (e *engine) observe(l *link, f flight, r *kvoncev1.Response) {
	if l.identity == nil && f.kind != kindRegister {
		return
	}
	if r.GetIndex() > 0 && !r.GetReplayed() && f.kind != kindRead && f.kind != kindUnregistered && f.at.After(e.lastEntry) {
		e.lastEntry = f.at
	}
	if l.identity == e.id && e.id != nil && !e.id.ended && endsIdentity(r.GetCode()) && f.kind != kindClose {
		e.id.ended = true // settled when this response has been taken in
	}
}

func (e *engine) touched(r *kvoncev1.Response, now time.Time) {
	e.touching = false
	if r.GetCode() != kvoncev1.Code_OK {
		e.nextTouch = now.Add(e.config.timing.refused.delay(20))
	}
}

// writeAnswered takes in the response to a copy of a write or cancel.
func (e *engine) writeAnswered(l *link, f flight, r *kvoncev1.Response, now time.Time) {
	c, v := f.call, verdictOf(r)
	if c.finished {
		return
	}
	c.node = l.node
	c.refusal = nil
	if v == lost {
		c.copies.lose()
	} else {
		c.copies.refuse()
	}
	switch v {
	case refused, lost:
		e.writeAgain(l, f, r, v, now)
	case hopeless:
		e.endHopeless(c, r)
	case expired:
		e.expire(c, r)
	case answered:
		e.finish(c, r, nil, answerOverhead+proto.Size(r))
	case gone:
		e.finish(c, nil, responseError(c, l.node, r, Applied), answerOverhead)
	case failed:
		e.finish(c, nil, responseError(c, l.node, r, NotApplied), answerOverhead)
	case unknowable:
		e.finish(c, nil, responseError(c, l.node, r, Unknown), keep)
	}
}

// writeAgain queues another copy, unless a cancel that is on its way settles the matter.
func (e *engine) writeAgain(l *link, f flight, r *kvoncev1.Response, v verdict, now time.Time) {
	c := f.call
	if v == refused {
		c.refusal = r
	}
	if r.GetCode() == kvoncev1.Code_ANSWERS_FULL {
		c.identity.ledger.forget()
	}
	if c.index < 0 && (c.copies.flying == 0 || f.kind == kindCancel) {
		e.again(c, l, now)
	}
}

// endHopeless ends a call of which no copy can succeed. When an earlier copy is lost it may have run, and there is no
// way left to find out.
func (e *engine) endHopeless(c *call, r *kvoncev1.Response) {
	if c.copies.harmless() {
		e.finish(c, nil, responseError(c, c.node, r, NotApplied), 0)
	} else {
		e.finish(c, nil, responseError(c, c.node, r, Unknown), keep)
	}
}

// expire ends a call that never ran under a client that is gone, or moves it to the next client while its caller waits.
func (e *engine) expire(c *call, r *kvoncev1.Response) {
	if c.abandoned || e.closing || c.reissues >= maxReissues {
		e.finish(c, nil, responseError(c, c.node, r, NotApplied), 0)
		return
	}
	e.reissue(c)
}

// readAnswered takes in the response to a read. Reads change nothing, so that whatever isn't an answer or the
// request's own fault is a reason to ask again.
func (e *engine) readAnswered(l *link, c *call, r *kvoncev1.Response, now time.Time) {
	if c.finished {
		return
	}
	c.node = l.node
	c.copies.refuse()
	switch {
	case r.GetCode() == kvoncev1.Code_OK:
		e.finish(c, r, nil, 0)
	case readFails(r):
		e.finish(c, nil, responseError(c, l.node, r, NotApplied), 0)
	default:
		c.refusal = r
		e.again(c, l, now)
	}
}

func readFails(r *kvoncev1.Response) bool {
	if isHopeless(r.GetCode()) || r.GetOutcome() == kvoncev1.Outcome_NOT_APPLIED {
		return true
	}
	return r.GetCode() == kvoncev1.Code_TOO_OLD || r.GetCode() == kvoncev1.Code_ANSWER_GONE
}

// unregisteredAnswered takes in the response to a command without a client. It may be sent again only when its one
// copy was refused.
func (e *engine) unregisteredAnswered(l *link, c *call, r *kvoncev1.Response, now time.Time) {
	if c.finished {
		return
	}
	c.node = l.node
	c.copies.refuse()
	switch verdictOf(r) {
	case answered:
		e.finish(c, r, nil, 0)
	case gone:
		e.finish(c, nil, responseError(c, l.node, r, Applied), 0)
	case failed, expired, hopeless:
		e.finish(c, nil, responseError(c, l.node, r, NotApplied), 0)
	case refused:
		c.refusal = r
		e.again(c, l, now)
	default:
		e.finish(c, nil, responseError(c, l.node, r, Unknown), 0)
	}
}

// registerAnswered takes in the response to a registration.
func (e *engine) registerAnswered(l *link, c *call, r *kvoncev1.Response, now time.Time) {
	if c.finished || c != e.registering {
		return
	}
	c.copies.refuse()
	switch {
	case r.GetRegistered() != nil:
		e.registered(c, r.GetRegistered())
		e.finish(c, r, nil, 0)
		e.endpoints.suggest(l.addr)
		e.retireAll(l)
	case isHopeless(r.GetCode()) || r.GetOutcome() == kvoncev1.Outcome_NOT_APPLIED:
		e.registrationFailed(c, r)
	default:
		e.registerAgain(l, c, r, now)
	}
}

// registerAgain queues another copy of a registration. The secret stays, so that a registration whose answer was lost
// isn't made twice, unless the cluster says that it is another client's.
func (e *engine) registerAgain(l *link, c *call, r *kvoncev1.Response, now time.Time) {
	if r.GetCode() == kvoncev1.Code_VERIFIER_USED {
		c.secret = drawSecret()
	}
	if e.writes.Len() == 0 && !e.eager {
		e.registering = nil
		e.finish(c, nil, responseError(c, l.node, r, NotApplied), 0)
		return
	}
	c.refusal = r
	e.again(c, l, now)
}

// registrationFailed fails the calls that wait for a registration that can't be made.
func (e *engine) registrationFailed(c *call, r *kvoncev1.Response) {
	e.registering, e.eager = nil, false
	e.finish(c, nil, responseError(c, "", r, NotApplied), 0)
	for e.writes.Len() > 0 {
		w := e.writes.Front().Value.(*call)
		err := responseError(w, "", r, NotApplied)
		err.Message = "registration: " + err.Message
		e.finish(w, nil, err, 0)
	}
}

// retireAll retires a link and the current one.
func (e *engine) retireAll(l *link) {
	l.retire()
	if e.link != nil {
		e.link.retire()
	}
}

// closeAnswered takes in the response to a close. A client that is gone has been closed, by this or an earlier copy.
func (e *engine) closeAnswered(l *link, c *call, r *kvoncev1.Response, now time.Time) {
	if c.finished {
		return
	}
	c.copies.refuse()
	switch {
	case r.GetOutcome() == kvoncev1.Outcome_APPLIED || endsIdentity(r.GetCode()):
		e.finish(c, r, nil, 0)
	case isHopeless(r.GetCode()):
		e.finish(c, nil, responseError(c, l.node, r, NotApplied), 0)
	default:
		c.refusal = r
		e.again(c, l, now)
	}
}

// drop takes in that a stream is gone: what is pending on it is lost.
func (e *engine) drop(l *link, now time.Time) {
	l.retire()
	delete(e.links, l)
	if e.link == l {
		e.link = nil
	}
	if l.identity != nil {
		l.identity.ledger.forget()
	}
	for _, f := range l.takeAll() {
		if f.kind == kindTouch {
			e.touching = false
			continue
		}
		if !f.call.finished {
			f.call.copies.lose()
			e.lose(f.call, now)
		}
	}
}

// takeAll empties the link, in the order in which the copies were sent.
func (l *link) takeAll() []flight {
	tags := make([]uint64, 0, len(l.pending))
	for tag := range l.pending {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	flights := make([]flight, len(tags))
	for i, tag := range tags {
		flights[i] = l.pending[tag]
	}
	clear(l.pending)
	l.bytes = 0
	return flights
}

// lose deals with a call of which a copy was lost.
func (e *engine) lose(c *call, now time.Time) {
	c.refusal = nil
	switch {
	case c.kind == kindUnregistered:
		e.finish(c, nil, c.fail(CodeUnanswered, Unknown, "the connection broke before the answer came"), 0)
	case c.kind == kindWrite && c.identity.forgotten:
		e.finish(c, nil, c.fail(wireCode(kvoncev1.Code_WRONG_CLUSTER), Unknown, "the cluster that the request was sent to is gone"), keep)
	case c.index < 0:
		e.queueOf(c).add(c, now)
	}
}

// install takes in that a link is ready.
func (e *engine) install(l *link, incarnation []byte) {
	e.link, e.links[l] = l, struct{}{}
	e.trouble, e.wrongCluster = nil, 0
	if e.incarnation == nil && len(incarnation) > 0 {
		e.incarnation = incarnation
	}
	e.resends.hurry()
	e.retries.hurry()
}
