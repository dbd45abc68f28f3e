package transport

import (
	"container/list"
	"net"
	"sync"
)

// MaxPendingHandshakes bounds the accepted raft connections that have not finished their handshake.
const MaxPendingHandshakes = 256

// pendingConns are the connections in the handshake, oldest first. At the limit the oldest one makes room: a real
// handshake takes milliseconds, so the oldest is the one that has nothing to say, and closing the newest instead
// would let a few silent connections lock everybody out until their time is up.
type pendingConns struct {
	limit int

	mu    sync.Mutex
	conns list.List // of net.Conn
}

// add notes a connection, and closes the oldest one when there are too many. The caller calls the returned
// function when the handshake is over.
func (p *pendingConns) add(c net.Conn) (remove func()) {
	e, surplus := p.push(c)
	if surplus != nil {
		_ = surplus.Close() // its own goroutine sees the error
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns.Remove(e)
	}
}

func (p *pendingConns) push(c net.Conn) (e *list.Element, surplus net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e = p.conns.PushBack(c)
	if p.conns.Len() > p.limit {
		surplus = p.conns.Remove(p.conns.Front()).(net.Conn)
	}
	return e, surplus
}
