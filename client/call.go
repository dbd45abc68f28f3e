package client

import (
	"container/list"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// kind is what a call asks for, or what a copy that was sent for it is.
type kind uint8

const (
	kindWrite kind = iota
	kindCancel
	kindUnregistered
	kindRead
	kindRegister
	kindClose
	kindTouch
)

// frameOverhead is more than what a request takes in a frame beside its command, in bytes.
const frameOverhead = 96

// call is one call of a user, or a registration or close of the library. The engine owns it until done is closed.
type call struct {
	kind    kind
	op      string
	command *kvoncev1.Command
	read    *kvoncev1.Read
	// size is about what a copy takes in a frame, in bytes.
	size int

	// done is closed when no more will be learned.
	done     chan struct{}
	finished bool
	response *kvoncev1.Response
	node     string
	err      *Error

	// Of writes: the identity and sequence under which copies were sent, and the salt in all of them.
	identity *identity
	seq      uint64
	salt     []byte
	// abandoned tells that the caller was told that the outcome is unknown.
	abandoned bool
	// cancelling tells that a cancel is sent instead of the request.
	cancelling bool
	// reissues counts the registrations under which the call was sent and not applied.
	reissues int

	copies copies
	// attempts counts the refusals since the last pause was short.
	attempts int
	// refusal is what the last refused copy was refused for.
	refusal *kvoncev1.Response

	// Where the call waits: in a list of calls never sent, or among those to be sent again.
	element *list.Element
	waits   *list.List
	index   int // in the resend queue; -1 outside
	due     time.Time

	// Of registrations: the secret; of closes: the end that was fixed when the client closed.
	secret []byte
	closed *kvoncev1.Close
}

func newCall(k kind, op string) *call {
	return &call{kind: k, op: op, size: frameOverhead, done: make(chan struct{}), index: -1}
}

func newCommand(k kind, op string, cmd *kvoncev1.Command) *call {
	c := newCall(k, op)
	c.command = cmd
	c.size += proto.Size(cmd)
	if k == kindWrite {
		c.salt = drawSalt()
	}
	return c
}

func newRead(op string, r *kvoncev1.Read) *call {
	c := newCall(kindRead, op)
	c.read = r
	c.size += proto.Size(r)
	return c
}

// heldBytes is about what the cluster holds of the answer.
func (c *call) heldBytes() int {
	if c.response == nil {
		return answerOverhead
	}
	return answerOverhead + proto.Size(c.response)
}

// fail makes the error with which the library itself ends a call.
func (c *call) fail(code Code, o Outcome, message string) *Error {
	return &Error{Op: c.op, Code: code, Outcome: o, Message: message}
}
