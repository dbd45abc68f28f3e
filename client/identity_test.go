package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// A registration whose answer was lost is repeated with the same verifier: one client comes of it.
func TestRegistrationIsRepeated(t *testing.T) {
	f := newFakeCluster(t, 3)
	f.does(once(isRegister, always(cutOff)))
	c := f.open(WithName("shop"), WithTTL(time.Minute), WithOrdered())
	require.NoError(t, c.put(soon(t), "k"))
	require.Len(t, f.registry.view().clients, 1)
	require.EqualValues(t, 1, c.ClientID())
	sent := f.requests(isRegister)
	require.Len(t, sent, 2)
	a, b := sent[0].request.GetRegister(), sent[1].request.GetRegister()
	require.Equal(t, a.GetVerifier(), b.GetVerifier())
	require.Equal(t, "shop", b.GetName())
	require.EqualValues(t, 60_000, b.GetTtlMs())
	require.True(t, b.GetOrdered())
	require.Zero(t, sent[1].client, "nobody is named in the hello of a registration")
}

// A verifier that is another client's, before an id is known, is drawn anew.
func TestVerifierUsed(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(once(isRegister, func() action { return refuse(kvoncev1.Code_VERIFIER_USED) }))
	require.NoError(t, f.open().put(soon(t), "k"))
	sent := f.requests(isRegister)
	require.NotEqual(t, sent[0].request.GetRegister().GetVerifier(), sent[1].request.GetRegister().GetVerifier())
}

// A cluster that is full refuses, and the registration is tried until the caller's context ends; the error says why.
func TestClientsFull(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.registry.maxClients = 0
	c := f.open()
	err := c.put(within(t, 50*time.Millisecond), "k")
	require.ErrorIs(t, err, ErrClientsFull)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, NotApplied, OutcomeOf(err))

	waiting := make(chan error, 1)
	go func() { waiting <- c.put(soon(t), "k") }()
	f.registry.mu.Lock()
	f.registry.maxClients = 1
	f.registry.mu.Unlock()
	require.NoError(t, <-waiting)
}

// A registration that can't be made fails the writes that wait for it, and the next one tries again.
func TestRegistrationRefused(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(once(isRegister, func() action { return refuse(kvoncev1.Code_INVALID) }))
	c := f.open(WithTTL(time.Hour))
	err := c.put(soon(t), "k")
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, NotApplied, OutcomeOf(err))
	require.NoError(t, c.put(soon(t), "k"))
}

// With eager registration Open returns a registered client, or an error.
func TestEagerRegistration(t *testing.T) {
	f := newFakeCluster(t, 1)
	require.NotZero(t, f.open(WithEagerRegistration()).ClientID())

	f.does(func(*fakeNode, *kvoncev1.Request) action { return ignore })
	_, err := Open(within(t, 50*time.Millisecond), WithEndpoints(f.endpoints()...), WithDialOptions(dialer(f)), WithEagerRegistration())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	f.does(func(*fakeNode, *kvoncev1.Request) action { return refuse(kvoncev1.Code_INVALID) })
	_, err = Open(soon(t), WithEndpoints(f.endpoints()...), WithDialOptions(dialer(f)), WithEagerRegistration())
	require.ErrorIs(t, err, ErrInvalid)
}

// Reads register nobody.
func TestReadsDoNotRegister(t *testing.T) {
	f := newFakeCluster(t, 3)
	c := f.open()
	_, err := c.Get(soon(t), "k")
	require.ErrorIs(t, err, ErrNotFound)
	require.Empty(t, f.requests(isRegister))
	require.NoError(t, c.put(soon(t), "k"))
	_, err = c.Get(soon(t), "k")
	require.NoError(t, err)
}

// held answers no write.
type held struct{ apply bool }

func (h held) script(_ *fakeNode, r *kvoncev1.Request) action {
	if isWrite(r) {
		return action{apply: h.apply, mute: true}
	}
	return serve
}

// A client that expired gets a verdict on each request: what took effect is applied, with its answer gone; what didn't
// is sent under the next registration while its caller waits (G4, G10).
func TestExpiry(t *testing.T) {
	f := newFakeCluster(t, 1)
	var before atomic.Bool
	before.Store(true)
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if isWrite(r) && before.Load() {
			return action{apply: strings.HasPrefix(string(r.GetWrite().GetCommand().GetPut().GetKey()), "ran"), mute: true}
		}
		return serve
	})
	c := f.open()
	results := make(map[string]chan error)
	for _, key := range []string{"ran 1", "lost 1", "ran 2", "lost 2"} {
		result := make(chan error, 1)
		results[key] = result
		go func() { result <- c.put(soon(t), key) }()
	}
	require.Eventually(t, func() bool { return len(f.requests(isWrite)) == 4 }, 5*time.Second, time.Millisecond)
	old := c.ClientID()
	before.Store(false)
	f.registry.expire()
	f.restart()
	for key, result := range results {
		err := <-result
		if strings.HasPrefix(key, "ran") {
			require.ErrorIs(t, err, ErrClientExpired)
			require.ErrorIs(t, err, ErrAnswerGone)
			require.Equal(t, Applied, OutcomeOf(err))
		} else {
			require.NoError(t, err)
		}
		require.NotNil(t, f.registry.view().keys[key])
	}
	require.Greater(t, c.ClientID(), old)
	for cmd, n := range f.registry.view().effects {
		require.Equal(t, 1, n, cmd)
	}
	salts := map[string]bool{}
	for _, s := range f.requests(func(r *kvoncev1.Request) bool { return string(r.GetWrite().GetCommand().GetPut().GetKey()) == "lost 1" }) {
		salts[fmt.Sprintf("%d %x", s.client, s.request.GetWrite().GetSalt())] = true
	}
	require.Len(t, salts, 2, "another request, with another salt")
}

// restart breaks every stream.
func (f *fakeCluster) restart() {
	for _, n := range f.nodes {
		n.stop()
		n.start()
	}
}

// The verdict on a request that its caller has given up is its end: it isn't sent under another registration.
func TestG10ExpiryOfAbandonedRequests(t *testing.T) {
	for _, ran := range []bool{false, true} {
		t.Run(fmt.Sprintf("ran=%v", ran), func(t *testing.T) {
			f := newFakeCluster(t, 1)
			f.does(held{apply: ran}.script)
			c := f.open()
			u := unknown(t, put(c, "k"))
			f.does(nil)
			f.registry.expire()
			f.restart()
			_, err := u.Wait(soon(t))
			require.ErrorIs(t, err, ErrClientExpired)
			want := NotApplied
			if ran {
				want = Applied
			}
			require.Equal(t, want, OutcomeOf(err))
			require.NoError(t, c.put(soon(t), "next"))
			require.Equal(t, ran, f.registry.view().keys["k"] != nil)
			for _, s := range f.requests(isWrite) {
				if string(s.request.GetWrite().GetCommand().GetPut().GetKey()) == "k" {
					require.EqualValues(t, 1, s.client, "G10")
				}
			}
		})
	}
}

// The requests of an ordered client that never ran are sent under the next registration in their order, before calls
// that were never sent.
func TestExpiryKeepsTheOrder(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.registry.window = 6
	var before atomic.Bool
	before.Store(true)
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if isWrite(r) && before.Load() {
			return ignore
		}
		return serve
	})
	c := f.open(WithOrdered())
	var calls sync.WaitGroup
	for i := range 9 { // six are sent, three wait
		calls.Go(func() {
			if _, err := c.Append(soon(t), "log", []byte{'a' + byte(i)}); err != nil {
				t.Error(err)
			}
		})
		require.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.engine.open == i+1 && (i >= 6 || len(f.requests(isWrite)) == i+1)
		}, 5*time.Second, time.Millisecond)
	}
	f.registry.expire()
	before.Store(false)
	f.restart()
	calls.Wait()
	require.Equal(t, "abcdefghi", string(f.registry.view().keys["log"]))
}

// A call is sent under a bounded number of registrations.
func TestExpiryAgainAndAgain(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(func(_ *fakeNode, r *kvoncev1.Request) action {
		if isWrite(r) {
			f.registry.expire()
		}
		return serve
	})
	err := f.open().put(soon(t), "k")
	require.ErrorIs(t, err, ErrClientExpired)
	require.Equal(t, NotApplied, OutcomeOf(err))
	require.Len(t, f.requests(isWrite), maxReissues+1)
}

// A client that the cluster doesn't know isn't taken for a new one (G8): what was sent is unknown for good, and only new
// calls get a new registration (G10).
func TestG10UnknownClient(t *testing.T) {
	f := newFakeCluster(t, 1)
	f.does(held{}.script)
	c := f.open()
	sent := make(chan error, 1)
	go func() { sent <- c.put(soon(t), "k") }()
	require.Eventually(t, func() bool { return len(f.requests(isWrite)) == 1 }, 5*time.Second, time.Millisecond)
	old := c.ClientID()
	f.does(nil)
	f.registry.wipe()
	f.restart()
	err := <-sent
	require.ErrorIs(t, err, ErrUnknownClient)
	require.Equal(t, Unknown, OutcomeOf(err))
	require.NoError(t, c.put(soon(t), "next"))
	require.NotEqual(t, old, c.ClientID())
	require.Nil(t, f.registry.view().keys["k"])
}

// An idle client that expired registers anew for the next write, and nothing is lost or said.
func TestExpiryOfIdleClient(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.open()
	require.NoError(t, c.put(soon(t), "a"))
	f.registry.expire()
	require.NoError(t, c.put(soon(t), "b"))
	require.EqualValues(t, 2, c.ClientID())
}

// When the cluster is another (restored, say), requests that were sent are unknown and those that were not are sent under
// a registration with the new one.
func TestClusterIsGone(t *testing.T) {
	f := newFakeCluster(t, 2)
	f.does(held{}.script)
	c := f.open()
	sent := make(chan error, 1)
	go func() { sent <- c.put(soon(t), "k") }()
	require.Eventually(t, func() bool { return len(f.requests(isWrite)) == 1 }, 5*time.Second, time.Millisecond)
	f.does(nil)
	f.registry.mu.Lock()
	f.registry.incarnation = []byte("fedcba9876543210")
	f.registry.mu.Unlock()
	f.restart()
	err := <-sent
	require.ErrorIs(t, err, ErrWrongCluster)
	require.Equal(t, Unknown, OutcomeOf(err))
	require.NoError(t, c.put(soon(t), "next"))
	require.Nil(t, f.registry.view().keys["k"])
	for _, s := range f.requests(isWrite)[1:] {
		require.NotEqual(t, "k", string(s.request.GetWrite().GetCommand().GetPut().GetKey()), "never to another cluster")
	}
}

// One endpoint of another cluster among good ones costs nobody anything.
func TestOneWrongEndpoint(t *testing.T) {
	f := newFakeCluster(t, 3)
	f.nodes[1].wrong = true
	c := f.open(WithEndpoints(f.nodes[2].addr, f.nodes[0].addr, f.nodes[1].addr))
	require.NoError(t, c.put(soon(t), "a"))
	id := c.ClientID()
	for range 3 {
		f.nodes[0].stop()
		f.nodes[0].start()
		require.NoError(t, c.put(soon(t), "b"))
	}
	require.Equal(t, id, c.ClientID())
}

// An ordered client's requests run in the order of their sequences, although copies are refused and streams break.
func TestOrderedClient(t *testing.T) {
	f := newFakeCluster(t, 1)
	var n atomic.Int64
	f.does(writes(func() action {
		switch n.Add(1) % 17 {
		case 3:
			return refuse(kvoncev1.Code_BUSY)
		case 9:
			return drop
		case 14:
			return cutOff
		}
		return serve
	}))
	timing := defaultTiming()
	timing.reconnect = backoff{time.Millisecond, 5 * time.Millisecond}
	c := f.open(WithOrdered(), withTiming(timing))
	require.NoError(t, c.put(soon(t), "warm"))
	want := ""
	var calls sync.WaitGroup
	for i := range 40 {
		letter := string(rune('A' + i))
		want += letter
		queued := c.queued()
		calls.Go(func() {
			if _, err := c.Append(soon(t), "log", []byte(letter)); err != nil {
				t.Error(err)
			}
		})
		require.Eventually(t, func() bool { return c.queued() > queued }, 5*time.Second, 100*time.Microsecond)
	}
	calls.Wait()
	require.Equal(t, want, string(f.registry.view().keys["log"]))
}

// queued counts the calls that have been taken in since the client registered.
func (c *Client) queued() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.id.ledger.next() + uint64(c.engine.writes.Len())
}
