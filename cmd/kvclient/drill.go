package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/client"
)

const (
	// maxDrillClients is how many registered clients the workers share.
	maxDrillClients = 4
	// resolveTimeout bounds resolving what is unknown and reading the counter at the end.
	resolveTimeout = time.Minute
)

var drillCommand = &command{
	name: "drill", args: "", summary: "Count to the cluster, whatever happens to it, and check that the counter is exact.",
	examples: "kvclient drill\nkvclient drill --duration 60s --workers 64\n", maxArgs: 0,
	prepare: func(fs *pflag.FlagSet) runner {
		var o drillOptions
		fs.StringVar(&o.key, "key", "", "the counter; a new one if not given")
		fs.Uint64Var(&o.ops, "ops", 20000, "how many increments, unless --duration is given")
		fs.DurationVar(&o.duration, "duration", 0, "how long to go on")
		fs.IntVar(&o.workers, "workers", 32, "how many increments are on their way at once, 1 to 10000; they share up to 4 clients")
		fs.DurationVar(&o.ttl, "ttl", 0, "time to live of the clients; the cluster's default if not given")
		fs.BoolVarP(&o.verbose, "verbose", "v", false, "show the progress once a second, as on a terminal")
		return func(ctx context.Context, a *app, _ []string) error { return a.drill(ctx, o) }
	},
}

type drillOptions struct {
	key      string
	ops      uint64
	duration time.Duration
	workers  int
	ttl      time.Duration
	verbose  bool
}

func (o *drillOptions) check() error {
	switch {
	case o.workers < 1 || o.workers > 10000:
		return usagef("--workers is %d, must be 1 to 10000", o.workers)
	case o.duration < 0:
		return usagef("--duration is %v, must not be negative", o.duration)
	case o.duration == 0 && o.ops == 0:
		return usagef("--ops is 0, must be at least 1")
	case o.ttl < 0:
		return usagef("--ttl is %v, must not be negative", o.ttl)
	}
	if o.key == "" {
		o.key = "drill/" + rand.Text()
	}
	return nil
}

// drillResult is what drill prints.
type drillResult struct {
	Key           string  `json:"key"`
	Initial       int64   `json:"initial"`
	Acknowledged  int64   `json:"acknowledged"`
	Final         int64   `json:"final"`
	Replayed      int64   `json:"replayed"`
	Unknown       int64   `json:"unknown"`
	LeaderChanges int     `json:"leader_changes"`
	Seconds       float64 `json:"seconds"`
	LongestGapMs  int64   `json:"longest_gap_ms"`
	Exact         bool    `json:"exact"`
}

func (r *drillResult) judge() {
	counted := r.Final - r.Initial
	r.Exact = r.Acknowledged <= counted && counted <= r.Acknowledged+r.Unknown && r.Unknown == 0
}

func (a *app) drill(ctx context.Context, o drillOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	d := &drill{options: o, terms: map[uint64]bool{}}
	for range min(o.workers, maxDrillClients) {
		options := []client.Option{client.WithEndpoints(a.endpoints...), client.WithName("drill"), client.WithLogger(slog.New(slog.DiscardHandler))}
		if o.ttl > 0 {
			options = append(options, client.WithTTL(o.ttl))
		}
		c, err := client.Open(ctx, options...)
		if err != nil {
			return err
		}
		d.clients = append(d.clients, c)
	}
	defer d.close()
	r, err := d.run(ctx, a)
	if err != nil {
		return err
	}
	if err := a.json(r); err != nil {
		return err
	}
	if !r.Exact {
		return &exitError{exitOther, fmt.Sprintf("not exact: %d acknowledged, %d unknown, but the counter went from %d to %d",
			r.Acknowledged, r.Unknown, r.Initial, r.Final)}
	}
	return nil
}

// drill counts from many goroutines.
type drill struct {
	options drillOptions
	clients []*client.Client
	started atomic.Uint64

	mu                     sync.Mutex
	acknowledged, replayed int64
	unknown                []*client.UnknownError
	terms                  map[uint64]bool
	last                   time.Time // of the last acknowledgement
	gap                    time.Duration
	failed                 error
}

func (d *drill) run(ctx context.Context, a *app) (*drillResult, error) {
	first, cancel := context.WithTimeout(ctx, a.timeout)
	initial, err := d.read(first)
	cancel()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	d.last = begin
	d.count(ctx, a)
	seconds := time.Since(begin).Seconds()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTimeout)
	defer cancel()
	unknown := d.resolve(end)
	if d.failed != nil {
		return nil, d.failed
	}
	final, err := d.read(end)
	if err != nil {
		return nil, err
	}
	r := &drillResult{Key: d.options.key, Initial: initial, Acknowledged: d.acknowledged, Final: final, Replayed: d.replayed, Unknown: unknown,
		LeaderChanges: max(0, len(d.terms)-1), Seconds: seconds, LongestGapMs: d.gap.Milliseconds()}
	r.judge()
	return r, nil
}

// read returns the counter; a missing one is 0.
func (d *drill) read(ctx context.Context) (int64, error) {
	got, err := d.clients[0].Get(ctx, d.options.key)
	if errors.Is(err, client.ErrNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(got.Value), 10, 64)
	if err != nil {
		return 0, &exitError{exitDecidedNo, fmt.Sprintf("the value of %s isn't a number", quoted(d.options.key))}
	}
	return n, nil
}

// count increments until enough was done, the time is over, or ctx ends.
func (d *drill) count(ctx context.Context, a *app) {
	until := ctx
	if d.options.duration > 0 {
		var cancel context.CancelFunc
		until, cancel = context.WithTimeout(ctx, d.options.duration)
		defer cancel()
	}
	progress, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	if d.options.verbose || isTerminal(a.stderr) {
		shown.Go(func() { d.show(progress, a) })
	}
	var workers sync.WaitGroup
	for i := range d.options.workers {
		workers.Go(func() { d.work(ctx, until, d.clients[i%len(d.clients)]) })
	}
	workers.Wait()
	stop()
	shown.Wait()
	d.acknowledge(nil) // the time since the last one is a gap too
}

// work increments while until hasn't ended. What was begun is only given up when ctx ends.
func (d *drill) work(ctx, until context.Context, c *client.Client) {
	for until.Err() == nil && (d.options.duration > 0 || d.started.Add(1) <= d.options.ops) {
		r, err := c.Increment(ctx, d.options.key, 1)
		if !d.take(&r, err) {
			return
		}
	}
}

// take counts what became of one increment. It returns false when it makes no sense to go on.
func (d *drill) take(r *client.IncrementResult, err error) bool {
	var unknown *client.UnknownError
	switch {
	case err == nil:
		d.acknowledge(&r.Meta)
		return true
	case errors.As(err, &unknown):
		d.mu.Lock()
		defer d.mu.Unlock()
		d.unknown = append(d.unknown, unknown)
		return true
	case client.OutcomeOf(err) == client.Applied:
		d.acknowledge(&client.Meta{})
		return true
	case errors.Is(err, client.ErrNotANumber), errors.Is(err, client.ErrOverflow), errors.Is(err, client.ErrInvalid):
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failed = err
		return false
	}
	return true
}

// acknowledge counts one increment that took effect; without one it only looks at the clock.
func (d *drill) acknowledge(m *client.Meta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.gap = max(d.gap, now.Sub(d.last))
	if m == nil {
		return
	}
	d.last = now
	d.acknowledged++
	if m.Replayed {
		d.replayed++
	}
	if m.Term != 0 {
		d.terms[m.Term] = true
	}
}

// resolve waits for the increments that were given up, and returns how many stay unknown.
func (d *drill) resolve(ctx context.Context) (left int64) {
	for _, u := range d.unknown {
		r, err := u.Wait(ctx)
		switch client.OutcomeOf(err) {
		case client.Applied:
			d.acknowledge(&r.Meta)
		case client.Unknown:
			left++
		}
	}
	return left
}

func (d *drill) show(ctx context.Context, a *app) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		line := fmt.Sprintf("%3.0f s  %d acknowledged, %d replayed, %d leader changes\n",
			time.Since(begin).Seconds(), d.acknowledged, d.replayed, max(0, len(d.terms)-1))
		d.mu.Unlock()
		_, _ = fmt.Fprint(a.stderr, line) // for a person
	}
}

func (d *drill) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, c := range d.clients {
		_ = c.Close(ctx) // the result is printed; a client that isn't closed expires
	}
}
