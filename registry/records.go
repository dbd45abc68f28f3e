package registry

import (
	"bytes"
	"errors"

	"github.com/kvonce/kvonce/internal/canon"
)

// Sizes that the log and snapshot formats fix.
const (
	// MaxNameBytes is the longest name of a client.
	MaxNameBytes = 256
	// MaxSequence is the highest sequence, 2^63-1.
	MaxSequence = 1<<63 - 1
	// MaxWindow is the widest window that a setting may give to clients.
	MaxWindow = 1 << 16
	// AnswerOverhead is what a stored answer counts besides its bytes.
	AnswerOverhead = 128
	// SmallAnswer is the size up to which the answer to the first outstanding sequence has room even when the cap on
	// all answers is reached; otherwise that client could never move on.
	SmallAnswer = 1024
)

// Kinds of records, as numbered in snapshots and digests. The kinds of items that expire are the low numbers, and
// their order is the order of removal among items with one deadline.
const (
	KindClient    = 1
	KindTombstone = 2
	KindAnswer    = 16
)

// Verifier is the SHA-256 of a client's secret.
type Verifier [32]byte

// Fingerprint tells one request from another under the same sequence: a scheme byte and 128 bits of a hash over
// the command and the salt of the request.
type Fingerprint [17]byte

// Client is a registered client. A Client in a registry never changes; each change makes a new one.
type Client struct {
	// ID comes from a replicated counter and is never used again.
	ID uint64
	// Verifier proves the client's requests.
	Verifier Verifier
	// Name is a label for operators.
	Name string
	// TTL is how long the client may be idle, in milliseconds of cluster time. Fixed at registration.
	TTL uint64
	// LastActive is the cluster time of its last entry in the log.
	LastActive uint64
	// First is the first outstanding sequence: all below it are resolved for the client.
	First uint64
	// Window is how far a sequence may lie ahead of First. Fixed at registration.
	Window uint64
	// Ordered tells that requests run in the order of their sequences. Fixed at registration.
	Ordered bool

	// next is the lowest sequence from First on without a stored answer; kept for ordered clients only.
	next uint64
	// answers and answerBytes account for the stored answers. They are derived from the answers.
	answers, answerBytes uint64
}

// Answers returns how many answers are stored for the client.
func (c *Client) Answers() uint64 { return c.answers }

// AnswerBytes returns what these answers count against the caps.
func (c *Client) AnswerBytes() uint64 { return c.answerBytes }

// deadline is the cluster time at which the client expires unless it is heard of.
func (c *Client) deadline() uint64 { return c.LastActive + c.TTL }

// Append appends the canonical bytes of the client.
func (c *Client) Append(b []byte) []byte {
	b = canon.AppendUint(b, c.ID)
	b = append(b, c.Verifier[:]...)
	b = canon.AppendBytes(b, c.Name)
	b = canon.AppendUint(b, c.TTL)
	b = canon.AppendUint(b, c.LastActive)
	b = canon.AppendUint(b, c.First)
	b = canon.AppendUint(b, c.Window)
	return canon.AppendBool(b, c.Ordered)
}

func decodeClient(r *canon.Reader) *Client {
	c := &Client{ID: r.Uint()}
	copy(c.Verifier[:], r.Fixed(len(c.Verifier)))
	c.Name = string(r.Bytes(MaxNameBytes))
	c.TTL = r.Uint()
	c.LastActive = r.Uint()
	c.First = r.Uint()
	c.Window = r.Uint()
	c.Ordered = r.Bool()
	c.next = c.First
	return c
}

// answerKey orders the answers of all clients by client and sequence.
type answerKey struct{ client, seq uint64 }

func (a answerKey) less(b answerKey) bool {
	return a.client < b.client || a.client == b.client && a.seq < b.seq
}

// answerKind tells how an answer came about.
type answerKind uint8

const (
	executed  answerKind = 1 // the command ran, with or without an effect
	cancelled answerKind = 2 // the client cancelled it before it ran
	tooLarge  answerKind = 3 // its answer alone is above the cap
)

// answer is what is kept of a request.
type answer struct {
	client, seq uint64
	fingerprint Fingerprint
	kind        answerKind
	outcome     Outcome
	index, term uint64
	// bytes is the answer of the command, or the limit that was passed of one that is too large.
	bytes []byte
	// gone tells that the client had the bytes and that they were dropped.
	gone bool
}

func (a *answer) size() uint64 { return AnswerOverhead + uint64(len(a.bytes)) }

// Append appends the canonical bytes of the answer.
func (a *answer) Append(b []byte) []byte {
	b = canon.AppendUint(b, a.client)
	b = canon.AppendUint(b, a.seq)
	b = append(b, a.fingerprint[:]...)
	b = append(b, byte(a.kind), byte(a.outcome))
	b = canon.AppendUint(b, a.index)
	b = canon.AppendUint(b, a.term)
	b = canon.AppendBool(b, a.gone)
	return canon.AppendBytes(b, a.bytes)
}

func decodeAnswer(r *canon.Reader) *answer {
	a := &answer{client: r.Uint(), seq: r.Uint()}
	copy(a.fingerprint[:], r.Fixed(len(a.fingerprint)))
	a.kind, a.outcome = answerKind(r.Byte()), Outcome(r.Byte())
	a.index = r.Uint()
	a.term = r.Uint()
	a.gone = r.Bool()
	a.bytes = bytes.Clone(r.Bytes(uint64(r.Len())))
	if r.Err() == nil && !a.possible() {
		r.Fail(errors.New("stored answer of an impossible kind or outcome"))
	}
	return a
}

// possible tells whether kind, outcome and bytes go together.
func (a *answer) possible() bool {
	switch a.kind {
	case executed:
		return (a.outcome == Applied || a.outcome == NotApplied) && !(a.gone && len(a.bytes) > 0)
	case cancelled:
		return a.outcome == NotApplied && !a.gone && len(a.bytes) == 0
	case tooLarge:
		limit := canon.NewReader(a.bytes)
		limit.Uint()
		return a.outcome == NotApplied && !a.gone && limit.Done() == nil
	}
	return false
}

// Reason says why a tombstone stands.
type Reason uint8

const (
	// ReasonIdle means that the client was idle for its time to live.
	ReasonIdle Reason = 1
	// ReasonClosed means that the client closed itself with answers or requests left.
	ReasonClosed Reason = 2
)

// Tombstone is what is kept of a client that is gone, so that its late requests get a verdict.
type Tombstone struct {
	ID       uint64
	Verifier Verifier
	// First is the first outstanding sequence at the end.
	First uint64
	// Applied has bit i set when the sequence First+i took effect. Trailing zero bytes are cut.
	Applied []byte
	Reason  Reason
	// Since is the cluster time of the end.
	Since uint64
}

// Verdict returns the outcome of a sequence. It is exact for sequences from First on; below it only the client knows.
func (t *Tombstone) Verdict(seq uint64) Outcome {
	if seq < t.First {
		return Unknown
	}
	i := seq - t.First
	if i/8 < uint64(len(t.Applied)) && t.Applied[i/8]>>(i%8)&1 == 1 {
		return Applied
	}
	return NotApplied
}

// Append appends the canonical bytes of the tombstone.
func (t *Tombstone) Append(b []byte) []byte {
	b = canon.AppendUint(b, t.ID)
	b = append(b, t.Verifier[:]...)
	b = canon.AppendUint(b, t.First)
	b = canon.AppendBytes(b, t.Applied)
	b = append(b, byte(t.Reason))
	return canon.AppendUint(b, t.Since)
}

func decodeTombstone(r *canon.Reader) *Tombstone {
	t := &Tombstone{ID: r.Uint()}
	copy(t.Verifier[:], r.Fixed(len(t.Verifier)))
	t.First = r.Uint()
	t.Applied = bytes.Clone(r.Bytes(MaxWindow/8 + 1))
	t.Reason = Reason(r.Byte())
	t.Since = r.Uint()
	if t.Reason < ReasonIdle || t.Reason > ReasonClosed {
		r.Fail(errors.New("tombstone with an unknown reason"))
	}
	if n := len(t.Applied); t.First == 0 || t.First > MaxSequence || n > 0 && t.Applied[n-1] == 0 {
		r.Fail(errors.New("tombstone with a sequence out of range"))
	}
	return t
}
