package client

import (
	"context"
	"errors"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// maxParallel bounds the connection attempts that run at the same time.
const maxParallel = 3

// attempt is what became of one connection attempt.
type attempt struct {
	addr    string
	session *session
	err     error
}

// search is one round of connection attempts: an attempt that hangs doesn't hold up the next for long. It is used by
// one goroutine.
type search struct {
	c        *Client
	ctx      context.Context
	id       *identity
	hello    *kvoncev1.Hello
	left     []string
	running  int
	attempts chan attempt
	// best is a node that welcomed the client and said that another one leads, which is being tried.
	best  *session
	wrong int // nodes of another cluster
	err   error
}

// connect returns a session, with the leader if that can be found out, or why there is none.
func (c *Client) connect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := c.newSearch(ctx)
	found := s.run()
	cancel()
	s.collectRest()
	c.mu.Lock()
	defer c.mu.Unlock()
	if found == nil {
		c.engine.roundFailed(s.wrong > 0)
		return nil, s.err
	}
	return found, nil
}

func (c *Client) newSearch(ctx context.Context) *search {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, hello := c.engine.hello()
	return &search{c: c, ctx: ctx, id: id, hello: hello, left: c.engine.endpoints.round(time.Now()),
		attempts: make(chan attempt), err: errors.New("no endpoint could be reached")}
}

// hello returns who the client is, for the next stream.
func (e *engine) hello() (*identity, *kvoncev1.Hello) {
	h := &kvoncev1.Hello{Incarnation: e.incarnation}
	if e.id == nil || e.id.forgotten {
		return nil, h
	}
	h.ClientId, h.Secret = e.id.id, e.id.secret
	return e.id, h
}

// roundFailed takes in that no endpoint was of use. When in two rounds no node was of this cluster, but some were of
// another, the cluster is gone.
func (e *engine) roundFailed(wrong bool) {
	if !wrong {
		return
	}
	e.wrongCluster++
	if e.wrongCluster >= 2 {
		e.wrongCluster = 0
		e.forgetCluster()
	}
}

// run tries endpoints until one is good, or none is left.
func (s *search) run() *session {
	timer := time.NewTimer(s.c.config.timing.stagger)
	defer timer.Stop()
	s.launch()
	for s.running > 0 {
		select {
		case a := <-s.attempts:
			s.running--
			if found := s.judge(a); found != nil {
				return found
			}
			timer.Reset(s.c.config.timing.stagger)
		case <-timer.C:
			s.launch()
			timer.Reset(s.c.config.timing.stagger)
		}
	}
	return s.best
}

// launch starts the next attempt.
func (s *search) launch() {
	if len(s.left) == 0 || s.running >= maxParallel || s.ctx.Err() != nil {
		return
	}
	addr := s.left[0]
	s.left = s.left[1:]
	s.running++
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.c.config.timing.welcome)
		defer cancel()
		session, err := s.c.openSession(ctx, addr, s.id, s.hello)
		s.attempts <- attempt{addr, session, err}
	}()
}

// judge takes in an attempt and returns the session to use, if this settles it.
func (s *search) judge(a attempt) *session {
	s.note(a)
	if a.err != nil {
		s.launch()
		return nil
	}
	leader := s.elsewhere(a.session)
	switch {
	case s.best != nil && leader != "":
		a.session.discard() // another follower
		return nil
	case s.best != nil:
		s.best.discard()
		s.best = nil
	case leader != "":
		s.best = a.session
		s.left = []string{leader}
		s.launch()
		s.left = nil
		return nil
	}
	return a.session
}

// elsewhere returns the leader's address when the node says that it doesn't lead and the leader can be tried.
func (s *search) elsewhere(x *session) string {
	addr := x.link.elsewhere(x.welcome.GetLeader())
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	e := s.c.engine.endpoints
	if addr == "" || e.resting(addr, time.Now()) || !e.suggest(addr) {
		return ""
	}
	e.hint = "" // it is tried now
	return addr
}

// note records how an endpoint did.
func (s *search) note(a attempt) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case a.err == nil:
		s.c.engine.endpoints.worked(a.addr)
	case s.ctx.Err() == nil:
		s.c.engine.endpoints.failed(a.addr, time.Now())
		s.c.config.log.Debug("connection attempt failed", "endpoint", a.addr, "err", a.err)
		if errors.Is(a.err, errWrongCluster) {
			s.wrong++
		}
		s.err = a.err
	}
}

// collectRest waits for the attempts that are of no interest any more.
func (s *search) collectRest() {
	for ; s.running > 0; s.running-- {
		if a := <-s.attempts; a.session != nil {
			a.session.discard()
		}
	}
}
