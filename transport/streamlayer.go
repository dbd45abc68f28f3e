package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// DefaultReadTimeout is the default for StreamOptions.ReadTimeout.
const DefaultReadTimeout = 15 * time.Second

const (
	// minAcceptDelay and maxAcceptDelay bound the pause after an accept that failed, for want of descriptors
	// for example.
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

// StreamOptions are the settings of a StreamLayer; the zero value has the defaults.
type StreamOptions struct {
	// ReadTimeout bounds every read in the middle of an RPC on accepted connections, and every write on them.
	// It should be longer than a peer takes to read a piece of a snapshot from its disk. 0 means
	// DefaultReadTimeout.
	ReadTimeout time.Duration
	// DialMap, if not nil, gives the address to connect to in place of the raft address of a node: the way
	// round a network that translates addresses, or through one that loses packets on purpose.
	DialMap func(addr string) string
	// Logger is where the stream layer logs; nil means slog.Default().
	Logger *slog.Logger
}

// StreamLayer is the TCP stream layer of a node's raft port, for raft.NewNetworkTransportWithConfig. On every
// connection both nodes say who they are before raft gets it.
//
// Each accepted connection has a goroutine of its own, and a deadline, until its handshake is done, so that
// nobody who is silent keeps others waiting.
type StreamLayer struct {
	listener net.Listener
	addr     net.Addr
	hellos   Hellos
	options  StreamOptions
	log      *slog.Logger
	noise    noise
	pending  pendingConns
	// handshake is HandshakeTimeout, but for tests.
	handshake time.Duration

	open atomic.Bool
	// accepted hands connections from their handshake to Accept.
	accepted chan net.Conn
	// done ends when the layer is closed.
	done    context.Context
	finish  context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex
	conns map[*raftConn]struct{} // nil once closed
}

var _ raft.StreamLayer = (*StreamLayer)(nil)

// advertised is an address as peers dial it; names are left for them to resolve.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// NewStreamLayer makes a stream layer on lis, which it closes in the end. advertise is the host and port that
// other nodes dial. Nothing is accepted before Run, and no raft connection before Open.
func NewStreamLayer(lis net.Listener, advertise string, h Hellos, o StreamOptions) *StreamLayer {
	if o.ReadTimeout <= 0 {
		o.ReadTimeout = DefaultReadTimeout
	}
	if o.DialMap == nil {
		o.DialMap = func(addr string) string { return addr }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	l := &StreamLayer{
		listener:  lis,
		addr:      advertised(advertise),
		hellos:    h,
		options:   o,
		log:       o.Logger,
		pending:   pendingConns{limit: MaxPendingHandshakes},
		handshake: HandshakeTimeout,
		accepted:  make(chan net.Conn),
		conns:     make(map[*raftConn]struct{}),
	}
	l.done, l.finish = context.WithCancel(context.Background())
	return l
}

// Addr is the advertised address.
func (l *StreamLayer) Addr() net.Addr { return l.addr }

// Open lets raft connections in. Before it they are refused as not started, while probes are answered.
func (l *StreamLayer) Open() { l.open.Store(true) }

// Run accepts connections until ctx ends or Close is called, and returns when all handshakes have ended. It
// closes the layer.
func (l *StreamLayer) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, l.shut)()
	defer l.workers.Wait()
	defer l.shut()
	delay := minAcceptDelay
	for {
		c, err := l.listener.Accept()
		switch {
		case l.done.Err() != nil:
			if err == nil {
				_ = c.Close() // came in just as the layer closed
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("transport: raft listener: %w", err)
		case err != nil:
			l.log.Error("can't accept raft connections", "err", err, "retry_after", delay)
			l.pause(delay)
			delay = min(2*delay, maxAcceptDelay)
		default:
			delay = minAcceptDelay
			l.workers.Go(func() { l.admit(c) })
		}
	}
}

func (l *StreamLayer) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done.Done():
	}
}

// Accept waits for the next raft connection whose hellos were exchanged. It returns net.ErrClosed after Close.
func (l *StreamLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener and every connection, accepted and dialled; it unblocks Accept, Dial and Probe. A
// raft node must close its stream layer before it waits for raft to stop, which may be in the middle of a
// snapshot that never ends.
func (l *StreamLayer) Close() error {
	l.shut()
	return nil
}

func (l *StreamLayer) shut() {
	l.finish()
	if err := l.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		l.log.Warn("closing the raft listener", "err", err)
	}
	l.mu.Lock()
	open := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range open {
		_ = c.Close() // the other end may be first
	}
}

// track sets up a connection of either direction before its first byte, so that vanished hosts are noticed and
// Close finds it. It closes the connection when the layer is closed already.
func (l *StreamLayer) track(c net.Conn) (*raftConn, error) {
	l.tune(c)
	rc := &raftConn{Conn: c, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.conns[rc] = struct{}{}
	return rc, nil
}

func (l *StreamLayer) forget(c *raftConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// admit sees an accepted connection through its handshake and hands it to Accept.
func (l *StreamLayer) admit(raw net.Conn) {
	c, err := l.track(raw)
	if err != nil {
		return
	}
	remote, err := l.answerInTime(c)
	if err != nil || remote == nil {
		_ = c.Close()
		l.complain(raw.RemoteAddr(), err)
		return
	}
	l.hellos.Learned(remote, raw.RemoteAddr().String())
	l.hand(c)
}

func (l *StreamLayer) answerInTime(c *raftConn) (*kvoncev1.PeerHello, error) {
	defer l.pending.add(c)()
	if err := c.SetDeadline(time.Now().Add(l.handshake)); err != nil {
		return nil, err
	}
	return l.answerHello(c)
}

// hand gives an accepted connection to Accept, and closes it when nobody takes it in time.
func (l *StreamLayer) hand(c *raftConn) {
	timer := time.NewTimer(l.handshake)
	defer timer.Stop()
	if err := c.SetDeadline(time.Time{}); err != nil {
		_ = c.Close() // closed by the other end
		return
	}
	select {
	case l.accepted <- &acceptedConn{raftConn: c, timeout: l.options.ReadTimeout}:
	case <-timer.C:
		_ = c.Close()
	case <-l.done.Done():
		_ = c.Close()
	}
}

// complain logs why an accepted connection was closed, unless it was a probe or said nothing.
func (l *StreamLayer) complain(addr net.Addr, err error) {
	if err == nil || errors.Is(err, io.EOF) || l.done.Err() != nil {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("no hello in time: %w", err)
	}
	if l.noise.worthALine(addr, time.Now()) {
		l.log.Warn("raft connection rejected", "remote", addr.String(), "err", err)
	}
}

// Dial connects to the raft port of a node within timeout, which covers the handshake. It returns a
// *RefusedError when either node refuses the other.
func (l *StreamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.done, timeout)
	defer cancel()
	addr := string(address)
	c, remote, err := l.connect(ctx, addr, kvoncev1.PeerHello_RAFT)
	if err != nil {
		return nil, err
	}
	if err := l.check(remote); err != nil {
		_ = c.Close()
		return nil, &RefusedError{Address: addr, Reason: trim(err.Error()), Local: true}
	}
	l.hellos.Learned(remote, addr)
	return c, nil
}

// Probe asks the node at a raft address who it is. The other node answers whether it has started or not, and
// without judging this one; nor is its answer judged here.
func (l *StreamLayer) Probe(ctx context.Context, addr string) (*kvoncev1.PeerHello, error) {
	ctx, cancel := context.WithTimeout(ctx, l.handshake)
	defer cancel()
	defer context.AfterFunc(l.done, cancel)()
	c, remote, err := l.connect(ctx, addr, kvoncev1.PeerHello_PROBE)
	if err != nil {
		return nil, err
	}
	return remote, c.Close()
}

// connect dials and exchanges hellos before ctx ends. The connection has no deadline then.
func (l *StreamLayer) connect(ctx context.Context, addr string, p kvoncev1.PeerHello_Purpose) (*raftConn, *kvoncev1.PeerHello, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", l.options.DialMap(addr))
	if err != nil {
		return nil, nil, err
	}
	c, err := l.track(raw)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	remote, err := l.exchange(c, addr, p)
	if !stop() {
		// The deadline in the past may be set at any moment from now on: the connection is of no use.
		err = fmt.Errorf("transport: hello of %s: %w", addr, ctx.Err())
	}
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, remote, nil
}
