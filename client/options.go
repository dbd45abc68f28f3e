package client

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
)

// Limits of the library. Those of the cluster are settings that it checks itself.
const (
	// MaxRequestBytes is the largest request that is sent, in bytes. It is above what a cluster takes by default
	// (1.5 MiB), and below what would break the stream that other requests are on.
	MaxRequestBytes = 2 << 20
	// MaxWaiting is how many calls may wait for a connection or for room in the window at the same time. Beyond
	// it a call fails at once with CodeTooManyWaiting.
	MaxWaiting = 1 << 16
	// MaxKeptAnswers and MaxKeptBytes bound the answers that are kept for UnknownError.Wait; the oldest go first.
	MaxKeptAnswers = 1024
	MaxKeptBytes   = 8 << 20

	maxNameBytes = 256
)

// DefaultEndpoints are the client addresses of a cluster that "kvnode local" starts.
var DefaultEndpoints = []string{"127.0.0.1:4101", "127.0.0.1:4102", "127.0.0.1:4103"}

// Option changes how a client is opened.
type Option func(*config)

type config struct {
	endpoints     []string
	name          string
	ttl           time.Duration
	ordered       bool
	pinned        bool
	eager         bool
	maxUnresolved int
	dial          []grpc.DialOption
	log           *slog.Logger
	timing        timing
}

// timing holds the durations that the library works with.
type timing struct {
	welcome   time.Duration // from the start of a connection attempt to the node's welcome
	stagger   time.Duration // until the next endpoint is tried beside an attempt that hangs
	silence   time.Duration // without any answer while requests are unanswered
	answer    time.Duration // one request without an answer; above the node's own limit of 10 s
	drain     time.Duration // for the last answers on a stream that has been left
	patience  time.Duration // with a node that is in touch with no leader
	check     time.Duration // between looks at silence
	reconnect backoff
	refused   backoff
	maxRetry  time.Duration // the most that retry_after is honoured, so that room made early is found
}

func defaultTiming() timing {
	return timing{
		welcome: 2 * time.Second, stagger: 250 * time.Millisecond, silence: 2 * time.Second,
		answer: 15 * time.Second, drain: time.Second, patience: 300 * time.Millisecond, check: 500 * time.Millisecond,
		reconnect: backoff{30 * time.Millisecond, 500 * time.Millisecond},
		refused:   backoff{10 * time.Millisecond, 250 * time.Millisecond},
		maxRetry:  10 * time.Second,
	}
}

// WithEndpoints sets the client addresses of nodes, host:port each; DefaultEndpoints if it isn't given. One that
// answers is enough: the library follows the hints of nodes to the leader.
func WithEndpoints(endpoints ...string) Option {
	return func(c *config) { c.endpoints = endpoints }
}

// WithPinnedEndpoints is WithEndpoints for a client that goes nowhere else, whatever nodes say about the leader: behind
// a proxy, say. Writes succeed only when one of the endpoints leads to the leader.
func WithPinnedEndpoints(endpoints ...string) Option {
	return func(c *config) { c.endpoints, c.pinned = endpoints, true }
}

// WithName sets the label that operators see beside the client's id, at most 256 bytes of UTF-8.
func WithName(name string) Option { return func(c *config) { c.name = name } }

// WithTTL sets after how much cluster time without a sign of life the client expires; the library gives those signs by
// itself. Clusters allow 5 s to 24 h unless they are set otherwise, and 5 min is what a client gets that doesn't ask.
func WithTTL(d time.Duration) Option { return func(c *config) { c.ttl = d } }

// WithOrdered makes the requests of the client run in the order in which they were first sent.
func WithOrdered() Option { return func(c *config) { c.ordered = true } }

// WithEagerRegistration makes Open register before it returns. Otherwise the first write does.
func WithEagerRegistration() Option { return func(c *config) { c.eager = true } }

// WithMaxUnresolved bounds how many requests may be unresolved whose callers have given up. At the bound new writes
// wait until one is resolved. The default, 0, leaves it to the window that the cluster gives to a client.
func WithMaxUnresolved(n int) Option { return func(c *config) { c.maxUnresolved = n } }

// WithDialOptions adds options to every connection: transport credentials, a dialer. Without credentials among them,
// connections are in plain text.
func WithDialOptions(o ...grpc.DialOption) Option {
	return func(c *config) { c.dial = append(c.dial, o...) }
}

// WithLogger sets where the client logs; slog.Default if it isn't given. Keys, values and secrets are never logged.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

// withTiming replaces the durations that the library works with.
func withTiming(t timing) Option { return func(c *config) { c.timing = t } }

func configOf(options []Option) (config, error) {
	c := config{endpoints: DefaultEndpoints, timing: defaultTiming()}
	for _, o := range options {
		o(&c)
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	return c, c.check()
}

func (c *config) check() error {
	switch {
	case len(c.endpoints) == 0:
		return errors.New("client: no endpoints")
	case len(c.name) > maxNameBytes || !utf8.ValidString(c.name):
		return fmt.Errorf("client: the name must be UTF-8 of at most %d bytes", maxNameBytes)
	case c.ttl < 0 || c.ttl > 0 && c.ttl < time.Millisecond:
		return fmt.Errorf("client: a time to live of %v can't be", c.ttl)
	case c.maxUnresolved < 0:
		return errors.New("client: the bound of unresolved requests is negative")
	}
	for _, e := range c.endpoints {
		if e == "" {
			return errors.New("client: an endpoint is empty")
		}
	}
	return nil
}
