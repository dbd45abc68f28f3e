package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

var (
	errSecondHello = status.Error(codes.InvalidArgument, "a hello belongs in the first frame of a stream only")
	errSlowReader  = status.Error(codes.ResourceExhausted, "the client took no answers for too long")
)

// session is one stream of one client. Three goroutines run it: the receiver reads frames and starts requests,
// the sender sends what the outbox holds, and gRPC's own waits for the end. The last one is apart because a
// server stream can be ended only by returning from its handler, and reading and sending can both block for as
// long as the client likes.
type session struct {
	server *Server
	stream kvoncev1.KV_SessionServer
	out    *outbox
	// greeting carries the welcome from the receiver to the handler, once.
	greeting chan *kvoncev1.Welcome
	// finishing is set when no new request counts; the session ends as soon as nothing is owed.
	finishing atomic.Bool

	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

func newSession(s *Server, stream kvoncev1.KV_SessionServer) *session {
	return &session{
		server:   s,
		stream:   stream,
		out:      newOutbox(s.limits),
		greeting: make(chan *kvoncev1.Welcome, 1),
		done:     make(chan struct{}),
	}
}

// run serves the stream until it ends and returns its status.
func (ss *session) run() error {
	defer ss.end(nil)
	ss.server.streams.Go(ss.receive)
	if ok, err := ss.welcome(); !ok {
		return err
	}
	ss.server.streams.Go(ss.send)
	return ss.wait()
}

// welcome sends the welcome and reports whether the session goes on.
func (ss *session) welcome() (bool, error) {
	limit := ss.server.limits.helloTimeout
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var w *kvoncev1.Welcome
	select {
	case w = <-ss.greeting:
	case <-timer.C:
		w = refuseHello(fmt.Sprintf("hello: none within %v", limit))
	case <-ss.done:
		return false, ss.err
	case <-ss.stream.Context().Done():
		return false, status.FromContextError(ss.stream.Context().Err()).Err()
	}
	if err := ss.stream.Send(&kvoncev1.SessionResponse{Welcome: w}); err != nil {
		return false, err
	}
	return w.GetCode() == kvoncev1.Code_OK, nil
}

// wait returns the status of the stream when it has one.
func (ss *session) wait() error {
	draining := ss.server.draining.Done()
	for {
		select {
		case <-draining:
			draining = nil
			ss.finish()
		case <-ss.done:
			return ss.err
		case <-ss.stream.Context().Done():
			return status.FromContextError(ss.stream.Context().Err()).Err()
		}
	}
}

// end gives the stream its status; the first one counts.
func (ss *session) end(err error) {
	ss.once.Do(func() {
		ss.err = err
		close(ss.done)
		ss.out.close()
	})
}

// finish ends the session once everything it owes has been sent.
func (ss *session) finish() {
	ss.finishing.Store(true)
	signal(ss.out.ready)
}

// receive reads frames until the client has sent its last, or the session ends.
func (ss *session) receive() {
	frame, err := ss.stream.Recv()
	if errors.Is(err, io.EOF) {
		ss.end(nil) // a stream without a hello
		return
	}
	if err != nil {
		ss.end(err)
		return
	}
	caller, w := ss.greetFirst(frame)
	ss.greeting <- w
	if w.GetCode() != kvoncev1.Code_OK {
		return
	}
	if err := ss.serve(caller, frame); errors.Is(err, io.EOF) {
		ss.finish()
	} else {
		ss.end(err)
	}
}

func (ss *session) greetFirst(frame *kvoncev1.SessionRequest) (Caller, *kvoncev1.Welcome) {
	if frame.GetHello() == nil {
		return Caller{}, refuseHello("hello: missing in the first frame")
	}
	return ss.server.greet(frame.GetHello())
}

// serve starts the requests of frame and of those that follow.
func (ss *session) serve(caller Caller, frame *kvoncev1.SessionRequest) error {
	for {
		for _, r := range frame.GetRequests() {
			if err := ss.startRequest(caller, r); err != nil {
				return err
			}
		}
		var err error
		if frame, err = ss.stream.Recv(); err != nil {
			return err
		}
		if frame.GetHello() != nil {
			return errSecondHello
		}
	}
}

func (ss *session) startRequest(caller Caller, r *kvoncev1.Request) error {
	tag := r.GetTag()
	if err := ss.admit(tag); err != nil {
		return err
	}
	ss.server.start(caller, r, func(resp *kvoncev1.Response) {
		if err := ss.out.answer(tag, resp); err != nil {
			ss.end(err)
		}
	})
	return nil
}

// admit waits until there is room for one more request. Not reading meanwhile is what holds the client back.
func (ss *session) admit(tag uint64) error {
	for {
		err := ss.out.admit(tag)
		if !errors.Is(err, errNoRoom) {
			return err
		}
		select {
		case <-ss.out.room:
		case <-ss.done:
			return errOutboxClosed
		}
	}
}

// send sends what the outbox holds, in as few frames as the limits allow, until the session ends.
func (ss *session) send() {
	watch := newStallWatch(ss.server.limits.stallTimeout, ss.stalled)
	defer watch.stop()
	var batch []answer
	for {
		select {
		case <-ss.done:
			return
		case <-ss.out.ready:
		}
		batch = ss.out.take(batch)
		if err := ss.sendAll(batch, watch); err != nil {
			ss.end(err)
			return
		}
		clear(batch)
		if ss.finishing.Load() && ss.out.idle() {
			ss.end(nil)
			return
		}
	}
}

func (ss *session) sendAll(batch []answer, watch *stallWatch) error {
	for len(batch) > 0 {
		var now []answer
		now, batch = cut(batch, ss.server.limits.frameBytes)
		frame := &kvoncev1.SessionResponse{Responses: make([]*kvoncev1.Response, len(now))}
		for i, a := range now {
			frame.Responses[i] = a.response
		}
		watch.start()
		err := ss.stream.Send(frame)
		watch.stop()
		if err != nil {
			return err
		}
		ss.out.sent(now)
	}
	return nil
}

// stalled ends the session when the frame that takes so long is what keeps its client from sending more, and
// reports whether it did. A client that is slow with room to spare is none of our business; one that vanished
// is found by keepalive.
func (ss *session) stalled() bool {
	if !ss.out.full() {
		return false
	}
	ss.end(errSlowReader)
	return true
}
