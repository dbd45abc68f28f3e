package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func TestG5FollowerReadsWhatWasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 0)
		waitRecords(t, c)
		for seq := uint64(1); seq <= 50; seq++ {
			want := l.do(me.Caller, incrementFrom(seq, seq, "k")).GetCommand().Ops[0].Number
			for _, m := range c.others(l) {
				out := m.do(transport.Caller{}, get("k"))
				require.Equal(t, kvoncev1.Code_OK, out.Code, out.Message)
				require.Equal(t, want, atoi(t, out.GetRead().Kvs[0].Value))
			}
		}
	})
}

// waitRecords waits until every node knows the address of every other.
func waitRecords(t *testing.T, c *memCluster) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, m := range c.nodes {
			for _, o := range c.nodes {
				if _, ok := m.machine.View().Node(o.id); !ok {
					return false
				}
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
}

func atoi(t *testing.T, b []byte) (n int64) {
	t.Helper()
	for _, d := range b {
		require.True(t, d >= '0' && d <= '9')
		n = n*10 + int64(d-'0')
	}
	return n
}

func serializable(key string, maxAge time.Duration) *kvoncev1.Request {
	r := get(key)
	r.GetRead().Consistency, r.GetRead().MaxAgeMs = kvoncev1.Consistency_SERIALIZABLE, uint64(maxAge.Milliseconds())
	return r
}

func TestSerializableReadTellsItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		waitRecords(t, c)
		require.Equal(t, kvoncev1.Code_OK, l.do(transport.Caller{}, put("k", "v")).Code)
		f := c.others(l)[0]
		out := f.do(transport.Caller{}, serializable("k", time.Minute))
		require.Equal(t, kvoncev1.Code_TOO_OLD, out.Code, "the age is unknown before the first round")
		require.Equal(t, kvoncev1.Code_OK, f.do(transport.Caller{}, get("k")).Code)
		c.isolate(f)
		<-time.After(10 * time.Second)
		out = f.do(transport.Caller{}, serializable("k", 0))
		require.Equal(t, "v", string(out.GetRead().Kvs[0].Value))
		require.GreaterOrEqual(t, out.GetRead().GetAgeMs(), uint64(10000))
		require.Equal(t, kvoncev1.Code_TOO_OLD, f.do(transport.Caller{}, serializable("k", 9*time.Second)).Code)
		require.Equal(t, kvoncev1.Code_OK, f.do(transport.Caller{}, serializable("k", 11*time.Second)).Code)
	})
}
