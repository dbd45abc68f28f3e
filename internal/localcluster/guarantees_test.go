package localcluster_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/client"
	"github.com/kvonce/kvonce/internal/localcluster"
	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
)

// start runs a cluster of three processes, which are restarted when they die, until the test ends.
func start(tb testing.TB) *localcluster.Cluster {
	tb.Helper()
	return clustertest.Start(tb, localcluster.Config{RestartDelay: 200 * time.Millisecond})
}

func open(tb testing.TB, c *localcluster.Cluster, options ...client.Option) *client.Client {
	tb.Helper()
	k, err := client.Open(context.Background(), append(options, client.WithEndpoints(c.Endpoints()...))...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(tb, k.Close(ctx))
	})
	return k
}

// within returns a context that ends with the test, or after d.
func within(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

// load increments a key from many goroutines until it is stopped.
type load struct {
	acknowledged, replayed atomic.Int64
	last, gap              atomic.Int64 // nanoseconds: of the last acknowledgement since the start, and the longest between two
	stop                   context.CancelFunc
	wg                     sync.WaitGroup
	failed                 atomic.Pointer[error]
}

func startLoad(k *client.Client, key string, workers int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stop: cancel}
	begin := time.Now()
	for range workers {
		l.wg.Go(func() {
			for ctx.Err() == nil {
				r, err := k.Increment(context.Background(), key, 1) // no deadline: every one is resolved
				if err != nil {
					l.failed.Store(&err)
					return
				}
				l.acknowledged.Add(1)
				now := int64(time.Since(begin))
				l.gap.Store(max(l.gap.Load(), now-l.last.Swap(now)))
				if r.Replayed {
					l.replayed.Add(1)
				}
			}
		})
	}
	return l
}

// progress waits until n more increments are acknowledged.
func (l *load) progress(tb testing.TB, n int64) {
	tb.Helper()
	want := l.acknowledged.Load() + n
	require.Eventually(tb, func() bool { return l.acknowledged.Load() >= want }, 20*time.Second, 5*time.Millisecond)
}

// finish stops the load and requires that the counter is what was acknowledged, exactly.
func (l *load) finish(tb testing.TB, k *client.Client, key string) {
	tb.Helper()
	l.stop()
	l.wg.Wait()
	if err := l.failed.Load(); err != nil {
		require.NoError(tb, *err)
	}
	require.Equal(tb, l.acknowledged.Load(), l.counter(tb, k, key))
}

func (l *load) counter(tb testing.TB, k *client.Client, key string) int64 {
	tb.Helper()
	got, err := k.Get(within(tb, 20*time.Second), key)
	require.NoError(tb, err)
	n, err := strconv.ParseInt(string(got.Value), 10, 64)
	require.NoError(tb, err)
	return n
}

func TestG1G2LeaderKilledTenTimesUnderLoad(t *testing.T) {
	c := start(t)
	k := open(t, c)
	l := startLoad(k, "n", 32)
	for range 10 {
		l.progress(t, 200)
		f, err := c.KillLeader(within(t, 30*time.Second))
		require.NoError(t, err)
		t.Logf("killed %s, next leader after %v", f.Killed.ID(), f.After.Round(time.Millisecond))
	}
	l.finish(t, k, "n")
	t.Logf("%d acknowledged, %d of them replayed", l.acknowledged.Load(), l.replayed.Load())
	require.Greater(t, l.acknowledged.Load(), int64(1000))
}

// The tests are tested: a server that doesn't look for duplicates must not come out exact.
func TestG1IsNoticedWhenDuplicatesAreNotChecked(t *testing.T) {
	c := clustertest.Start(t, localcluster.Config{Binary: clustertest.Build(t, "-tags", "broken_noduplicatecheck"),
		RestartDelay: 200 * time.Millisecond})
	k := open(t, c)
	l := startLoad(k, "n", 32)
	for range 20 {
		l.progress(t, 200)
		_, err := c.KillLeader(within(t, 30*time.Second))
		require.NoError(t, err)
		l.progress(t, 1)
		if got := l.counter(t, k, "n"); got > l.acknowledged.Load()+32 { // at most one on its way for each worker
			l.stop()
			l.wg.Wait()
			return
		}
	}
	t.Fatal("twenty leaders were killed and no duplicate was noticed")
}

// A leader is stopped with reads on open connections, another one takes over and acknowledges a write, and the first
// one goes on with its reads: each gives the new value or an error (etcd #20418).
func TestG5PausedLeaderGivesNoStaleRead(t *testing.T) {
	const rounds, readers = 30, 16
	c := start(t)
	answered := 0
	for round := range rounds {
		l, err := c.WaitReady(within(t, 30*time.Second))
		require.NoError(t, err)
		writeElsewhere(t, c, nil, strconv.Itoa(2*round))
		pinned := openPinned(t, l)
		_, err = pinned.Get(within(t, 10*time.Second), "k")
		require.NoError(t, err)
		require.NoError(t, l.Pause(within(t, time.Second)))
		fresh := strconv.Itoa(2*round + 1)
		writeElsewhere(t, c, l, fresh)
		read := startReaders(within(t, 5*time.Second), pinned, readers)
		require.NoError(t, l.Continue(within(t, time.Second)))
		for range readers {
			if v, ok := <-read; ok && v != "" {
				answered++
				require.Equal(t, fresh, v, "round %d", round)
			}
		}
	}
	t.Logf("%d of %d reads in %d rounds were answered, none of them stale", answered, rounds*readers, rounds)
	require.Greater(t, answered, rounds, "reads that fail show nothing")
}

// openPinned opens a client that talks to one node alone.
func openPinned(tb testing.TB, n *localcluster.Node) *client.Client {
	tb.Helper()
	k, err := client.Open(context.Background(), client.WithPinnedEndpoints(n.ClientAddress()))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, k.Close(within(tb, 10*time.Second))) })
	return k
}

// writeElsewhere puts a value through the nodes but one.
func writeElsewhere(tb testing.TB, c *localcluster.Cluster, but *localcluster.Node, value string) {
	tb.Helper()
	var endpoints []string
	for _, n := range c.Nodes() {
		if n != but {
			endpoints = append(endpoints, n.ClientAddress())
		}
	}
	k, err := client.Open(context.Background(), client.WithPinnedEndpoints(endpoints...))
	require.NoError(tb, err)
	_, err = k.Put(within(tb, 20*time.Second), "k", []byte(value))
	require.NoError(tb, err)
	require.NoError(tb, k.Close(within(tb, 10*time.Second)))
}

// startReaders starts reads at once and returns where their values come; an empty one stands for an error.
func startReaders(ctx context.Context, k *client.Client, n int) <-chan string {
	values := make(chan string, n)
	for range n {
		go func() {
			got, err := k.Get(ctx, "k")
			if err != nil {
				values <- ""
				return
			}
			values <- string(got.Value)
		}()
	}
	return values
}

// Nodes that are stopped gracefully, one after the other, hand their work over.
func TestG1RollingRestartUnderLoad(t *testing.T) {
	c := start(t)
	k := open(t, c)
	l := startLoad(k, "n", 32)
	l.progress(t, 500)
	for _, n := range c.Nodes() {
		require.NoError(t, n.Restart(within(t, 30*time.Second)))
		_, err := c.WaitReady(within(t, 30*time.Second))
		require.NoError(t, err)
		l.progress(t, 500)
	}
	l.finish(t, k, "n")
	t.Logf("%d acknowledged, %d replayed, longest time without an acknowledgement %v", l.acknowledged.Load(), l.replayed.Load(), time.Duration(l.gap.Load()))
}

func TestG1DataSurvivesARestartOfAll(t *testing.T) {
	c := start(t)
	k := open(t, c)
	l := startLoad(k, "n", 16)
	l.progress(t, 500)
	for _, n := range c.Nodes() {
		_, err := n.Kill(within(t, 10*time.Second))
		require.NoError(t, err)
	}
	_, err := c.WaitReady(within(t, 30*time.Second))
	require.NoError(t, err)
	l.finish(t, k, "n")
}

// BenchmarkWrites puts values of 100 bytes through the client library, 256 in flight, to three processes.
func BenchmarkWrites(b *testing.B) {
	c := start(b)
	k := open(b, c)
	value := make([]byte, 100)
	_, err := k.Put(within(b, 10*time.Second), "key", value)
	require.NoError(b, err)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 256 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := k.Put(context.Background(), "key", value); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
