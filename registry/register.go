package registry

// Registration asks for a client.
type Registration struct {
	Verifier Verifier
	// Name is a label of at most MaxNameBytes.
	Name string
	// TTL is in milliseconds of cluster time; 0 for the default.
	TTL     uint64
	Ordered bool
}

// Register makes a client, or finds the one that an earlier copy of the same registration made, as long as that
// client has sent nothing. A verifier that names any other client, or a tombstone, is refused: whoever uses it has
// lost track of which client it is. Limits are looked at last: a limit that was changed since the first copy must
// not refuse a client that exists.
func (r *Registry) Register(at Stamp, lim Limits, reg Registration) Decision {
	if ref, ok := r.verifiers.Get(verifierRef{verifier: reg.Verifier}); ok {
		return r.registerAgain(at, ref.id, reg)
	}
	if len(reg.Name) > MaxNameBytes || reg.TTL != 0 && (reg.TTL < lim.MinTTL || reg.TTL > lim.MaxTTL) {
		return refused(Invalid)
	}
	if n := uint64(r.clients.Len()); n >= lim.MaxClients {
		d := refused(ClientsFull)
		d.Limit, d.RetryAfter = lim.MaxClients, r.untilNextExpiry(at)
		return d
	}
	r.lastID++
	c := &Client{ID: r.lastID, Verifier: reg.Verifier, Name: reg.Name, TTL: reg.TTL, LastActive: at.Time, First: 1,
		Window: lim.Window, Ordered: reg.Ordered, next: 1}
	if c.TTL == 0 {
		c.TTL = lim.DefaultTTL
	}
	r.clients.Set(c.ID, c)
	r.due.Add(timed{c.deadline(), c.ID})
	r.verifiers.Add(verifierRef{c.Verifier, c.ID})
	return Decision{Code: Done, Outcome: Applied, Index: at.Index, Term: at.Term, Client: c}
}

func (r *Registry) registerAgain(at Stamp, id uint64, reg Registration) Decision {
	c, ok := r.clients.Get(id)
	same := ok && c.First == 1 && c.answers == 0 &&
		c.Name == reg.Name && c.Ordered == reg.Ordered && (reg.TTL == 0 || reg.TTL == c.TTL)
	if !same {
		return refused(VerifierUsed)
	}
	s := r.open(c)
	s.touch(at)
	s.End()
	c, _ = r.clients.Get(id)
	return Decision{Code: Done, Outcome: Applied, Replayed: true, Index: at.Index, Term: at.Term, Client: c}
}

func (r *Registry) untilNextExpiry(at Stamp) uint64 {
	next, ok := r.due.Min()
	if !ok || next.time < at.Time {
		return 0
	}
	return next.time - at.Time
}

// Close ends a client. First is the first outstanding sequence at the end. The close is clean, and leaves nothing
// behind, when no answer is stored from First on and the client declares nothing unresolved; a late copy of one of
// its requests can't run, because ids are never used again. Otherwise a tombstone keeps the verdicts.
func (r *Registry) Close(at Stamp, id uint64, v Verifier, first uint64, unresolved bool) Decision {
	if first == 0 || first > MaxSequence {
		return refused(Invalid)
	}
	s, d := r.Open(id, v)
	if s == nil {
		if d.Code == Expired {
			d.Outcome = NotApplied
		}
		return d
	}
	s.touch(at)
	s.advance(Progress{First: first})
	s.End()
	c, _ := r.clients.Get(id)
	if c.answers > 0 || unresolved {
		r.bury(c, ReasonClosed, at.Time)
	} else {
		r.remove(c)
		r.verifiers.Remove(verifierRef{verifier: c.Verifier})
	}
	return Decision{Code: Done, Outcome: Applied, Index: at.Index, Term: at.Term}
}
