package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/client"
)

func (c *netCluster) endpoints() (list []string) {
	for _, m := range c.nodes {
		list = append(list, m.config.ListenClient)
	}
	return list
}

func (c *netCluster) open(options ...client.Option) *client.Client {
	k, err := client.Open(context.Background(), append(options, client.WithEndpoints(c.endpoints()...))...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(c.t, k.Close(ctx))
	})
	return k
}

func TestG1LibraryCountsExactlyOverARollingRestart(t *testing.T) {
	c := newNetCluster(t, 3)
	c.start(c.nodes...)
	c.ready(c.nodes...)
	k := c.open()
	var acknowledged atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := k.Increment(context.Background(), "n", 1); err == nil {
					acknowledged.Add(1)
				} else {
					t.Error(err)
				}
			}
		})
	}
	for _, m := range c.nodes {
		require.NoError(t, c.halt(m))
		c.start(m)
		c.ready(m)
	}
	cancel()
	wg.Wait()
	got, err := k.Get(context.Background(), "n")
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(acknowledged.Load()), string(got.Value))
	require.Greater(t, acknowledged.Load(), int64(1000))
}

// BenchmarkLibraryWrites is BenchmarkWrites through the client library, from 256 goroutines.
func BenchmarkLibraryWrites(b *testing.B) {
	c := newNetCluster(b, 3)
	c.start(c.nodes...)
	c.ready(c.nodes...)
	k := c.open()
	value := make([]byte, 100)
	_, err := k.Put(context.Background(), "key", value)
	require.NoError(b, err)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
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
