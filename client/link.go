package client

import (
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Bounds of what is on its way on one stream.
const (
	// frameBytes is the size that a frame of several requests stays below.
	frameBytes = 1 << 20
	// maxFlying bounds the unanswered requests; nodes stop reading at twice as many.
	maxFlying = 2048
	// maxFlyingBytes bounds their bytes, one request excepted.
	maxFlyingBytes = 4 << 20
	// slowestLink is the rate that a connection is expected to have, in bytes per second: the more is on its way, the
	// longer may it be silent.
	slowestLink = 256 << 10
)

// link is what the engine knows of one stream. Copies belong to the stream they were sent on.
type link struct {
	addr, node string
	// identity is whose requests the stream carries; nil when its hello named no client.
	identity *identity

	pending map[uint64]flight
	lastTag uint64
	bytes   int

	// retired tells that nothing more is sent here; the last answers are waited for. Gone is closed then.
	retired bool
	gone    chan struct{}
	// since is when the stream last gave an answer, or began to owe one.
	since time.Time
	// unready is since when the node has been in touch with no leader; zero when it is.
	unready time.Time
}

// flight is a copy on its way.
type flight struct {
	kind kind
	call *call // nil for a touch
	size int
	at   time.Time
}

func newLink(addr, node string, id *identity) *link {
	return &link{addr: addr, node: node, identity: id, pending: make(map[uint64]flight), gone: make(chan struct{})}
}

// retire makes the client look for another stream.
func (l *link) retire() {
	if !l.retired {
		l.retired = true
		close(l.gone)
	}
}

// send notes a copy and returns its tag.
func (l *link) send(f flight) uint64 {
	if len(l.pending) == 0 {
		l.since = f.at
	}
	l.lastTag++
	l.pending[l.lastTag] = f
	l.bytes += f.size
	if f.call != nil {
		f.call.copies.send()
	}
	return l.lastTag
}

// take returns the copy that a tag belongs to.
func (l *link) take(tag uint64, now time.Time) (flight, bool) {
	f, ok := l.pending[tag]
	if ok {
		delete(l.pending, tag)
		l.bytes -= f.size
		l.since = now
	}
	return f, ok
}

// room reports whether a copy of this size may be sent now.
func (l *link) room(size int) bool {
	return len(l.pending) == 0 || len(l.pending) < maxFlying && l.bytes+size <= maxFlyingBytes
}

// silent reports whether the node owes answers for so long that it must be taken for paused or cut off.
func (l *link) silent(t *timing, now time.Time) bool {
	if len(l.pending) == 0 {
		return false
	}
	allowed := t.silence + time.Duration(l.bytes)*time.Second/slowestLink
	if now.Sub(l.since) > allowed {
		return true
	}
	for _, f := range l.pending {
		if now.Sub(f.at) > max(t.answer, allowed) {
			return true
		}
	}
	return false
}

// elsewhere returns the address of the leader when a node says that it is another node that can be dialled.
func (l *link) elsewhere(leader *kvoncev1.Leader) string {
	addr := leader.GetClientAddress()
	if addr == l.addr || leader.GetNodeId() == l.node {
		return ""
	}
	return addr
}
