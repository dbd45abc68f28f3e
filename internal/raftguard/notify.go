package raftguard

import (
	"context"
	"sync"
)

// notifyBuffer is how many changes of leadership wait for the drain.
const notifyBuffer = 16

// Notify always drains raft's leadership channel: raft stands still while nobody reads it.
type Notify struct{ ch chan bool }

// NewNotify makes a Notify for one raft.Config.
func NewNotify() *Notify { return &Notify{make(chan bool, notifyBuffer)} }

// Chan is what raft.Config.NotifyCh should be.
func (n *Notify) Chan() chan bool { return n.ch }

// Run calls changed, one call at a time, until ctx ends. Changes that come during a call are folded: a leadership
// that was lost and gained again meanwhile is told as lost, then gained; one that was gained and lost again isn't told.
// It returns when the last call has. Nobody drains then: raft has room for a few more changes, and should stop too.
func (n *Notify) Run(ctx context.Context, changed func(leader bool)) {
	latest := &latestChange{wake: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { latest.tell(ctx, changed) })
	for {
		select {
		case leader := <-n.ch:
			latest.put(leader)
		case <-ctx.Done():
			return
		}
	}
}

// latestChange folds changes for a slow callback.
type latestChange struct {
	mu     sync.Mutex
	leader bool
	lost   bool // leadership was lost since the last call
	fresh  bool
	wake   chan struct{}
}

func (l *latestChange) put(leader bool) {
	l.mu.Lock()
	l.leader, l.fresh = leader, true
	l.lost = l.lost || !leader
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *latestChange) take() (leader, lost, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leader, lost, fresh = l.leader, l.lost, l.fresh
	l.lost, l.fresh = false, false
	return leader, lost, fresh
}

func (l *latestChange) tell(ctx context.Context, changed func(bool)) {
	leading := false
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		leader, lost, fresh := l.take()
		if !fresh {
			continue
		}
		if leading && lost || leading && leader {
			changed(false)
			leading = false
		}
		if leader {
			changed(true)
			leading = true
		}
	}
}
