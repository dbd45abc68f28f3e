package node

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// BenchmarkWrites puts values of 100 bytes through one client's stream, 256 in flight, on three nodes with disks and
// ports in one process. It measures the server: the client side is as thin as it can be.
func BenchmarkWrites(b *testing.B) {
	c := newNetCluster(b, 3)
	c.start(c.nodes...)
	c.ready(c.nodes...)
	leader := c.leaderNode()
	secret := []byte("0123456789abcdef")
	v := sha256.Sum256(secret)
	reg := c.call(&kvoncev1.Request{Kind: &kvoncev1.Request_Register{Register: &kvoncev1.Register{Verifier: v[:]}}}).GetRegistered()
	s, err := kvoncev1.NewKVClient(leader.conn).Session(context.Background())
	require.NoError(b, err)
	require.NoError(b, s.Send(&kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{ClientId: reg.ClientId, Secret: secret}}))
	_, err = s.Recv()
	require.NoError(b, err)
	w := &streamWriter{stream: s, value: make([]byte, 100)}
	b.ResetTimer()
	w.run(b, b.N, 256)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

func (c *netCluster) leaderNode() (leader *netNode) {
	for _, m := range c.nodes {
		if s, err := m.status(context.Background()); err == nil && s.Role == "leader" {
			leader = m
		}
	}
	require.NotNil(c.t, leader)
	return leader
}

// streamWriter keeps a number of puts in flight on one stream.
type streamWriter struct {
	stream kvoncev1.KV_SessionClient
	value  []byte
	next   uint64
	first  uint64
	done   map[uint64]bool
}

func (w *streamWriter) run(b *testing.B, total, inFlight int) {
	w.next, w.first, w.done = 1, 1, map[uint64]bool{}
	require.NoError(b, w.send(min(total, inFlight)))
	for answered := 0; answered < total; {
		frame, err := w.stream.Recv()
		require.NoError(b, err)
		for _, r := range frame.Responses {
			require.Equal(b, kvoncev1.Code_OK, r.Code)
			w.done[r.Tag] = true
		}
		answered += len(frame.Responses)
		for w.done[w.first] {
			delete(w.done, w.first)
			w.first++
		}
		require.NoError(b, w.send(min(len(frame.Responses), total-int(w.next)+1)))
	}
}

func (w *streamWriter) send(n int) error {
	frame := &kvoncev1.SessionRequest{}
	for range n {
		frame.Requests = append(frame.Requests, &kvoncev1.Request{Tag: w.next, Kind: &kvoncev1.Request_Write{Write: &kvoncev1.Write{
			Sequence: w.next, Progress: &kvoncev1.Progress{FirstOutstanding: w.first}, Salt: []byte("12345678"),
			Command: &kvoncev1.Command{Kind: &kvoncev1.Command_Put{Put: &kvoncev1.Put{Key: []byte("key"), Value: w.value}}}}}})
		w.next++
	}
	if n == 0 {
		return nil
	}
	return w.stream.Send(frame)
}
