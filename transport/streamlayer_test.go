package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// node is the Hellos of a test: it refuses the nodes that it is told to.
type node struct {
	id      string
	refuses map[string]string

	mu      sync.Mutex
	learned map[string]string // id to address
}

func (n *node) Local() *kvoncev1.PeerHello { return &kvoncev1.PeerHello{NodeId: n.id} }

func (n *node) Check(remote *kvoncev1.PeerHello) error {
	if reason := n.refuses[remote.GetNodeId()]; reason != "" {
		return errors.New(reason)
	}
	return nil
}

func (n *node) Learned(remote *kvoncev1.PeerHello, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.learned == nil {
		n.learned = make(map[string]string)
	}
	n.learned[remote.GetNodeId()] = addr
}

func (n *node) knows(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.learned[id]
}

// layer is a running stream layer.
type layer struct {
	*StreamLayer
	node *node
	port string
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) lines(with string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), with)
}

// runLayer runs a stream layer until the end of the test.
func runLayer(t *testing.T, n *node, o StreamOptions) layer {
	t.Helper()
	return runLayerWithin(t, n, o, HandshakeTimeout)
}

func runLayerWithin(t *testing.T, n *node, o StreamOptions, handshake time.Duration) layer {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	log := new(lockedBuffer)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	l := NewStreamLayer(lis, "advertised:4200", n, o)
	l.handshake = handshake
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Empty(t, l.conns)
	})
	return layer{StreamLayer: l, node: n, port: lis.Addr().String(), log: log}
}

func (l layer) dial(to layer) (net.Conn, error) {
	return l.Dial(raft.ServerAddress(to.port), patience)
}

// silence connects n times and says nothing.
func silence(t *testing.T, port string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", port)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c
	}
	return conns
}

func echo(t *testing.T, dialled, accepted net.Conn) {
	t.Helper()
	buf := make([]byte, 4)
	_, err := dialled.Write([]byte("ping"))
	require.NoError(t, err)
	_, err = io.ReadFull(accepted, buf)
	require.NoError(t, err)
	_, err = accepted.Write([]byte("pong"))
	require.NoError(t, err)
	_, err = io.ReadFull(dialled, buf)
	require.NoError(t, err)
	require.Equal(t, "pong", string(buf))
}

func TestDialAndAccept(t *testing.T) {
	a, b := runLayer(t, &node{id: "a"}, StreamOptions{}), runLayer(t, &node{id: "b"}, StreamOptions{})
	b.Open()
	require.Equal(t, "advertised:4200", b.Addr().String())
	dialled, err := a.dial(b)
	require.NoError(t, err)
	accepted, err := b.Accept()
	require.NoError(t, err)
	echo(t, dialled, accepted)
	require.Equal(t, b.port, a.node.knows("b"))
	require.Equal(t, "127.0.0.1", hostOf(accepted.RemoteAddr()))
	require.Equal(t, accepted.RemoteAddr().String(), b.node.knows("a"))
	require.NoError(t, dialled.Close())
	_, err = accepted.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, accepted.Close())
}

// The dialling side learns who refused and why, whichever side it was.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		a, b   map[string]string
		closed bool
		want   RefusedError
	}{
		{"by the remote", nil, map[string]string{"a": "replaced folder"}, false, RefusedError{Reason: "replaced folder"}},
		{"by the dialling side", map[string]string{"b": "other cluster"}, nil, false, RefusedError{Reason: "other cluster", Local: true}},
		{"by both", map[string]string{"b": "x"}, map[string]string{"a": "y"}, false, RefusedError{Reason: "y"}},
		{"not started", nil, nil, true, RefusedError{Reason: "not started"}},
		{"long text", nil, map[string]string{"a": strings.Repeat("é", 5000)}, false, RefusedError{Reason: strings.Repeat("é", 512)}},
		{"odd text", nil, map[string]string{"a": "\xff!"}, false, RefusedError{Reason: "!"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := runLayer(t, &node{id: "a", refuses: tt.a}, StreamOptions{})
			b := runLayer(t, &node{id: "b", refuses: tt.b}, StreamOptions{})
			if !tt.closed {
				b.Open()
			}
			_, err := a.dial(b)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			tt.want.Address = b.port
			require.Equal(t, tt.want, *refused)
			require.Contains(t, err.Error(), tt.want.Reason)
			require.Empty(t, a.node.knows("b"))
		})
	}
}

func TestOtherProtocolIsRefused(t *testing.T) {
	b := runLayer(t, &node{id: "b"}, StreamOptions{})
	b.Open()
	for name, hello := range map[string]*kvoncev1.PeerHello{
		"handshake protocol 9, want 1": {Protocol: 9, Purpose: kvoncev1.PeerHello_RAFT},
		"unknown purpose 0":            {Protocol: PeerProtocol},
	} {
		c := silence(t, b.port, 1)[0]
		require.NoError(t, writeHello(c, hello))
		got, err := readHello(c)
		require.NoError(t, err)
		require.Equal(t, name, got.GetRefusal())
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
	}
}

// A probe is answered before the start, and by a node that would refuse raft connections.
func TestProbe(t *testing.T) {
	a := runLayer(t, &node{id: "a"}, StreamOptions{})
	b := runLayer(t, &node{id: "b", refuses: map[string]string{"a": "no"}}, StreamOptions{})
	got, err := a.Probe(t.Context(), b.port)
	require.NoError(t, err)
	require.Equal(t, "b", got.GetNodeId())
	require.Equal(t, kvoncev1.PeerHello_PROBE, got.GetPurpose())
	require.Empty(t, b.node.knows("a"))
	require.Empty(t, a.node.knows("b"))
	require.Zero(t, b.log.lines("rejected"))
}

func TestDialMap(t *testing.T) {
	b := runLayer(t, &node{id: "b"}, StreamOptions{})
	b.Open()
	a := runLayer(t, &node{id: "a"}, StreamOptions{DialMap: func(addr string) string {
		require.Equal(t, "b.example:4200", addr)
		return b.port
	}})
	_, err := a.Dial("b.example:4200", patience)
	require.NoError(t, err)
	_, err = b.Accept()
	require.NoError(t, err)
	require.Equal(t, "b.example:4200", a.node.knows("b"))
}

// More silent connections than may be pending keep nobody out, whether they came first or not.
func TestSilentRaftConnections(t *testing.T) {
	a, b := runLayer(t, &node{id: "a"}, StreamOptions{}), runLayerWithin(t, &node{id: "b"}, StreamOptions{}, time.Hour)
	b.Open()
	silent := silence(t, b.port, 300)
	dialled, err := a.dial(b)
	require.NoError(t, err)
	accepted, err := b.Accept()
	require.NoError(t, err)
	echo(t, dialled, accepted)

	require.NoError(t, silent[0].SetReadDeadline(time.Now().Add(patience)))
	_, err = silent[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the oldest one made room")
	require.Eventually(t, func() bool { return b.log.lines("raft connection rejected") == 1 }, patience, time.Millisecond)
}

func TestSilentConnectionIsClosedInTime(t *testing.T) {
	b := runLayerWithin(t, &node{id: "b"}, StreamOptions{}, 20*time.Millisecond)
	c := silence(t, b.port, 1)[0]
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// A connection that raft doesn't take in time is closed: its dialling side must not wait for ever.
func TestConnectionThatNobodyAcceptsIsClosed(t *testing.T) {
	a, b := runLayer(t, &node{id: "a"}, StreamOptions{}), runLayerWithin(t, &node{id: "b"}, StreamOptions{}, 20*time.Millisecond)
	b.Open()
	c, err := a.dial(b)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, c.Close())
}

// What isn't raft is closed at once and logged once.
func TestGarbageIsClosed(t *testing.T) {
	b := runLayer(t, &node{id: "b"}, StreamOptions{})
	for _, garbage := range []string{"GET / HTTP/1.1\r\nHost: b\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "KVR1\xff\xff\xff\xff", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		c := silence(t, b.port, 1)[0]
		_, err := io.WriteString(c, garbage)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.Eventually(t, func() bool { return b.log.lines("rejected") == 1 }, patience, time.Millisecond)
}

func TestDialIsBounded(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0") // accepts, by the kernel, and says nothing
	require.NoError(t, err)
	defer func() { require.NoError(t, lis.Close()) }()
	a := runLayer(t, &node{id: "a"}, StreamOptions{})
	_, err = a.Dial(raft.ServerAddress(lis.Addr().String()), 20*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = a.Probe(ctx, lis.Addr().String())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestDialFindsNobody(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	a := runLayer(t, &node{id: "a"}, StreamOptions{})
	_, err = a.Dial(raft.ServerAddress(lis.Addr().String()), patience)
	require.Error(t, err)
}

// Close ends whatever waits: Accept, a dial in its handshake, and reads on connections of both directions.
func TestCloseUnblocksEverything(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, lis.Close()) }()
	a, b := runLayer(t, &node{id: "a"}, StreamOptions{}), runLayer(t, &node{id: "b"}, StreamOptions{})
	a.Open()
	b.Open()
	dialled, err := a.dial(b)
	require.NoError(t, err)
	_, err = b.Accept()
	require.NoError(t, err)
	_, err = b.dial(a)
	require.NoError(t, err)
	accepted, err := a.Accept()
	require.NoError(t, err)

	ended := make(chan error, 4)
	go func() { _, err := a.Accept(); ended <- err }()
	go func() { _, err := a.Dial(raft.ServerAddress(lis.Addr().String()), time.Hour); ended <- err }()
	go func() { _, err := dialled.Read(make([]byte, 1)); ended <- err }()
	go func() { _, err := accepted.Read(make([]byte, 1)); ended <- err }()
	c, err := lis.Accept() // the dial has begun
	require.NoError(t, err)
	require.NoError(t, a.Close())
	for range cap(ended) {
		require.Error(t, <-ended)
	}
	require.NoError(t, c.Close())
	_, err = a.dial(b)
	require.Error(t, err, "nothing is dialled after Close")
	require.NoError(t, a.Close())
}

// rafts is raft's own transport on two stream layers: the dialling and the accepting one.
func rafts(t *testing.T, o StreamOptions) (near, far *raft.NetworkTransport, to raft.ServerAddress) {
	t.Helper()
	a, b := runLayer(t, &node{id: "a"}, StreamOptions{}), runLayer(t, &node{id: "b"}, o)
	b.Open()
	network := func(l layer) *raft.NetworkTransport {
		n := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: l.StreamLayer, MaxPool: 3, MaxRPCsInFlight: 1, Timeout: patience, Logger: hclog.NewNullLogger(),
		})
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n
	}
	return network(a), network(b), raft.ServerAddress(b.port)
}

func TestRaftTransportOnTop(t *testing.T) {
	near, far, to := rafts(t, StreamOptions{})
	go func() {
		for range 10 {
			rpc := <-far.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Success: true, LastLog: rpc.Command.(*raft.AppendEntriesRequest).PrevLogEntry}, nil)
		}
	}()
	for i := range uint64(10) {
		request := &raft.AppendEntriesRequest{PrevLogEntry: i + 1, RPCHeader: raft.RPCHeader{Addr: []byte("a")}}
		var response raft.AppendEntriesResponse
		require.NoError(t, near.AppendEntries("b", to, request, &response))
		require.Equal(t, i+1, response.LastLog)
	}
}

// A sender that freezes half-way through a snapshot releases the receiver's main loop after the read timeout.
func TestFrozenSnapshotSenderIsGivenUp(t *testing.T) {
	near, far, to := rafts(t, StreamOptions{ReadTimeout: 20 * time.Millisecond})
	frozen, unfreeze := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		request := &raft.InstallSnapshotRequest{Size: 1 << 20, RPCHeader: raft.RPCHeader{Addr: []byte("a")}}
		sent <- near.InstallSnapshot("b", to, request, new(raft.InstallSnapshotResponse), frozen)
	}()
	rpc := <-far.Consumer()
	_, err := io.Copy(io.Discard, rpc.Reader)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	rpc.Respond(&raft.InstallSnapshotResponse{}, err)
	require.NoError(t, unfreeze.CloseWithError(io.ErrUnexpectedEOF))
	require.Error(t, <-sent)
}

// Closing the transport releases a receiver at once: nothing else would let raft shut down.
func TestCloseReleasesASnapshotReceiver(t *testing.T) {
	near, far, to := rafts(t, StreamOptions{ReadTimeout: time.Hour})
	frozen, unfreeze := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		request := &raft.InstallSnapshotRequest{Size: 1 << 20, RPCHeader: raft.RPCHeader{Addr: []byte("a")}}
		sent <- near.InstallSnapshot("b", to, request, new(raft.InstallSnapshotResponse), frozen)
	}()
	rpc := <-far.Consumer()
	require.NoError(t, far.Close())
	_, err := io.Copy(io.Discard, rpc.Reader)
	require.Error(t, err)
	rpc.Respond(&raft.InstallSnapshotResponse{}, err)
	require.NoError(t, unfreeze.CloseWithError(io.ErrUnexpectedEOF))
	require.Error(t, <-sent)
}
