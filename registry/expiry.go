package registry

// Due is an item whose time has come. Items of all kinds are removed in order of (Deadline, Kind, ID).
type Due struct {
	Deadline uint64
	Kind     byte
	ID       uint64
}

// NextDue returns the client or tombstone with the lowest deadline, whether it has passed or not.
func (r *Registry) NextDue(lim Limits) (Due, bool) {
	c, okClient := r.due.Min()
	t, okTomb := r.tombsByAge.Min()
	client := Due{c.time, KindClient, c.id}
	tomb := Due{t.time + lim.TombstoneSpan, KindTombstone, t.id}
	switch {
	case okClient && (!okTomb || client.before(tomb)):
		return client, true
	case okTomb:
		return tomb, true
	}
	return Due{}, false
}

// before tells whether a is removed before b.
func (a Due) before(b Due) bool {
	switch {
	case a.Deadline != b.Deadline:
		return a.Deadline < b.Deadline
	case a.Kind != b.Kind:
		return a.Kind < b.Kind
	}
	return a.ID < b.ID
}

// RemoveDue removes what NextDue returned: a client leaves a tombstone, a tombstone nothing.
func (r *Registry) RemoveDue(d Due, now uint64) {
	if d.Kind == KindClient {
		if c, ok := r.clients.Get(d.ID); ok {
			r.bury(c, ReasonIdle, now)
		}
		return
	}
	r.dropTombstone(d.ID)
}

// DropExcess drops the oldest tombstones above the limit, at most budget of them, and returns how many.
func (r *Registry) DropExcess(lim Limits, budget uint64) (dropped uint64) {
	for dropped < budget && uint64(r.tombs.Len()) > lim.MaxTombstones {
		oldest, _ := r.tombsByAge.Min()
		r.dropTombstone(oldest.id)
		dropped++
	}
	return dropped
}

// Excess tells whether there are more tombstones than the limit.
func (r *Registry) Excess(lim Limits) bool { return uint64(r.tombs.Len()) > lim.MaxTombstones }

// bury removes a client and puts a tombstone in its place.
func (r *Registry) bury(c *Client, why Reason, now uint64) {
	t := &Tombstone{ID: c.ID, Verifier: c.Verifier, First: c.First, Reason: why, Since: now}
	for _, a := range r.open(c).stored(Range{c.First, MaxSequence}) {
		if a.outcome == Applied {
			t.mark(a.seq)
		}
	}
	r.remove(c)
	r.tombs.Set(t.ID, t)
	r.tombsByAge.Add(timed{t.Since, t.ID})
}

func (t *Tombstone) mark(seq uint64) {
	i := seq - t.First
	for uint64(len(t.Applied)) <= i/8 {
		t.Applied = append(t.Applied, 0)
	}
	t.Applied[i/8] |= 1 << (i % 8)
}

// remove takes a client and its answers out; its verifier stays.
func (r *Registry) remove(c *Client) {
	for _, a := range r.open(c).stored(Range{0, MaxSequence}) {
		r.answers.Delete(answerKey{a.client, a.seq})
		r.answerBytes -= a.size()
	}
	r.clients.Delete(c.ID)
	r.due.Remove(timed{c.deadline(), c.ID})
}

func (r *Registry) dropTombstone(id uint64) {
	t, ok := r.tombs.Delete(id)
	if !ok {
		return
	}
	r.tombsByAge.Remove(timed{t.Since, id})
	r.verifiers.Remove(verifierRef{verifier: t.Verifier})
}
