// Command picture draws docs/leader-kill.svg: it counts on a cluster of three processes while their leader is killed
// again and again, and shows what was acknowledged when. Run it from the top of the repository:
//
//	go run ./docs/picture
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvonce/kvonce/client"
	"github.com/kvonce/kvonce/internal/localcluster"
)

const (
	output   = "docs/leader-kill.svg"
	basePort = 27100
	workers  = 32
	kills    = 5
	between  = 4 * time.Second
	sample   = 100 * time.Millisecond
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "kvonce-picture")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder of ours in the system's temporary one
	binary := filepath.Join(dir, "kvnode")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/kvnode").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	c, err := localcluster.New(localcluster.Config{Binary: binary, Nodes: 3, BasePort: basePort, DataDir: filepath.Join(dir, "data"),
		RestartDelay: time.Second, Log: os.Stderr})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	r, err := record(ctx, c)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return os.WriteFile(output, []byte(r.svg()), 0o644)
}

// recording is what happened.
type recording struct {
	rates        []int64 // acknowledged in each sample
	kills        []time.Duration
	killed       []string
	acknowledged int64
	replayed     int64
	final        int64
}

// record counts under kills.
func record(ctx context.Context, c *localcluster.Cluster) (*recording, error) {
	if _, err := c.WaitReady(ctx); err != nil {
		return nil, err
	}
	k, err := client.Open(ctx, client.WithEndpoints(c.Endpoints()...))
	if err != nil {
		return nil, err
	}
	var acknowledged, replayed atomic.Int64
	counting, halt := context.WithCancel(ctx)
	var wg sync.WaitGroup
	failed := make(chan error, workers+1)
	for range workers {
		wg.Go(func() { failed <- count(counting, k, &acknowledged, &replayed) })
	}
	r := &recording{}
	start := time.Now()
	sampled := make(chan struct{})
	go func() { r.sample(counting, &acknowledged); close(sampled) }()
	for range kills {
		time.Sleep(between)
		at := time.Since(start)
		f, err := c.KillLeader(ctx)
		if err != nil {
			halt()
			return nil, err
		}
		r.kills, r.killed = append(r.kills, at), append(r.killed, f.Killed.ID())
	}
	time.Sleep(between)
	halt()
	wg.Wait()
	<-sampled
	for range workers {
		if err := <-failed; err != nil {
			return nil, err
		}
	}
	got, err := k.Get(ctx, "counter")
	if err != nil {
		return nil, err
	}
	r.acknowledged, r.replayed = acknowledged.Load(), replayed.Load()
	if r.final, err = strconv.ParseInt(string(got.Value), 10, 64); err != nil {
		return nil, err
	}
	return r, k.Close(ctx)
}

func count(ctx context.Context, k *client.Client, acknowledged, replayed *atomic.Int64) error {
	for ctx.Err() == nil {
		r, err := k.Increment(context.WithoutCancel(ctx), "counter", 1)
		if err != nil {
			return err
		}
		acknowledged.Add(1)
		if r.Replayed {
			replayed.Add(1)
		}
	}
	return nil
}

func (r *recording) sample(ctx context.Context, acknowledged *atomic.Int64) {
	tick := time.NewTicker(sample)
	defer tick.Stop()
	var last int64
	for {
		select {
		case <-tick.C:
			now := acknowledged.Load()
			r.rates = append(r.rates, now-last)
			last = now
		case <-ctx.Done():
			return
		}
	}
}
