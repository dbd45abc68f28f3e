package registry

// Outcome says what is known about the effect of a request. The numbers are part of the log and snapshot format.
type Outcome uint8

const (
	// Applied means that the request took effect, once.
	Applied Outcome = 1
	// NotApplied is final: no copy of this sequence has run or ever will.
	NotApplied Outcome = 2
	// Refused means that this copy did nothing; another copy may still run.
	Refused Outcome = 3
	// Unknown means that it may or may not have run.
	Unknown Outcome = 4
)

// Code says why a decision was made.
type Code uint8

const (
	// Done means that the request ran now or before; the outcome tells whether it had an effect, the bytes are its answer.
	Done Code = iota + 1
	// Invalid means that a sequence or first outstanding sequence is out of range.
	Invalid
	// WrongSecret means that the verifier isn't the one the client was registered with.
	WrongSecret
	// Expired means that the client expired or was closed; the outcome is the verdict on the sequence.
	Expired
	// UnknownClient means that neither a client nor a tombstone has the id.
	UnknownClient
	// Stale means that the sequence lies below the first outstanding one: resolved for the client, not run now.
	Stale
	// AnswerGone means that the request ran or was decided before, and that its bytes were dropped since.
	AnswerGone
	// Reused means that another request ran under the same sequence.
	Reused
	// WindowExceeded means that the sequence is too far ahead of the first outstanding one.
	WindowExceeded
	// OutOfOrder means that an ordered client's request isn't the next one.
	OutOfOrder
	// AnswersFull means that the answer has no room; nothing ran.
	AnswersFull
	// AnswerTooLarge means that the answer alone is above the cap; nothing ran, and nothing will.
	AnswerTooLarge
	// Cancelled means that the client cancelled the sequence before it ran.
	Cancelled
	// VerifierUsed means that the verifier of a registration names another client.
	VerifierUsed
	// ClientsFull means that there are as many clients as there may be.
	ClientsFull
)

// Decision is the answer of the registry to one request, touch, cancel, registration or close.
type Decision struct {
	Code    Code
	Outcome Outcome
	// Replayed tells that an earlier copy was decided already.
	Replayed bool
	// Bytes is the answer of a request that is Done.
	Bytes []byte
	// Index and Term are the log position of the entry that decided: for a replayed answer, the first one.
	Index, Term uint64
	// Expected is the sequence that an ordered client must send next, with OutOfOrder.
	Expected uint64
	// RetryAfter is the cluster time in milliseconds until room may be made, with ClientsFull.
	RetryAfter uint64
	// Limit is the limit that was passed, with the codes that name one.
	Limit uint64
	// Client is the client of a registration.
	Client *Client
}

func refused(code Code) Decision { return Decision{Code: code, Outcome: Refused} }

// Stamp is the place in the log at which a decision is made.
type Stamp struct {
	// Time is cluster time in milliseconds.
	Time uint64
	// Index and Term are those of the log entry.
	Index, Term uint64
}

// Limits are the settings that decisions depend on.
type Limits struct {
	// MaxClients is how many clients may be registered.
	MaxClients uint64
	// Window is how far a sequence may lie ahead of the first outstanding one; fixed for a client when it registers.
	Window uint64
	// DefaultTTL, MinTTL and MaxTTL bound the time to live of a client, in milliseconds of cluster time.
	DefaultTTL, MinTTL, MaxTTL uint64
	// ClientAnswerBytes and TotalAnswerBytes cap the answers held for one client and for all of them.
	ClientAnswerBytes, TotalAnswerBytes uint64
	// TombstoneSpan is how long a tombstone is kept, in milliseconds of cluster time.
	TombstoneSpan uint64
	// MaxTombstones is how many tombstones are kept; the oldest go first.
	MaxTombstones uint64
}

// MaxAnswer returns the size above which an answer has no room even when no other is held, overhead included.
func (l *Limits) MaxAnswer() uint64 { return min(l.ClientAnswerBytes, l.TotalAnswerBytes) }
