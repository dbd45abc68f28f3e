package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// maxResponseBytes is the largest frame that a node sends, in bytes.
const maxResponseBytes = 32 << 20

var errWrongCluster = errors.New("the node belongs to another cluster")

// session is one stream to one node, on a connection of its own. Its sender takes what the engine has to send, its
// receiver gives the engine what comes back.
type session struct {
	c       *Client
	link    *link
	welcome *kvoncev1.Welcome
	conn    *grpc.ClientConn
	stream  kvoncev1.KV_SessionClient
	cancel  context.CancelFunc
	// wake holds a token when the sender should look.
	wake chan struct{}
	done chan struct{}
}

func (c *Client) dial(addr string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDisableServiceConfig(),
	}
	return grpc.NewClient(addr, append(options, c.config.dial...)...)
}

// openSession connects to a node and greets it. The session belongs to the caller when the node welcomes it; nothing
// but the hello has been sent.
func (c *Client) openSession(ctx context.Context, addr string, id *identity, hello *kvoncev1.Hello) (*session, error) {
	conn, err := c.dial(addr)
	if err != nil {
		return nil, err
	}
	streamCtx, cancel := context.WithCancel(c.ctx)
	s := &session{c: c, conn: conn, cancel: cancel, wake: make(chan struct{}, 1), done: make(chan struct{})}
	stop := context.AfterFunc(ctx, cancel)
	s.welcome, err = s.greet(streamCtx, hello)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		s.discard()
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	s.link = newLink(addr, s.welcome.GetNodeId(), id)
	return s, nil
}

// greet opens the stream, sends the hello and returns the node's welcome.
func (s *session) greet(ctx context.Context, hello *kvoncev1.Hello) (*kvoncev1.Welcome, error) {
	stream, err := kvoncev1.NewKVClient(s.conn).Session(ctx)
	if err != nil {
		return nil, err
	}
	s.stream = stream
	if err := stream.Send(&kvoncev1.SessionRequest{Hello: hello}); err != nil {
		return nil, err
	}
	frame, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	w := frame.GetWelcome()
	switch {
	case w.GetCode() == kvoncev1.Code_WRONG_CLUSTER, len(w.GetIncarnation()) > 0 && len(hello.GetIncarnation()) > 0 &&
		string(w.GetIncarnation()) != string(hello.GetIncarnation()):
		return nil, errWrongCluster
	case w.GetCode() != kvoncev1.Code_OK:
		return nil, fmt.Errorf("the node refuses the hello: %v %s", w.GetCode(), w.GetMessage())
	case len(w.GetIncarnation()) == 0 && hello.GetClientId() != 0:
		return nil, errors.New("the node doesn't know its cluster yet")
	}
	return w, nil
}

// discard closes a session that was never used.
func (s *session) discard() {
	s.cancel()
	_ = s.conn.Close() // there is nothing to lose
}

// start makes the session carry requests.
func (s *session) start() {
	s.c.goroutines.Go(s.send)
	s.c.goroutines.Go(s.receive)
}

// send sends frames until the link is retired or the stream ends.
func (s *session) send() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		requests, next := s.collect()
		if len(requests) > 0 {
			if err := s.stream.Send(&kvoncev1.SessionRequest{Requests: requests}); err != nil {
				s.cancel() // the receiver learns the reason
				return
			}
			continue
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.link.gone:
			return
		case <-s.done:
			return
		}
	}
}

func (s *session) collect() ([]*kvoncev1.Request, time.Time) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.link.retired {
		return nil, time.Time{}
	}
	requests := s.c.engine.collect(s.link, time.Now())
	return requests, s.c.engine.next(s.link)
}

// receive takes in answers until the stream ends, then gives up what is pending on it.
func (s *session) receive() {
	defer close(s.done)
	defer s.discard()
	err := s.receiveAll()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.link.retired {
		s.c.engine.trouble = err
		s.c.engine.endpoints.failed(s.link.addr, time.Now())
		s.c.config.log.Debug("stream ended", "endpoint", s.link.addr, "node", s.link.node, "err", err)
	}
	s.c.engine.drop(s.link, time.Now())
	s.c.wakeLocked()
}

func (s *session) receiveAll() error {
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if s.take(frame.GetResponses()) {
			s.cancel()
		}
	}
}

// take takes in the answers of a frame, and reports whether the stream is of no more use.
func (s *session) take(responses []*kvoncev1.Response) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	now := time.Now()
	for _, r := range responses {
		s.c.engine.answer(s.link, r, now)
	}
	s.c.wakeLocked()
	return s.link.retired && len(s.link.pending) == 0
}

// drain lets a retired session end when its last answer has come, or a while has passed.
func (s *session) drain(limit time.Duration) {
	s.c.mu.Lock()
	idle := len(s.link.pending) == 0
	s.c.mu.Unlock()
	if idle {
		s.cancel()
		return
	}
	s.c.goroutines.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.cancel()
		case <-s.done:
		}
	})
}

// silent reports whether the node has to be taken for gone.
func (s *session) silent(now time.Time) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.link.silent(&s.c.config.timing, now)
}
