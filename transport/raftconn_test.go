package transport

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipe is an accepted connection and its other end.
func pipe(timeout time.Duration) (*acceptedConn, net.Conn) {
	near, far := net.Pipe()
	l := NewStreamLayer(nil, "", nil, StreamOptions{Logger: quiet()})
	return &acceptedConn{raftConn: &raftConn{Conn: near, layer: l}, timeout: timeout}, far
}

// A peer that stops in the middle of an RPC is given up; one that has nothing to say between two RPCs is not,
// since closing a pooled connection would fail the next RPC on it.
func TestReadDeadlineIsForTheMiddleOfAnRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 15 * time.Second
		c, far := pipe(timeout)
		defer func() { require.NoError(t, c.Close()) }()
		buf := make([]byte, 16)
		go func() {
			_, _ = far.Write([]byte("request")) // the reads below tell
			_, _ = far.Read(make([]byte, 16))
			<-time.After(time.Hour)
			_, _ = far.Write([]byte("next"))
		}()
		_, err := c.Read(buf)
		require.NoError(t, err)
		_, err = c.Write([]byte("response"))
		require.NoError(t, err)

		n, err := c.Read(buf)
		require.NoError(t, err, "an hour between two RPCs is nothing")
		require.Equal(t, "next", string(buf[:n]))

		begin := time.Now()
		_, err = c.Read(buf)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, timeout, time.Since(begin))
	})
}

func TestFirstReadHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(time.Second)
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, c.Close())
	})
}

func TestWriteHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(time.Second)
		_, err := c.Write([]byte("response"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, c.Close())
	})
}

func TestNoiseIsOneLineForEachHostAndMinute(t *testing.T) {
	var n noise
	at := func(host string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(host), Port: port} }
	now := time.Unix(1000, 0)
	require.True(t, n.worthALine(at("10.0.0.1", 1), now))
	require.False(t, n.worthALine(at("10.0.0.1", 2), now.Add(noisePeriod-1)))
	require.True(t, n.worthALine(at("10.0.0.2", 1), now))
	require.True(t, n.worthALine(at("10.0.0.1", 3), now.Add(noisePeriod)))
}

func TestNoiseIsBounded(t *testing.T) {
	var n noise
	host := func(i int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))} }
	now := time.Unix(1000, 0)
	lines := 0
	for i := range 2 * maxNoisyHosts {
		if n.worthALine(host(i), now) {
			lines++
		}
	}
	require.Equal(t, maxNoisyHosts+1, lines)
	require.LessOrEqual(t, len(n.lines), maxNoisyHosts+1)
	require.True(t, n.worthALine(host(3*maxNoisyHosts), now.Add(noisePeriod)))
	require.Len(t, n.lines, 1, "hosts that are quiet again are forgotten")
}
