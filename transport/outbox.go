package transport

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// fieldOverhead is more than the key and the length of one response in a frame take, in bytes.
const fieldOverhead = 16

var (
	errNoRoom       = errors.New("transport: no room in the outbox")
	errOutboxClosed = errors.New("transport: session has ended")

	errDuplicateTag = status.Error(codes.InvalidArgument, "two unanswered requests have the same tag")
	errOverflow     = status.Error(codes.ResourceExhausted, "the client takes its answers too slowly")
)

// answer is a response and its size in a frame, in bytes.
type answer struct {
	response *kvoncev1.Response
	size     int
}

// outbox holds what a session owes its client: the tags that wait for an answer and the answers that wait for
// the sender. Nobody who answers ever blocks on it.
type outbox struct {
	limits limits
	// ready holds a token when the sender should look.
	ready chan struct{}
	// room holds a token when the receiver, having found no room, should look again.
	room chan struct{}

	mu      sync.Mutex
	pending map[uint64]struct{}
	waiting []answer
	// held counts the answers that were given and not yet sent, and bytes what they are charged.
	held, bytes int
	closed      bool
}

func newOutbox(l limits) *outbox {
	return &outbox{
		limits:  l,
		ready:   make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		pending: make(map[uint64]struct{}),
	}
}

// admit notes a request that is about to be started. It returns errNoRoom when the caller has to wait,
// errDuplicateTag when the tag is still unanswered, and errOutboxClosed after close.
func (o *outbox) admit(tag uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return errOutboxClosed
	}
	if o.fullLocked() {
		return errNoRoom
	}
	if _, ok := o.pending[tag]; ok {
		return errDuplicateTag
	}
	o.pending[tag] = struct{}{}
	return nil
}

func (o *outbox) fullLocked() bool {
	return len(o.pending)+o.held >= o.limits.inFlight || o.bytes >= o.limits.outboxBytes
}

// full reports whether the session has stopped reading for want of room.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fullLocked()
}

// idle reports whether nothing is owed.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending) == 0 && o.held == 0
}

// answer files the response to the request with this tag, and drops it when the session has ended or the tag
// has been answered. It returns errOverflow when the response can't be kept.
func (o *outbox) answer(tag uint64, r *kvoncev1.Response) error {
	r.Tag = tag
	a := o.weigh(r)

	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.pending[tag]; !ok || o.closed {
		return nil
	}
	delete(o.pending, tag)
	if o.bytes+a.size > o.limits.heldBytes {
		if r.GetRead() == nil {
			return errOverflow
		}
		busy := refuse(kvoncev1.Code_BUSY, "too many bytes wait to be taken on this stream")
		busy.Tag = tag
		a = o.weigh(busy)
	}
	o.waiting = append(o.waiting, a)
	o.held++
	o.bytes += a.charge()
	signal(o.ready)
	return nil
}

// weigh sizes a response and replaces one that no frame can hold.
func (o *outbox) weigh(r *kvoncev1.Response) answer {
	size := proto.Size(r) + fieldOverhead
	if size > o.limits.answerBytes {
		r = withoutResult(r, o.limits.answerBytes)
		size = proto.Size(r) + fieldOverhead
	}
	return answer{response: r, size: size}
}

func (a answer) charge() int { return a.size + answerOverhead }

// take gives the sender all answers that wait, and keeps spare for the next ones.
func (o *outbox) take(spare []answer) []answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch := o.waiting
	o.waiting = spare[:0]
	return batch
}

// sent gives back the room of answers that have left.
func (o *outbox) sent(answers []answer) {
	charged := 0
	for _, a := range answers {
		charged += a.charge()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held -= len(answers)
	o.bytes -= charged
	signal(o.room)
}

// close drops what waits and everything that is answered from now on.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.waiting = nil
	o.pending = nil
}

// signal leaves a token in a channel with room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// cut splits off the answers of the next frame: as many as stay below limit, and at least one.
func cut(batch []answer, limit int) (frame, rest []answer) {
	size := 0
	for i, a := range batch {
		size += a.size
		if i > 0 && size > limit {
			return batch[:i], batch[i:]
		}
	}
	return batch, nil
}
