package transport

import (
	"net"
	"sync"
	"sync/atomic"
)

// clientConns are the open connections of a Server, of which there may be so many. gRPC doesn't know a connection
// before its HTTP/2 handshake, and its own stop, graceful or not, waits for each one until its time is up; so
// they are closed from here.
type clientConns struct {
	// room holds a token for each connection.
	room chan struct{}

	mu       sync.Mutex
	conns    map[*clientConn]struct{}
	draining bool
}

func newClientConns(limit int) *clientConns {
	return &clientConns{
		room:  make(chan struct{}, limit),
		conns: make(map[*clientConn]struct{}),
	}
}

// limit is lis, accepting only while there is room.
func (p *clientConns) limit(lis net.Listener) net.Listener {
	return &clientListener{Listener: lis, conns: p, closed: make(chan struct{})}
}

// add notes a connection. Once the server drains it closes it as well, since its client can only be silent.
func (p *clientConns) add(c net.Conn) *clientConn {
	cc := &clientConn{Conn: c, conns: p}
	p.mu.Lock()
	p.conns[cc] = struct{}{}
	draining := p.draining
	p.mu.Unlock()
	if draining {
		_ = cc.Close() // the client may be first
	}
	return cc
}

func (p *clientConns) remove(c *clientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	<-p.room // never waits: each connection has a token there
}

// drain closes the connections from which nothing has come yet, and all that come from now on.
func (p *clientConns) drain() { p.closeIf((*clientConn).silent) }

// cut closes all connections.
func (p *clientConns) cut() { p.closeIf(func(*clientConn) bool { return true }) }

func (p *clientConns) closeIf(which func(*clientConn) bool) {
	p.mu.Lock()
	p.draining = true
	var found []*clientConn
	for c := range p.conns {
		if which(c) {
			found = append(found, c)
		}
	}
	p.mu.Unlock()
	for _, c := range found {
		_ = c.Close() // the client may be first
	}
}

// clientListener takes a token for a connection before it accepts it.
type clientListener struct {
	net.Listener
	conns  *clientConns
	once   sync.Once
	closed chan struct{}
}

// Accept waits for room and then for a connection.
func (l *clientListener) Accept() (net.Conn, error) {
	select {
	case l.conns.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.conns.room
		return nil, err
	}
	return l.conns.add(c), nil
}

// Close closes the listener and unblocks Accept.
func (l *clientListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// clientConn is one connection.
type clientConn struct {
	net.Conn
	conns *clientConns
	spoke atomic.Bool
	once  sync.Once
	err   error
}

// Read reads from the connection.
func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

// Close closes the connection; all calls return what the first one did.
func (c *clientConn) Close() error {
	c.once.Do(func() {
		c.conns.remove(c)
		c.err = c.Conn.Close()
	})
	return c.err
}

// silent reports whether nothing has come from the client yet.
func (c *clientConn) silent() bool { return !c.spoke.Load() }
