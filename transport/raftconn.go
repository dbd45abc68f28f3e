package transport

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// keepAliveIdle, keepAliveInterval and keepAliveCount find a vanished host on a quiet raft connection within
	// 25 s.
	keepAliveIdle     = 10 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3

	// userTimeout finds a vanished host on a raft connection with data under way.
	userTimeout = 15 * time.Second
)

// raftConn is a connection that its stream layer can close.
type raftConn struct {
	net.Conn
	layer *StreamLayer
	once  sync.Once
	err   error
}

// Close closes the connection; all calls return what the first one did.
func (c *raftConn) Close() error {
	c.once.Do(func() {
		c.layer.forget(c)
		c.err = c.Conn.Close()
	})
	return c.err
}

// acceptedConn puts a deadline on every read in the middle of an RPC, and none on the wait for the next RPC.
//
// Raft sets no read deadline on this side, so a sender that freezes half-way through a snapshot would hold the
// receiver's main loop, and with it every vote and shutdown, for as long as it likes. One idle deadline for all
// reads is no good either: peers keep a pool of connections and reuse them after any time (a deposed leader next
// uses its own in its next election), and each one that was closed for idleness fails the RPC that finds out.
// So the two are told apart. Raft's connections carry one RPC at a time (pipelining is off), and it reads
// nothing between the last byte of an RPC and its response: a read that follows a write waits for the next RPC,
// any other read is in the middle of one. The first read is as well, since peers connect only when they have
// something to send. A peer whose host has vanished between two RPCs is found by TCP keepalive; one that is
// only suspended costs its few pooled connections.
//
// Writes have the same deadline: a response is small, so that it waits only for a peer that is gone.
type acceptedConn struct {
	*raftConn
	timeout time.Duration
	between atomic.Bool // the last thing on the connection was a write
}

// Read reads from the connection, within the timeout when an RPC is under way.
func (c *acceptedConn) Read(b []byte) (int, error) {
	var deadline time.Time
	if !c.between.Load() {
		deadline = time.Now().Add(c.timeout)
	}
	if err := c.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.between.Store(false)
	}
	return n, err
}

// Write writes to the connection within the timeout.
func (c *acceptedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	c.between.Store(true)
	return n, err
}

// tune lets the kernel find hosts that vanish. What the kernel doesn't know is left out: deadlines remain.
func (l *StreamLayer) tune(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable:   true,
		Idle:     keepAliveIdle,
		Interval: keepAliveInterval,
		Count:    keepAliveCount,
	})
	if err != nil {
		l.log.Debug("raft connection without keepalive", "remote", c.RemoteAddr(), "err", err)
	}
	if err := setUserTimeout(tcp, userTimeout); err != nil {
		l.log.Debug("raft connection without user timeout", "remote", c.RemoteAddr(), "err", err)
	}
}
