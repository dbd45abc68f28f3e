package client

import (
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// frame gathers what can be sent on a link now.
type frame struct {
	e        *engine
	l        *link
	now      time.Time
	requests []*kvoncev1.Request
	bytes    int
	// progress of all requests but the first, which alone names received answers.
	progress *kvoncev1.Progress
}

// collect returns the requests to send on a link in one frame, none if there are none.
func (e *engine) collect(l *link, now time.Time) []*kvoncev1.Request {
	if l.retired || l.identity != e.id {
		return nil
	}
	f := &frame{e: e, l: l, now: now}
	e.register(now)
	f.touch()
	f.due(&e.retries)
	f.due(&e.resends)
	f.fresh()
	f.numbered()
	return f.requests
}

// next returns when there may be something to send on a link though nothing else happens; zero for never.
func (e *engine) next(l *link) time.Time {
	var next time.Time
	for _, t := range []time.Time{e.retries.next(), e.resends.next(), e.touchDue(l)} {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

func (q *resendQueue) next() time.Time {
	_, due := q.head()
	return due
}

// touchDue returns when a touch is to be sent, zero for not at all.
func (e *engine) touchDue(l *link) time.Time {
	if e.id == nil || e.id.ended || e.touching || e.last || l.identity != e.id {
		return time.Time{}
	}
	due := e.lastEntry.Add(e.touchInterval())
	if e.nextTouch.After(due) {
		due = e.nextTouch
	}
	return due
}

// room reports whether one more request fits.
func (f *frame) room(size int) bool {
	return f.l.room(size) && (len(f.requests) == 0 || f.bytes+size <= frameBytes)
}

func (f *frame) add(k kind, c *call, r *kvoncev1.Request) {
	size := frameOverhead
	if c != nil {
		size = c.size
	}
	r.Tag = f.l.send(flight{kind: k, call: c, size: size, at: f.now})
	f.requests = append(f.requests, r)
	f.bytes += size
}

// progressed returns the client's progress, for one request.
func (f *frame) progressed() *kvoncev1.Progress {
	ledger := f.e.id.ledger
	if f.progress != nil {
		return f.progress
	}
	f.progress = &kvoncev1.Progress{FirstOutstanding: ledger.first}
	if ranges := ledger.received(); ranges != nil {
		return &kvoncev1.Progress{FirstOutstanding: ledger.first, Received: ranges}
	}
	return f.progress
}

// register makes a registration when one is needed.
func (e *engine) register(now time.Time) {
	if !e.needsIdentity() || e.registering != nil {
		return
	}
	e.registering = newCall(kindRegister, "register")
	e.registering.secret = drawSecret()
	e.retries.add(e.registering, now)
}

func (f *frame) touch() {
	due := f.e.touchDue(f.l)
	if due.IsZero() || due.After(f.now) || !f.room(frameOverhead) {
		return
	}
	f.e.touching = true
	f.e.id.ledger.forget()
	f.add(kindTouch, nil, &kvoncev1.Request{Kind: &kvoncev1.Request_Touch{Touch: &kvoncev1.Touch{Progress: f.progressed()}}})
}

// due sends what is to be sent again and has waited long enough.
func (f *frame) due(q *resendQueue) {
	for {
		c, due := q.head()
		if c == nil || due.After(f.now) || !f.room(c.size) {
			return
		}
		q.remove(c)
		f.send(c)
	}
}

// fresh sends reads and unregistered commands for the first time.
func (f *frame) fresh() {
	for f.e.others.Len() > 0 {
		c := f.e.others.Front().Value.(*call)
		if !f.room(c.size) {
			return
		}
		f.e.dequeue(c)
		f.send(c)
	}
}

// numbered gives sequences to writes and sends them, as long as the window has room. An ordered client first sends
// what must be sent again.
func (f *frame) numbered() {
	e := f.e
	if e.id == nil || e.id.ended || e.resends.ordered && e.resends.Len() > 0 {
		return
	}
	for e.writes.Len() > 0 && e.hasRoom() {
		c := e.writes.Front().Value.(*call)
		if !f.room(c.size) {
			return
		}
		e.dequeue(c)
		c.identity, c.seq = e.id, e.id.ledger.assign()
		f.send(c)
	}
}

// send sends a copy of a call.
func (f *frame) send(c *call) {
	r := &kvoncev1.Request{}
	k := c.kind
	switch {
	case c.cancelling:
		k = kindCancel
		r.Kind = &kvoncev1.Request_Cancel{Cancel: &kvoncev1.Cancel{Sequence: c.seq, Progress: f.progressed(), Salt: c.salt, Command: c.command}}
	case k == kindWrite:
		r.Kind = &kvoncev1.Request_Write{Write: &kvoncev1.Write{Sequence: c.seq, Progress: f.progressed(), Salt: c.salt, Command: c.command}}
	case k == kindUnregistered:
		r.Kind = &kvoncev1.Request_Unregistered{Unregistered: c.command}
	case k == kindRead:
		r.Kind = &kvoncev1.Request_Read{Read: c.read}
	case k == kindRegister:
		r.Kind = &kvoncev1.Request_Register{Register: f.e.registration(c)}
	case k == kindClose:
		r.Kind = &kvoncev1.Request_Close{Close: c.closed}
	}
	f.add(k, c, r)
}

func (e *engine) registration(c *call) *kvoncev1.Register {
	return &kvoncev1.Register{Verifier: verifierOf(c.secret), Name: e.config.name,
		TtlMs: uint64(e.config.ttl.Milliseconds()), Ordered: e.config.ordered}
}
