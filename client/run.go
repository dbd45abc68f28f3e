package client

import (
	"time"
)

// run is the manager: it keeps the client on a session while there is something to do.
func (c *Client) run() {
	for c.awaitDemand() {
		if !c.pause() {
			return
		}
		s, err := c.connect(c.ctx)
		if err != nil {
			c.note(err)
			continue
		}
		c.serve(s)
	}
}

// awaitDemand waits until a connection is needed. It returns false when the client is closed.
func (c *Client) awaitDemand() bool {
	for c.ctx.Err() == nil {
		if c.demand() {
			return true
		}
		select {
		case <-c.wanted:
		case <-c.ctx.Done():
		}
	}
	return false
}

func (c *Client) demand() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.wanted()
}

// pause waits before the next connection: not at all at first, longer and longer while connections bring nothing.
// It returns false when the client is closed.
func (c *Client) pause() bool {
	d := c.nextPause()
	if d <= 0 {
		return c.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// freeAttempts is how many connections may follow each other at once although none brings anything: a leader's hint,
// and one that was out of date.
const freeAttempts = 3

func (c *Client) nextPause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.engine.fruitless
	c.engine.fruitless++
	if n < freeAttempts {
		return 0
	}
	return c.config.timing.reconnect.delay(n - freeAttempts)
}

// note records why there is no connection.
func (c *Client) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engine.trouble = err
	c.config.log.Debug("no connection", "err", err)
}

// serve works with a session until it is time to look for another.
func (c *Client) serve(s *session) {
	if !c.install(s) {
		s.discard()
		return
	}
	c.config.log.Debug("connected", "endpoint", s.link.addr, "node", s.link.node)
	s.start()
	c.watch(s)
	c.mu.Lock()
	c.session = nil
	c.mu.Unlock()
	s.drain(c.config.timing.drain)
}

// install makes a session the current one, unless the client is another by now.
func (c *Client) install(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, _ := c.engine.hello(); id != s.link.identity {
		return false
	}
	c.session = s
	c.engine.install(s.link, s.welcome.GetIncarnation())
	return true
}

// watch returns when the session has ended, was retired, or must be given up because its node is silent.
func (c *Client) watch(s *session) {
	ticker := time.NewTicker(c.config.timing.check)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.link.gone:
			return
		case now := <-ticker.C:
			if s.silent(now) {
				c.config.log.Debug("node is silent", "endpoint", s.link.addr, "node", s.link.node)
				s.cancel()
				<-s.done
				return
			}
		}
	}
}
