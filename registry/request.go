package registry

import (
	"cmp"
	"slices"

	"github.com/kvonce/kvonce/internal/canon"
)

// Command is what a request runs.
type Command interface {
	// Fingerprint identifies the command together with the salt of its request.
	Fingerprint() Fingerprint
	// Evaluate runs the command tentatively and returns its outcome, Applied or NotApplied, and its answer.
	Evaluate() (Outcome, []byte)
	// Keep makes the effects of Evaluate last.
	Keep()
	// Discard undoes them.
	Discard()
}

// Progress is what a client says about the answers it has.
type Progress struct {
	// First is the first outstanding sequence: all below it are resolved.
	First uint64
	// Received names sequences from First on whose answers the client has.
	Received []Range
}

// Range is a range of sequences, inclusive at both ends.
type Range struct{ Low, High uint64 }

// Session is a client that is being worked on, for the requests of one client within a log entry. It must be ended
// before anything else is asked of the registry.
type Session struct {
	r   *Registry
	was *Client
	now Client
}

// Open starts work on a client. When there is no such client, or the verifier isn't its own, the session is nil and
// the decision says why; Verdict completes it for one request.
func (r *Registry) Open(id uint64, v Verifier) (*Session, Decision) {
	if c, ok := r.clients.Get(id); ok {
		if c.Verifier != v {
			return nil, refused(WrongSecret)
		}
		return r.open(c), Decision{}
	}
	t, ok := r.tombs.Get(id)
	switch {
	case !ok:
		return nil, Decision{Code: UnknownClient, Outcome: Unknown}
	case t.Verifier != v:
		return nil, refused(WrongSecret)
	}
	return nil, Decision{Code: Expired, Outcome: Unknown}
}

func (r *Registry) open(c *Client) *Session { return &Session{r: r, was: c, now: *c} }

// Verdict returns the decision on one request of a client that Open didn't find: for an expired client, what became
// of the sequence.
func (r *Registry) Verdict(at Stamp, opened Decision, id, seq, first uint64) Decision {
	if d, bad := malformed(seq, first); bad {
		return d
	}
	if t, ok := r.tombs.Get(id); ok && opened.Code == Expired {
		opened.Outcome = t.Verdict(seq)
	}
	opened.Index, opened.Term = at.Index, at.Term
	return opened
}

// malformed tells whether a request is refused as Invalid before anything else is looked at.
func malformed(seq, first uint64) (Decision, bool) {
	bad := seq == 0 || seq > MaxSequence || first == 0 || first > seq
	return refused(Invalid), bad
}

// Request decides on one request, by rules that stand in this order: malformed; last active and progress; below
// the first outstanding sequence; already answered; beyond the window; out of order; then it runs.
func (s *Session) Request(at Stamp, lim Limits, seq uint64, p Progress, cmd Command) Decision {
	if d, bad := malformed(seq, p.First); bad {
		return d
	}
	s.touch(at)
	s.advance(p)
	if d, decided := s.decided(at, seq, cmd.Fingerprint()); decided {
		return d
	}
	if s.now.Ordered && seq != s.now.next {
		d := refused(OutOfOrder)
		d.Expected = s.now.next
		return d
	}
	return s.run(at, lim, seq, cmd)
}

// Cancel makes the outcome of a sequence final: a stored answer is given as for a repeated request; otherwise the
// sequence is marked so that no copy of it ever runs. It is exempt from the caps and from the order.
func (s *Session) Cancel(at Stamp, seq uint64, p Progress, f Fingerprint) Decision {
	if d, bad := malformed(seq, p.First); bad {
		return d
	}
	s.touch(at)
	s.advance(p)
	if d, decided := s.decided(at, seq, f); decided {
		return d
	}
	a := &answer{client: s.now.ID, seq: seq, fingerprint: f, kind: cancelled, outcome: NotApplied, index: at.Index, term: at.Term}
	s.store(a)
	return a.fresh()
}

// decided applies the rules that need no evaluation: stale, answered before, beyond the window.
func (s *Session) decided(at Stamp, seq uint64, f Fingerprint) (Decision, bool) {
	if seq < s.now.First {
		return Decision{Code: Stale, Outcome: Unknown, Index: at.Index, Term: at.Term}, true
	}
	if a, ok := s.r.answers.Get(answerKey{s.now.ID, seq}); ok && checkDuplicates {
		return a.replay(f), true
	}
	if seq-s.now.First >= s.now.Window {
		d := refused(WindowExceeded)
		d.Limit = s.now.Window
		return d, true
	}
	return Decision{}, false
}

// run evaluates the command and stores its answer. All limits are checked here, after the duplicate check: a limit
// that was lowered since must not turn an executed request into a refused one.
func (s *Session) run(at Stamp, lim Limits, seq uint64, cmd Command) Decision {
	outcome, bytes := cmd.Evaluate()
	a := &answer{client: s.now.ID, seq: seq, fingerprint: cmd.Fingerprint(), kind: executed, outcome: outcome,
		index: at.Index, term: at.Term, bytes: bytes}
	if most := lim.MaxAnswer(); a.size() > most {
		a.kind, a.outcome, a.bytes = tooLarge, NotApplied, canon.AppendUint(nil, most)
	}
	if full := s.full(lim, a); full != 0 {
		cmd.Discard()
		d := refused(AnswersFull)
		d.Limit = full
		return d
	}
	if a.outcome == Applied {
		cmd.Keep()
	} else {
		cmd.Discard()
	}
	s.store(a)
	return a.fresh()
}

// full returns the cap that an answer would pass, 0 for none. The first outstanding sequence is exempt from the
// client's own cap, and with a small answer from the cap on all: it is the one that lets the client move on.
func (s *Session) full(lim Limits, a *answer) uint64 {
	first := a.seq == s.now.First
	if s.now.answerBytes+a.size() > lim.ClientAnswerBytes && !first {
		return lim.ClientAnswerBytes
	}
	if s.r.answerBytes+a.size() > lim.TotalAnswerBytes && !(first && len(a.bytes) <= SmallAnswer) {
		return lim.TotalAnswerBytes
	}
	return 0
}

// Touch records that the client is there, with its progress.
func (s *Session) Touch(at Stamp, p Progress) Decision {
	if p.First == 0 || p.First > MaxSequence {
		return refused(Invalid)
	}
	s.touch(at)
	s.advance(p)
	return Decision{Code: Done, Outcome: Applied, Index: at.Index, Term: at.Term}
}

// End puts the changed client back into the registry.
func (s *Session) End() {
	if s.now == *s.was {
		return
	}
	c := s.now
	s.r.clients.Set(c.ID, &c)
	if d := s.was.deadline(); d != c.deadline() {
		s.r.due.Remove(timed{d, c.ID})
		s.r.due.Add(timed{c.deadline(), c.ID})
	}
	s.was = &c
}

func (s *Session) touch(at Stamp) { s.now.LastActive = at.Time }

// advance raises the first outstanding sequence, drops the answers below it, and the bytes of those named as received.
func (s *Session) advance(p Progress) {
	if p.First > s.now.First {
		s.dropBelow(p.First)
		s.now.First = p.First
		s.now.next = max(s.now.next, p.First)
		s.findNext()
	}
	for _, g := range disjoint(p.Received) {
		s.dropBytes(g)
	}
}

// disjoint returns the ranges in order and without overlap, so that no answer is visited twice whatever a client
// names. What it is given doesn't change.
func disjoint(ranges []Range) (out []Range) {
	byLow := func(a, b Range) int { return cmp.Compare(a.Low, b.Low) }
	if !slices.IsSortedFunc(ranges, byLow) {
		ranges = slices.Clone(ranges)
		slices.SortStableFunc(ranges, byLow)
	}
	var free uint64 // the lowest sequence that no range before has
	for _, g := range ranges {
		g.Low, g.High = max(g.Low, free), min(g.High, MaxSequence)
		if g.Low <= g.High {
			out = append(out, g)
			free = g.High + 1
		}
	}
	return out
}

func (s *Session) dropBelow(first uint64) {
	for _, a := range s.stored(Range{s.now.First, first - 1}) {
		s.r.answers.Delete(answerKey{a.client, a.seq})
		s.account(-1, a.size())
	}
}

// dropBytes keeps fingerprint and outcome of the answers in a range, so that the sequence still can't run again.
func (s *Session) dropBytes(g Range) {
	for _, a := range s.stored(g) {
		if a.gone || a.kind != executed {
			continue
		}
		had := *a
		had.bytes, had.gone = nil, true
		s.r.answers.Set(answerKey{a.client, a.seq}, &had)
		s.account(-1, a.size())
		s.account(+1, had.size())
	}
}

// stored returns the client's answers in a range. It walks the answers, of which there are at most a window, never
// the range.
func (s *Session) stored(g Range) (found []*answer) {
	s.r.answers.Ascend(answerKey{s.now.ID, g.Low}, func(a *answer) bool {
		if a.client != s.now.ID || a.seq > g.High {
			return false
		}
		found = append(found, a)
		return true
	})
	return found
}

func (s *Session) store(a *answer) {
	if was, replaced := s.r.answers.Set(answerKey{a.client, a.seq}, a); replaced {
		s.account(-1, was.size())
	}
	s.account(+1, a.size())
	s.findNext()
}

func (s *Session) account(sign int, size uint64) {
	if sign < 0 {
		s.now.answers, s.now.answerBytes, s.r.answerBytes = s.now.answers-1, s.now.answerBytes-size, s.r.answerBytes-size
		return
	}
	s.now.answers, s.now.answerBytes, s.r.answerBytes = s.now.answers+1, s.now.answerBytes+size, s.r.answerBytes+size
}

// findNext moves next past the sequences that have an answer. It never goes back, so it costs one step an answer.
func (s *Session) findNext() {
	if !s.now.Ordered {
		return
	}
	for {
		if _, ok := s.r.answers.Get(answerKey{s.now.ID, s.now.next}); !ok {
			return
		}
		s.now.next++
	}
}

// replay is the decision on a later copy of a request whose answer is stored.
func (a *answer) replay(f Fingerprint) Decision {
	if f != a.fingerprint {
		return Decision{Code: Reused, Outcome: Unknown, Index: a.index, Term: a.term}
	}
	d := a.fresh()
	d.Replayed = true
	return d
}

// fresh is the decision that an answer stands for.
func (a *answer) fresh() Decision {
	d := Decision{Outcome: a.outcome, Bytes: a.bytes, Index: a.index, Term: a.term}
	switch {
	case a.gone:
		d.Code = AnswerGone
	case a.kind == cancelled:
		d.Code = Cancelled
	case a.kind == tooLarge:
		d.Code, d.Bytes, d.Limit = AnswerTooLarge, nil, canon.NewReader(a.bytes).Uint()
	default:
		d.Code = Done
	}
	return d
}
