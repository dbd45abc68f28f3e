package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Outcome says what is known about the effect of a call, all copies of its request taken together.
type Outcome uint8

const (
	// Applied means that the request took effect, once.
	Applied Outcome = iota + 1
	// NotApplied is final: no copy of the request has run or ever will.
	NotApplied
	// Unknown means that a copy may have run, or may run yet.
	Unknown
)

// String returns the name of the outcome as the command line and JSON have it.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case NotApplied:
		return "not_applied"
	}
	return "unknown"
}

// Code names why a call failed. Beside the constants below, it is the name of a code of the wire protocol, such as
// NOT_A_NUMBER or CLIENTS_FULL.
type Code string

// The codes that the library itself gives.
const (
	// CodeNotFound means that the key doesn't exist.
	CodeNotFound Code = "NOT_FOUND"
	// CodeCompareFailed means that the condition of a CompareAndSwap didn't hold.
	CodeCompareFailed Code = "COMPARE_FAILED"
	// CodeClosed means that the client was closed.
	CodeClosed Code = "CLIENT_CLOSED"
	// CodeUnavailable means that no node could be reached.
	CodeUnavailable Code = "UNAVAILABLE"
	// CodeWindowFull means that too many earlier requests were unresolved to send another.
	CodeWindowFull Code = "WINDOW_FULL"
	// CodeTooManyWaiting means that as many calls wait as may.
	CodeTooManyWaiting Code = "TOO_MANY_WAITING"
	// CodeNotSent means that the context ended before the request was sent.
	CodeNotSent Code = "NOT_SENT"
	// CodeUnanswered means that the request was sent and no answer has come.
	CodeUnanswered Code = "UNANSWERED"
)

// The conditions that a caller may want to tell apart, for errors.Is.
var (
	ErrNotFound       = errors.New("key not found")
	ErrNotANumber     = errors.New("value is not a number")
	ErrOverflow       = errors.New("number out of range")
	ErrCompareFailed  = errors.New("comparison failed")
	ErrKeyEmpty       = errors.New("key is empty")
	ErrKeyTooLong     = errors.New("key is too long")
	ErrValueTooLarge  = errors.New("value is too large")
	ErrTxnTooLarge    = errors.New("transaction has too many parts")
	ErrTooLarge       = errors.New("request is too large")
	ErrAnswerTooLarge = errors.New("answer is too large")
	ErrKeySpaceFull   = errors.New("key space is full")
	ErrAnswersFull    = errors.New("no room for more answers")
	ErrClientsFull    = errors.New("as many clients as there may be")
	ErrInvalid        = errors.New("invalid request")
	// ErrClientExpired means that this client is gone; the outcome is what its tombstone says of the request.
	ErrClientExpired = errors.New("client expired")
	// ErrUnknownClient means that the cluster knows nothing of this client, not even that it expired.
	ErrUnknownClient = errors.New("client unknown")
	ErrWrongCluster  = errors.New("another cluster")
	// ErrUnavailable means that the cluster didn't take the request before the context ended.
	ErrUnavailable = errors.New("not available")
	ErrTooOld      = errors.New("state is older than asked for")
	// ErrCancelled means that the caller cancelled the request in time.
	ErrCancelled = errors.New("request cancelled")
	// ErrAnswerGone means that the request was decided, that the outcome is known, and that the answer isn't kept.
	ErrAnswerGone = errors.New("answer no longer kept")
	ErrClosed     = errors.New("client closed")
)

// kinds maps codes to the conditions they are instances of.
var kinds = map[Code][]error{
	CodeNotFound:       {ErrNotFound},
	CodeCompareFailed:  {ErrCompareFailed},
	CodeClosed:         {ErrClosed},
	CodeUnavailable:    {ErrUnavailable},
	CodeWindowFull:     {ErrUnavailable},
	CodeTooManyWaiting: {ErrUnavailable},
	CodeNotSent:        {ErrUnavailable},

	wireCode(kvoncev1.Code_NOT_LEADER):        {ErrUnavailable},
	wireCode(kvoncev1.Code_BUSY):              {ErrUnavailable},
	wireCode(kvoncev1.Code_TRANSFERRING):      {ErrUnavailable},
	wireCode(kvoncev1.Code_NOT_READY):         {ErrUnavailable},
	wireCode(kvoncev1.Code_SHUTTING_DOWN):     {ErrUnavailable},
	wireCode(kvoncev1.Code_WINDOW_EXCEEDED):   {ErrUnavailable},
	wireCode(kvoncev1.Code_OUT_OF_ORDER):      {ErrUnavailable},
	wireCode(kvoncev1.Code_WRONG_CLUSTER):     {ErrWrongCluster},
	wireCode(kvoncev1.Code_INVALID_ARGUMENT):  {ErrInvalid},
	wireCode(kvoncev1.Code_INVALID):           {ErrInvalid},
	wireCode(kvoncev1.Code_WRONG_SECRET):      {ErrInvalid},
	wireCode(kvoncev1.Code_UNKNOWN_COMMAND):   {ErrInvalid},
	wireCode(kvoncev1.Code_INVALID_SETTING):   {ErrInvalid},
	wireCode(kvoncev1.Code_INVALID_COMMAND):   {ErrInvalid},
	wireCode(kvoncev1.Code_REQUEST_TOO_LARGE): {ErrTooLarge},
	wireCode(kvoncev1.Code_COMMAND_TOO_LARGE): {ErrTooLarge},
	wireCode(kvoncev1.Code_TOO_OLD):           {ErrTooOld},
	wireCode(kvoncev1.Code_CLIENT_EXPIRED):    {ErrClientExpired},
	wireCode(kvoncev1.Code_UNKNOWN_CLIENT):    {ErrUnknownClient},
	wireCode(kvoncev1.Code_ANSWER_GONE):       {ErrAnswerGone},
	wireCode(kvoncev1.Code_ANSWERS_FULL):      {ErrAnswersFull},
	wireCode(kvoncev1.Code_ANSWER_TOO_LARGE):  {ErrAnswerTooLarge},
	wireCode(kvoncev1.Code_CANCELLED):         {ErrCancelled},
	wireCode(kvoncev1.Code_CLIENTS_FULL):      {ErrClientsFull},
	wireCode(kvoncev1.Code_NOT_A_NUMBER):      {ErrNotANumber},
	wireCode(kvoncev1.Code_OVERFLOW):          {ErrOverflow},
	wireCode(kvoncev1.Code_KEY_EMPTY):         {ErrKeyEmpty},
	wireCode(kvoncev1.Code_KEY_TOO_LONG):      {ErrKeyTooLong},
	wireCode(kvoncev1.Code_VALUE_TOO_LARGE):   {ErrValueTooLarge},
	wireCode(kvoncev1.Code_TXN_TOO_LARGE):     {ErrTxnTooLarge},
	wireCode(kvoncev1.Code_KEY_SPACE_FULL):    {ErrKeySpaceFull},
}

func wireCode(c kvoncev1.Code) Code { return Code(c.String()) }

// Error is what calls fail with. Outcome is what is known about the request as a whole, never about one copy of it.
type Error struct {
	// Op is the call, such as "put".
	Op string
	// Code says why.
	Code Code
	// Outcome says what is known about the effect. For a read, which has none, it is NotApplied.
	Outcome Outcome
	// Message is for people.
	Message string
	// RetryAfter is when the cluster wants to be asked again; 0 when it didn't say.
	RetryAfter time.Duration
	// Limit is the limit that was passed, with the codes that have one.
	Limit uint64
	// Meta tells where the failure was decided; zero when it wasn't decided in the log.
	Meta Meta
	// Cause is what ended the call from outside: the cause of its context, for one. Often nil.
	Cause error
}

// Error says what failed, why, and what is known about the effect.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	b.WriteString(string(e.Code))
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	fmt.Fprintf(&b, " (outcome %v)", e.Outcome)
	return b.String()
}

// Is reports whether the error is an instance of a condition such as ErrNotFound.
func (e *Error) Is(target error) bool {
	if target == ErrAnswerGone && e.Outcome == Applied {
		return true // an applied request with an error has lost its answer, whatever the code
	}
	return slices.Contains(kinds[e.Code], target)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// OutcomeOf returns what an error of this package says about the effect of the call that returned it. It is Applied
// for nil, and Unknown for an error that isn't from this package.
func OutcomeOf(err error) Outcome {
	var e *Error
	switch {
	case err == nil:
		return Applied
	case errors.As(err, &e):
		return e.Outcome
	}
	return Unknown
}

// contextError returns what ended a context, such that errors.Is finds both the cause and the plain error.
func contextError(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// responseError makes the error that a response stands for.
func responseError(c *call, node string, r *kvoncev1.Response, o Outcome) *Error {
	return &Error{
		Op: c.op, Code: wireCode(r.GetCode()), Outcome: o, Message: r.GetMessage(), Limit: r.GetLimit(),
		RetryAfter: time.Duration(r.GetRetryAfterMs()) * time.Millisecond, Meta: metaOf(node, r),
	}
}
