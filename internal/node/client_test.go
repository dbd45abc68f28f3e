package node

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// testClient is a registered client that keeps nothing but its identity: the tests choose sequences.
type testClient struct{ transport.Caller }

// registerRequest asks for a client with a secret made from name.
func registerRequest(name string, ttlMs uint64) (*kvoncev1.Request, [32]byte) {
	v := sha256.Sum256([]byte(name))
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Register{Register: &kvoncev1.Register{Verifier: v[:], Name: name, TtlMs: ttlMs}}}, v
}

func register(t testing.TB, m *memNode, name string, ttlMs uint64) testClient {
	t.Helper()
	r, v := registerRequest(name, ttlMs)
	out := m.do(transport.Caller{}, r)
	require.Equal(t, kvoncev1.Code_OK, out.Code, out.Message)
	return testClient{transport.Caller{ClientID: out.GetRegistered().ClientId, Verifier: v}}
}

// increment is request seq of a client. Every copy of it is the same.
func increment(seq uint64, key string) *kvoncev1.Request { return incrementFrom(seq, 1, key) }

func incrementFrom(seq, first uint64, key string) *kvoncev1.Request {
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Write{Write: &kvoncev1.Write{
		Sequence: seq, Progress: &kvoncev1.Progress{FirstOutstanding: first}, Salt: []byte("salt of it"),
		Command: &kvoncev1.Command{Kind: &kvoncev1.Command_Increment{Increment: &kvoncev1.Increment{Key: []byte(key), Delta: 1}}}}}}
}

func touch(first uint64) *kvoncev1.Request {
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Touch{Touch: &kvoncev1.Touch{Progress: &kvoncev1.Progress{FirstOutstanding: first}}}}
}

// value reads a key, linearizably.
func value(t testing.TB, m *memNode, key string) string {
	t.Helper()
	out := m.do(transport.Caller{}, get(key))
	require.Equal(t, kvoncev1.Code_OK, out.Code, out.Message)
	if len(out.GetRead().Kvs) == 0 {
		return ""
	}
	return string(out.GetRead().Kvs[0].Value)
}

// sameAnswer requires that again repeats first: all of it but what belongs to the envelope (G3).
func sameAnswer(t testing.TB, first, again *kvoncev1.Response) {
	t.Helper()
	require.Equal(t, kvoncev1.Code_OK, first.Code, first.Message)
	require.Equal(t, kvoncev1.Code_OK, again.Code, again.Message)
	require.True(t, again.Replayed)
	require.Equal(t, first.GetCommand().String(), again.GetCommand().String())
	require.Equal(t, []uint64{first.Index, first.Term}, []uint64{again.Index, again.Term})
}
