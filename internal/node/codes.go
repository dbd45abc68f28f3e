package node

import (
	"errors"
	"fmt"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/registry"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// registryCodes maps what the registry decides to the codes of the wire. Done isn't here: its answer tells.
var registryCodes = map[registry.Code]kvoncev1.Code{
	registry.Invalid:        kvoncev1.Code_INVALID,
	registry.WrongSecret:    kvoncev1.Code_WRONG_SECRET,
	registry.Expired:        kvoncev1.Code_CLIENT_EXPIRED,
	registry.UnknownClient:  kvoncev1.Code_UNKNOWN_CLIENT,
	registry.Stale:          kvoncev1.Code_STALE_SEQUENCE,
	registry.AnswerGone:     kvoncev1.Code_ANSWER_GONE,
	registry.Reused:         kvoncev1.Code_SEQUENCE_REUSED,
	registry.WindowExceeded: kvoncev1.Code_WINDOW_EXCEEDED,
	registry.OutOfOrder:     kvoncev1.Code_OUT_OF_ORDER,
	registry.AnswersFull:    kvoncev1.Code_ANSWERS_FULL,
	registry.AnswerTooLarge: kvoncev1.Code_ANSWER_TOO_LARGE,
	registry.Cancelled:      kvoncev1.Code_CANCELLED,
	registry.VerifierUsed:   kvoncev1.Code_VERIFIER_USED,
	registry.ClientsFull:    kvoncev1.Code_CLIENTS_FULL,
}

// failureCodes maps why a command had no effect.
var failureCodes = map[fsm.Failure]kvoncev1.Code{
	fsm.NotANumber:      kvoncev1.Code_NOT_A_NUMBER,
	fsm.Overflow:        kvoncev1.Code_OVERFLOW,
	fsm.KeyEmpty:        kvoncev1.Code_KEY_EMPTY,
	fsm.KeyTooLong:      kvoncev1.Code_KEY_TOO_LONG,
	fsm.ValueTooLarge:   kvoncev1.Code_VALUE_TOO_LARGE,
	fsm.TxnTooLarge:     kvoncev1.Code_TXN_TOO_LARGE,
	fsm.CommandTooLarge: kvoncev1.Code_COMMAND_TOO_LARGE,
	fsm.KeySpaceFull:    kvoncev1.Code_KEY_SPACE_FULL,
	fsm.UnknownCommand:  kvoncev1.Code_UNKNOWN_COMMAND,
	fsm.InvalidSetting:  kvoncev1.Code_INVALID_SETTING,
	fsm.InvalidCommand:  kvoncev1.Code_INVALID_COMMAND,
	fsm.NotReady:        kvoncev1.Code_NOT_READY,
}

// messages says in words what a code means; %d is the limit, where there is one.
var messages = map[kvoncev1.Code]string{
	kvoncev1.Code_INVALID:           "sequence or first outstanding sequence, or a time to live, is out of range",
	kvoncev1.Code_WRONG_SECRET:      "the secret isn't the one this client was registered with",
	kvoncev1.Code_CLIENT_EXPIRED:    "the client has expired or was closed",
	kvoncev1.Code_UNKNOWN_CLIENT:    "no client has this id, and no record of it is kept",
	kvoncev1.Code_STALE_SEQUENCE:    "the sequence lies below the first outstanding one",
	kvoncev1.Code_ANSWER_GONE:       "the request was decided before, but its answer is no longer kept",
	kvoncev1.Code_SEQUENCE_REUSED:   "the sequence was used for another request",
	kvoncev1.Code_WINDOW_EXCEEDED:   "the sequence is too far ahead of the first outstanding one: the window is %d",
	kvoncev1.Code_OUT_OF_ORDER:      "the client is ordered and this sequence isn't next",
	kvoncev1.Code_ANSWERS_FULL:      "the answer has no room: at most %d bytes of answers are held",
	kvoncev1.Code_ANSWER_TOO_LARGE:  "the answer is too large to be kept: at most %d bytes are allowed",
	kvoncev1.Code_CANCELLED:         "the request was cancelled before it ran",
	kvoncev1.Code_VERIFIER_USED:     "the verifier belongs to another client",
	kvoncev1.Code_CLIENTS_FULL:      "the cluster has %d clients, as many as it may",
	kvoncev1.Code_NOT_A_NUMBER:      "the value isn't a decimal number of 64 bits",
	kvoncev1.Code_OVERFLOW:          "the sum doesn't fit 64 bits",
	kvoncev1.Code_KEY_EMPTY:         "the key is empty",
	kvoncev1.Code_KEY_TOO_LONG:      "the key is too long: at most %d bytes are allowed (setting max_key_bytes)",
	kvoncev1.Code_VALUE_TOO_LARGE:   "the value is too large: at most %d bytes are allowed (setting max_value_bytes)",
	kvoncev1.Code_TXN_TOO_LARGE:     "the transaction has too many parts: at most %d are allowed (setting max_txn_ops)",
	kvoncev1.Code_COMMAND_TOO_LARGE: "the command is too large: at most %d bytes are allowed (setting max_request_bytes)",
	kvoncev1.Code_KEY_SPACE_FULL:    "the key space is full: at most %d bytes are allowed (setting key_space_bytes); deletes go on",
	kvoncev1.Code_UNKNOWN_COMMAND:   "the command is of a kind that this cluster doesn't know",
	kvoncev1.Code_INVALID_SETTING:   "the value of the setting is out of range",
	kvoncev1.Code_INVALID_COMMAND:   "the command has a field that can't be",
	kvoncev1.Code_NOT_READY:         "the cluster has no leader or hasn't started yet",
}

// outcomes maps outcomes; the numbers are the same, and a test holds them together.
func outcomeTo(o registry.Outcome) kvoncev1.Outcome { return kvoncev1.Outcome(o) }

// refusals maps the errors of a proposal or read to code and outcome.
var refusals = []struct {
	err     error
	code    kvoncev1.Code
	outcome kvoncev1.Outcome
}{
	{errNotLeader, kvoncev1.Code_NOT_LEADER, kvoncev1.Outcome_REFUSED},
	{errBusy, kvoncev1.Code_BUSY, kvoncev1.Outcome_REFUSED},
	{errTransferring, kvoncev1.Code_TRANSFERRING, kvoncev1.Outcome_REFUSED},
	{errNotReady, kvoncev1.Code_NOT_READY, kvoncev1.Outcome_REFUSED},
	{errShuttingDown, kvoncev1.Code_SHUTTING_DOWN, kvoncev1.Outcome_REFUSED},
	{errTooLarge, kvoncev1.Code_REQUEST_TOO_LARGE, kvoncev1.Outcome_REFUSED},
	{errTooOld, kvoncev1.Code_TOO_OLD, kvoncev1.Outcome_REFUSED},
	{errLeadershipLost, kvoncev1.Code_LEADERSHIP_LOST, kvoncev1.Outcome_UNKNOWN},
	{errTimeout, kvoncev1.Code_TIMEOUT, kvoncev1.Outcome_UNKNOWN},
}

// responseToError makes the response for a request that the log didn't decide. An error that isn't in the table is
// unknown: claiming less than one knows is never wrong.
func responseToError(err error) *kvoncev1.Response {
	out := &kvoncev1.Response{Code: kvoncev1.Code_LEADERSHIP_LOST, Outcome: kvoncev1.Outcome_UNKNOWN, Message: err.Error()}
	var bad *invalidError
	if errors.As(err, &bad) {
		out.Code, out.Outcome = kvoncev1.Code_INVALID_ARGUMENT, kvoncev1.Outcome_REFUSED
		return out
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			out.Code, out.Outcome = r.code, r.outcome
			return out
		}
	}
	return out
}

// responseTo makes the response for what the log decided.
func responseTo(r *fsm.Result) *kvoncev1.Response {
	out := &kvoncev1.Response{Outcome: outcomeTo(r.Outcome), Replayed: r.Replayed, Index: r.Index, Term: r.Term,
		RetryAfterMs: r.RetryAfter, ClusterTimeMs: r.Time, ExpectedSequence: r.Expected, Limit: r.Limit}
	if r.Code != registry.Done {
		out.Code = registryCodes[r.Code]
		out.Message = message(out.Code, r.Limit)
		return out
	}
	out.Code = kvoncev1.Code_OK
	if r.Bytes == nil {
		return out
	}
	a, err := fsm.DecodeAnswer(r.Bytes)
	if err != nil {
		out.Code, out.Message = kvoncev1.Code_ANSWER_GONE, err.Error()
		return out
	}
	if a.Failure != fsm.NoFailure {
		out.Code, out.Limit = failureCodes[a.Failure], a.Limit
		out.Message = message(out.Code, a.Limit)
		if a.Failure == fsm.InvalidSetting || a.Failure == fsm.InvalidCommand {
			out.Message += ": " + a.Detail
		}
		return out
	}
	out.Result = &kvoncev1.Response_Command{Command: commandResultTo(a)}
	return out
}

func message(code kvoncev1.Code, limit uint64) string {
	text := messages[code]
	if limit != 0 && text != "" {
		return formatLimit(text, limit)
	}
	return text
}

func formatLimit(text string, limit uint64) string {
	for i := 0; i+1 < len(text); i++ {
		if text[i] == '%' && text[i+1] == 'd' {
			return fmt.Sprintf(text, limit)
		}
	}
	return text
}
