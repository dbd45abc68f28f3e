package node

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func TestG1G3RepeatAfterLeaderCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 0)
		first := l.do(me.Caller, increment(1, "k"))
		c.crash(l)
		l = c.leader()
		sameAnswer(t, first, l.do(me.Caller, increment(1, "k")))
		require.Equal(t, "1", value(t, l, "k"))
	})
}

func TestG1G3RepeatAfterRestartOfAll(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprint("snapshot=", snapshot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMemCluster(t, 3, nil)
				defer c.close()
				l := c.leader()
				me := register(t, l, "a", 0)
				first := l.do(me.Caller, increment(1, "k"))
				if snapshot {
					require.NoError(t, l.raft.Snapshot().Error())
				}
				for _, m := range c.nodes {
					c.crash(m)
				}
				for _, m := range c.nodes {
					c.start(m)
				}
				l = c.leader()
				sameAnswer(t, first, l.do(me.Caller, increment(1, "k")))
				require.Equal(t, "1", value(t, l, "k"))
			})
		})
	}
}

func TestG1G3RepeatAtNodeThatGotASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, func(m *memNode) { m.tuning.TrailingEntries = 0 })
		defer c.close()
		l := c.leader()
		lagging := c.others(l)[0]
		c.crash(lagging)
		me := register(t, l, "a", 0)
		first := l.do(me.Caller, increment(1, "k"))
		require.NoError(t, l.raft.Snapshot().Error())
		lagging.disk, lagging.snaps = cloneStart(t, c, lagging), raft.NewInmemSnapshotStore()
		c.start(lagging)
		want := l.machine.View().Index()
		require.Eventually(t, func() bool { return lagging.machine.View().Index() >= want }, 30*time.Second, 10*time.Millisecond)
		// A follower answers the repeat from the state that came with the snapshot.
		sameAnswer(t, first, lagging.do(me.Caller, increment(1, "k")))
		require.Equal(t, l.machine.View().Digest(), lagging.machine.View().Digest(), "G6")
	})
}

// cloneStart returns the disk of a node as it was after bootstrap: it lags as far as a node can.
func cloneStart(t *testing.T, c *memCluster, m *memNode) *raft.InmemStore {
	disk := raft.NewInmemStore()
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(m.id)
	_, tr := raft.NewInmemTransport("x")
	require.NoError(t, raft.BootstrapCluster(conf, disk, disk, raft.NewInmemSnapshotStore(), tr, c.configuration()))
	return disk
}

func TestG1SameRequestAtAllNodesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 0)
		for seq := uint64(1); seq <= 20; seq++ {
			var wg sync.WaitGroup
			answers := make([]*kvoncev1.Response, 9)
			for i := range answers {
				wg.Go(func() { answers[i] = c.untilAnswered(me, c.nodes[i%3], increment(seq, "k")) })
			}
			wg.Wait()
			for _, a := range answers {
				require.Equal(t, int64(seq), a.GetCommand().Ops[0].Number, "every copy has the one answer")
			}
		}
		require.Equal(t, "20", value(t, l, "k"))
	})
}

// untilAnswered sends copies, first to one node and then to all, until one isn't refused.
func (c *memCluster) untilAnswered(me testClient, m *memNode, r *kvoncev1.Request) *kvoncev1.Response {
	for i := 0; ; i++ {
		if out := m.do(me.Caller, r); out.Outcome != kvoncev1.Outcome_REFUSED {
			return out
		}
		m = c.nodes[i%3]
		<-time.After(time.Millisecond)
	}
}

func TestG3G8RegistrationRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 0)
		require.Equal(t, me, register(t, l, "a", 0), "a lost reply leaks no client")
		l.do(me.Caller, increment(1, "k"))
		r, _ := registerRequest("a", 0)
		require.Equal(t, kvoncev1.Code_VERIFIER_USED, l.do(transport.Caller{}, r).Code)
		unknown := testClient{transport.Caller{ClientID: 99, Verifier: me.Verifier}}
		out := l.do(unknown.Caller, increment(1, "k"))
		require.Equal(t, kvoncev1.Code_UNKNOWN_CLIENT, out.Code, "an unknown client is never a new one")
		require.Equal(t, kvoncev1.Outcome_UNKNOWN, out.Outcome)
	})
}

func TestG1G4ExpiredClientGetsItsVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 5000)
		require.Equal(t, kvoncev1.Code_OK, l.do(me.Caller, increment(1, "k")).Code)
		waitExpired(t, l, 0)
		for range 2 {
			done := l.do(me.Caller, increment(1, "k"))
			require.Equal(t, []any{kvoncev1.Code_CLIENT_EXPIRED, kvoncev1.Outcome_APPLIED}, []any{done.Code, done.Outcome})
			late := l.do(me.Caller, increment(2, "k"))
			require.Equal(t, []any{kvoncev1.Code_CLIENT_EXPIRED, kvoncev1.Outcome_NOT_APPLIED}, []any{late.Code, late.Outcome})
		}
		require.Equal(t, "1", value(t, l, "k"), "a late copy never runs")
	})
}

// waitExpired waits until at most n clients are left. Time passes by itself in a synctest bubble.
func waitExpired(t *testing.T, m *memNode, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return m.machine.View().Registry().Clients() <= n }, time.Hour, 100*time.Millisecond)
}

func TestG4CutOffLeaderSaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 0)
		c.isolate(l)
		out := l.do(me.Caller, increment(1, "k"))
		require.Equal(t, kvoncev1.Outcome_UNKNOWN, out.Outcome, out.Message)
		next := c.leader(c.others(l)...)
		c.heal(l)
		again := next.do(me.Caller, increment(1, "k"))
		require.Equal(t, kvoncev1.Code_OK, again.Code, again.Message)
		require.Equal(t, "1", value(t, next, "k"))
	})
}

func TestG5CutOffLeaderDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		me := register(t, l, "a", 0)
		l.do(me.Caller, increment(1, "k"))
		c.isolate(l)
		out := l.do(transport.Caller{}, get("k"))
		require.Equal(t, kvoncev1.Outcome_REFUSED, out.Outcome, "no majority has answered since the read came")
	})
}

func TestG9NoMassExpiryWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		var clients []testClient
		for i := range 50 {
			clients = append(clients, register(t, l, fmt.Sprint("c", i), 5000))
		}
		for _, m := range c.nodes {
			c.isolate(m)
		}
		<-time.After(10 * time.Minute)
		for _, m := range c.nodes {
			c.heal(m)
		}
		l = c.leader()
		for _, me := range clients {
			require.Equal(t, kvoncev1.Code_OK, l.do(me.Caller, touch(1)).Code, "time stands still without a quorum")
		}
		waitExpired(t, l, 0) // and goes on with one
	})
}

func TestG7FollowersAgreeOnWhoExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		for i := range 20 {
			register(t, l, fmt.Sprint("c", i), uint64(2000+100*i))
		}
		waitExpired(t, l, 10)
		want := l.machine.View()
		for _, m := range c.others(l) {
			require.Eventually(t, func() bool { return m.machine.View().Index() >= want.Index() }, time.Minute, time.Millisecond)
			if v := m.machine.View(); v.Index() == want.Index() {
				require.Equal(t, want.Digest(), v.Digest())
			}
		}
	})
}

func TestIdleClusterWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		l := c.leader()
		require.Equal(t, kvoncev1.Code_OK, l.do(transport.Caller{}, put("k", "v")).Code)
		<-time.After(15 * time.Second) // node records, and one comparison of digests
		before := l.raft.LastIndex()
		<-time.After(30 * time.Second)
		require.Equal(t, before, l.raft.LastIndex())
	})
}

func TestG6NodeWhoseStateDiffersStops(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newMemCluster(t, 3, nil)
				defer c.close()
				l := c.leader()
				waitRecords(t, c)
				damaged := l
				if who == "follower" {
					damaged = c.others(l)[0]
				}
				l.do(transport.Caller{}, put("k", "v"))
				require.Eventually(t, func() bool { return damaged.damage(l.machine.View().Index()) }, time.Second, time.Millisecond)
				err := <-damaged.fatal
				require.Equal(t, ExitDoNotRestart, ExitCode(err), "%v", err)
				for _, m := range c.others(damaged) {
					require.Empty(t, m.fatal, "the healthy ones go on")
				}
			})
		})
	}
}

// damage makes a node report another digest for an entry, as it would if a bit of its state had flipped.
func (m *memNode) damage(index uint64) bool {
	sum, known := m.machine.digests.at(index)
	if known {
		m.machine.digests.add(index, sum^1, false)
	}
	return known
}

func (c *memCluster) others(m *memNode) (list []*memNode) {
	for _, o := range c.nodes {
		if o != m {
			list = append(list, o)
		}
	}
	return list
}

// heal connects a node to all others that run.
func (c *memCluster) heal(m *memNode) {
	for _, o := range c.others(m) {
		if o.core != nil {
			c.connect(m, o)
		}
	}
}
