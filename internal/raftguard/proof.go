package raftguard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// ErrTermPassed says that a newer term was seen than the one for which leadership was to be proved.
var ErrTermPassed = errors.New("a newer term was seen")

// acks remembers, for the newest term, when the newest message was sent that each peer accepted.
type acks struct {
	self raft.ServerID

	mu      sync.Mutex
	term    uint64
	sent    map[raft.ServerID]time.Time
	changed chan struct{} // closed at the next change
}

func newAcks(self raft.ServerID) *acks {
	return &acks{self: self, sent: map[raft.ServerID]time.Time{}, changed: make(chan struct{})}
}

// accepted takes down the answer to a message of term that was sent at sent.
func (a *acks) accepted(id raft.ServerID, term, answered uint64, sent time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if newest := max(term, answered); newest > a.term {
		a.term, a.sent = newest, map[raft.ServerID]time.Time{}
	}
	if term == a.term && answered == term && sent.After(a.sent[id]) {
		a.sent[id] = sent
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// LastAck returns when the newest message was sent that a peer accepted in the newest term.
func (a *acks) LastAck(id raft.ServerID) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.sent[id]
	return at, ok
}

// Confirmed tells whether this node led in term at some moment after since: a majority of the voters, itself counted
// if it is one, has accepted a message of that term that was sent after since. It is false once a newer term was
// seen. Since comes from time.Now, so that clocks that are set don't matter.
func (a *acks) Confirmed(term uint64, since time.Time, c raft.Configuration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.confirmed(term, since, c)
}

func (a *acks) confirmed(term uint64, since time.Time, c raft.Configuration) bool {
	if a.term > term {
		return false
	}
	voters, yes := 0, 0
	for _, s := range c.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == a.self || a.term == term && a.acceptedAfter(s.ID, since) {
			yes++
		}
	}
	return yes > voters/2
}

// acceptedAfter is strict: of two things at one instant of a coarse clock nobody knows which came first.
func (a *acks) acceptedAfter(id raft.ServerID, since time.Time) bool {
	at, ok := a.sent[id]
	return ok && at.After(since)
}

// WaitConfirmed waits until Confirmed holds. It fails with ErrTermPassed when it can't hold any more, and with the
// cause of ctx when ctx ends. The caller makes raft send the messages, by VerifyLeader, whose own verdict proves
// nothing. The configuration is asked for anew after every answer of a peer.
func (a *acks) WaitConfirmed(ctx context.Context, term uint64, since time.Time, configuration func() raft.Configuration) error {
	for {
		voters := configuration()
		a.mu.Lock()
		next, newest := a.changed, a.term
		yes := a.confirmed(term, since, voters)
		a.mu.Unlock()
		switch {
		case yes:
			return nil
		case newest > term:
			return ErrTermPassed
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
