package registry

import (
	"bytes"
	"slices"
)

// oracle is a second registry that forgets nothing: a plain list of all clients that ever were, each with everything
// that was ever decided for it. It has no index, no account and no copy; each question is answered by looking through
// all of it. It follows the rules of the registry as they are written, one after the other.
type oracle struct {
	clients []*oracleClient // client id minus one
}

type oracleClient struct {
	id            uint64
	reg           Registration
	ttl, window   uint64
	active, first uint64
	life          life
	since         uint64 // when it was buried
	why           Reason
	decided       map[uint64]*oracleAnswer
}

// life is where a client is in its life.
type life int

const (
	alive     life = iota
	buried         // a tombstone stands
	forgotten      // neither client nor tombstone
)

// oracleAnswer is what was decided for a sequence. It is never removed.
type oracleAnswer struct {
	first       Decision
	fingerprint Fingerprint
	received    bool // the client named it as received
}

// held is what the answer to a sequence counts.
func (a *oracleAnswer) held() uint64 {
	n := uint64(128)
	switch {
	case a.first.Code == Done && !a.received:
		n += uint64(len(a.first.Bytes))
	case a.first.Code == AnswerTooLarge:
		n += 2 // the limit as a number; test limits have two bytes
	}
	return n
}

// bytes is what the client's answers count: those from the first outstanding sequence on.
func (c *oracleClient) bytes() (count, sum uint64) {
	for seq, a := range c.decided {
		if c.life == alive && seq >= c.first {
			count, sum = count+1, sum+a.held()
		}
	}
	return count, sum
}

func (o *oracle) bytes() (sum uint64) {
	for _, c := range o.clients {
		_, n := c.bytes()
		sum += n
	}
	return sum
}

func (o *oracle) count(where life) (n uint64) {
	for _, c := range o.clients {
		if c.life == where {
			n++
		}
	}
	return n
}

func (o *oracle) find(id uint64) *oracleClient {
	if id == 0 || id > uint64(len(o.clients)) {
		return nil
	}
	return o.clients[id-1]
}

func (o *oracle) register(at Stamp, lim Limits, reg Registration) Decision {
	for _, c := range o.clients {
		if c.life == forgotten || c.reg.Verifier != reg.Verifier {
			continue
		}
		same := c.reg.Name == reg.Name && c.reg.Ordered == reg.Ordered && (reg.TTL == 0 || reg.TTL == c.ttl)
		if n, _ := c.bytes(); c.life != alive || c.first != 1 || n > 0 || !same {
			return Decision{Code: VerifierUsed, Outcome: Refused}
		}
		c.active = at.Time
		return Decision{Code: Done, Outcome: Applied, Replayed: true, Index: at.Index, Term: at.Term, Client: &Client{ID: c.id}}
	}
	if reg.TTL != 0 && (reg.TTL < lim.MinTTL || reg.TTL > lim.MaxTTL) {
		return Decision{Code: Invalid, Outcome: Refused}
	}
	if o.count(alive) >= lim.MaxClients {
		return Decision{Code: ClientsFull, Outcome: Refused, Limit: lim.MaxClients, RetryAfter: o.nextExpiry(at.Time)}
	}
	ttl := reg.TTL
	if ttl == 0 {
		ttl = lim.DefaultTTL
	}
	c := &oracleClient{id: uint64(len(o.clients)) + 1, reg: reg, ttl: ttl, window: lim.Window, active: at.Time, first: 1,
		decided: map[uint64]*oracleAnswer{}}
	o.clients = append(o.clients, c)
	return Decision{Code: Done, Outcome: Applied, Index: at.Index, Term: at.Term, Client: &Client{ID: c.id}}
}

func (o *oracle) nextExpiry(now uint64) uint64 {
	next := uint64(1 << 62)
	for _, c := range o.clients {
		if c.life == alive {
			next = min(next, c.active+c.ttl)
		}
	}
	if next == 1<<62 || next < now {
		return 0
	}
	return next - now
}

// meet is what comes before the rules about sequences: rules 0 to 2.
func (o *oracle) meet(at Stamp, id uint64, v Verifier, seq uint64, p Progress) (*oracleClient, Decision) {
	if seq == 0 || p.First == 0 || p.First > seq || seq >= 1<<63 {
		return nil, Decision{Code: Invalid, Outcome: Refused}
	}
	c := o.find(id)
	switch {
	case c == nil || c.life == forgotten:
		return nil, Decision{Code: UnknownClient, Outcome: Unknown}
	case c.reg.Verifier != v:
		return nil, Decision{Code: WrongSecret, Outcome: Refused}
	case c.life == buried:
		return nil, Decision{Code: Expired, Outcome: c.verdict(seq)}
	}
	c.progress(at, p)
	return c, Decision{}
}

func (c *oracleClient) verdict(seq uint64) Outcome {
	if seq < c.first {
		return Unknown
	}
	if a := c.decided[seq]; a != nil && a.first.Outcome == Applied {
		return Applied
	}
	return NotApplied
}

func (c *oracleClient) progress(at Stamp, p Progress) {
	c.active = at.Time
	c.first = max(c.first, p.First)
	for seq, a := range c.decided {
		for _, g := range p.Received {
			if seq >= c.first && g.Low <= seq && seq <= g.High && a.first.Code == Done {
				a.received = true
			}
		}
	}
}

// settled applies rules 3 to 5.
func (c *oracleClient) settled(seq uint64, f Fingerprint) (Decision, bool) {
	if seq < c.first {
		return Decision{Code: Stale, Outcome: Unknown}, true
	}
	if a := c.decided[seq]; a != nil {
		return a.again(f), true
	}
	if seq >= c.first+c.window {
		return Decision{Code: WindowExceeded, Outcome: Refused, Limit: c.window}, true
	}
	return Decision{}, false
}

// again is the answer to a later copy.
func (a *oracleAnswer) again(f Fingerprint) Decision {
	if a.fingerprint != f {
		return Decision{Code: Reused, Outcome: Unknown}
	}
	d := a.first
	d.Replayed = true
	if a.received {
		d.Code, d.Bytes = AnswerGone, nil
	}
	return d
}

func (c *oracleClient) next() uint64 {
	n := c.first
	for c.decided[n] != nil {
		n++
	}
	return n
}

func (o *oracle) request(at Stamp, lim Limits, id uint64, v Verifier, seq uint64, p Progress, cmd *fakeCommand) Decision {
	c, d := o.meet(at, id, v, seq, p)
	if c == nil {
		return d
	}
	if d, ok := c.settled(seq, cmd.fingerprint); ok {
		return d
	}
	if c.reg.Ordered && seq != c.next() {
		return Decision{Code: OutOfOrder, Outcome: Refused, Expected: c.next()}
	}
	a := &oracleAnswer{fingerprint: cmd.fingerprint, first: Decision{Code: Done, Outcome: Applied, Bytes: cmd.answer, Index: at.Index, Term: at.Term}}
	if cmd.fails {
		a.first.Outcome = NotApplied
	}
	if most := min(lim.ClientAnswerBytes, lim.TotalAnswerBytes); a.held() > most {
		a.first.Code, a.first.Outcome, a.first.Bytes, a.first.Limit = AnswerTooLarge, NotApplied, nil, most
	}
	_, own := c.bytes()
	if seq != c.first && own+a.held() > lim.ClientAnswerBytes {
		return Decision{Code: AnswersFull, Outcome: Refused, Limit: lim.ClientAnswerBytes}
	}
	if small := seq == c.first && len(a.first.Bytes) <= 1024; !small && o.bytes()+a.held() > lim.TotalAnswerBytes {
		return Decision{Code: AnswersFull, Outcome: Refused, Limit: lim.TotalAnswerBytes}
	}
	c.decided[seq] = a
	return a.first
}

func (o *oracle) cancel(at Stamp, id uint64, v Verifier, seq uint64, p Progress, f Fingerprint) Decision {
	c, d := o.meet(at, id, v, seq, p)
	if c == nil {
		return d
	}
	if d, ok := c.settled(seq, f); ok {
		return d
	}
	c.decided[seq] = &oracleAnswer{fingerprint: f, first: Decision{Code: Cancelled, Outcome: NotApplied, Index: at.Index, Term: at.Term}}
	return c.decided[seq].first
}

func (o *oracle) touch(at Stamp, id uint64, v Verifier, p Progress) Decision {
	c := o.find(id)
	switch {
	case c == nil || c.life == forgotten:
		return Decision{Code: UnknownClient, Outcome: Unknown}
	case c.reg.Verifier != v:
		return Decision{Code: WrongSecret, Outcome: Refused}
	case c.life == buried:
		return Decision{Code: Expired, Outcome: Unknown}
	case p.First == 0 || p.First >= 1<<63:
		return Decision{Code: Invalid, Outcome: Refused}
	}
	c.progress(at, p)
	return Decision{Code: Done, Outcome: Applied, Index: at.Index, Term: at.Term}
}

func (o *oracle) close(at Stamp, id uint64, v Verifier, first uint64, unresolved bool) Decision {
	c, d := o.meet(at, id, v, first, Progress{First: first})
	if c == nil {
		if d.Code == Expired {
			d.Outcome = NotApplied
		}
		return d
	}
	if n, _ := c.bytes(); n > 0 || unresolved {
		c.life, c.why, c.since = buried, ReasonClosed, at.Time
	} else {
		c.life = forgotten
	}
	return Decision{Code: Done, Outcome: Applied, Index: at.Index, Term: at.Term}
}

// tick removes what is due, the lowest (deadline, kind, id) first, then the oldest tombstones above the limit.
func (o *oracle) tick(lim Limits, now, budget uint64) {
	for ; budget > 0; budget-- {
		var least *oracleClient
		for _, c := range o.clients {
			if c.life != forgotten && (least == nil || slices.Compare(c.due(lim), least.due(lim)) < 0) {
				least = c
			}
		}
		if least == nil || least.due(lim)[0] > now {
			break
		}
		if least.life == buried {
			least.life = forgotten
		} else {
			least.life, least.why, least.since = buried, ReasonIdle, now
		}
	}
	for ; budget > 0 && o.count(buried) > lim.MaxTombstones; budget-- {
		var oldest *oracleClient
		for _, c := range o.clients {
			if c.life == buried && (oldest == nil || c.since < oldest.since) {
				oldest = c
			}
		}
		oldest.life = forgotten
	}
}

// due is what decides when the client or its tombstone goes.
func (c *oracleClient) due(lim Limits) []uint64 {
	if c.life == buried {
		return []uint64{c.since + lim.TombstoneSpan, KindTombstone, c.id}
	}
	return []uint64{c.active + c.ttl, KindClient, c.id}
}

// equal tells whether two decisions say the same. Where a decision carries no position of its own, the entry's is
// filled in later.
func (d Decision) equal(other Decision) bool {
	answers := d.Code == Done || d.Code == AnswerGone || d.Code == Cancelled || d.Code == AnswerTooLarge
	if answers && (d.Index != other.Index || d.Term != other.Term) {
		return false
	}
	if (d.Client == nil) != (other.Client == nil) || d.Client != nil && d.Client.ID != other.Client.ID {
		return false
	}
	return d.Code == other.Code && d.Outcome == other.Outcome && d.Replayed == other.Replayed &&
		bytes.Equal(d.Bytes, other.Bytes) && d.Expected == other.Expected &&
		d.RetryAfter == other.RetryAfter && d.Limit == other.Limit
}
