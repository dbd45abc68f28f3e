package client

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Every code and outcome that a node can send has a meaning, and none claims more than the response: only the log's
// decisions are final (outcome rules, and STALE, REUSED and UNKNOWN_CLIENT, of which nothing more can be learned).
func TestVerdicts(t *testing.T) {
	for number := range kvoncev1.Code_name {
		code := kvoncev1.Code(number)
		for o := range kvoncev1.Outcome_name {
			outcome := kvoncev1.Outcome(o)
			v := verdictOf(&kvoncev1.Response{Code: code, Outcome: outcome})
			switch outcome {
			case kvoncev1.Outcome_APPLIED:
				require.Equal(t, gone, v, "%v %v", code, outcome)
			case kvoncev1.Outcome_NOT_APPLIED:
				require.Contains(t, []verdict{failed, expired}, v, "%v %v", code, outcome)
				require.Equal(t, code == kvoncev1.Code_CLIENT_EXPIRED, v == expired)
			case kvoncev1.Outcome_REFUSED:
				require.Contains(t, []verdict{refused, hopeless}, v, "%v %v", code, outcome)
				require.False(t, v.final())
			default:
				require.Contains(t, []verdict{lost, unknowable}, v, "%v %v", code, outcome)
			}
		}
	}
	withAnswer := &kvoncev1.Response{Code: kvoncev1.Code_OK, Outcome: kvoncev1.Outcome_APPLIED,
		Result: &kvoncev1.Response_Command{Command: &kvoncev1.CommandResult{}}}
	require.Equal(t, answered, verdictOf(withAnswer))
	require.Equal(t, lost, verdictOf(&kvoncev1.Response{Code: 999, Outcome: 99}), "from a node of a later version")
	require.Equal(t, refused, verdictOf(&kvoncev1.Response{Code: 999, Outcome: kvoncev1.Outcome_REFUSED}))
}

// Every code of the wire that a caller can see is one of the conditions, except those that say why an outcome is unknown.
func TestEveryCodeIsACondition(t *testing.T) {
	without := map[kvoncev1.Code]bool{
		kvoncev1.Code_CODE_UNSPECIFIED: true, kvoncev1.Code_OK: true, kvoncev1.Code_LEADERSHIP_LOST: true, kvoncev1.Code_TIMEOUT: true,
		kvoncev1.Code_STALE_SEQUENCE: true, kvoncev1.Code_SEQUENCE_REUSED: true, kvoncev1.Code_VERIFIER_USED: true,
	}
	for number := range kvoncev1.Code_name {
		code := kvoncev1.Code(number)
		require.Equal(t, !without[code], len(kinds[wireCode(code)]) > 0, "%v", code)
	}
}

func TestOutcomeOf(t *testing.T) {
	require.Equal(t, Applied, OutcomeOf(nil))
	require.Equal(t, Unknown, OutcomeOf(errors.New("from elsewhere")))
	require.Equal(t, Unknown, OutcomeOf(&UnresolvedError{}))
	require.Equal(t, NotApplied, OutcomeOf(&UnknownError{err: &Error{Outcome: NotApplied}}), "what the inner error says")
	require.Equal(t, []string{"applied", "not_applied", "unknown"}, []string{Applied.String(), NotApplied.String(), Unknown.String()})
}

func TestErrorText(t *testing.T) {
	err := &Error{Op: "put", Code: CodeUnavailable, Outcome: NotApplied, Message: "no connection", Cause: context.DeadlineExceeded}
	require.EqualError(t, err, "put: UNAVAILABLE: no connection: context deadline exceeded (outcome not_applied)")
	require.NotErrorIs(t, err, ErrNotFound)
	require.EqualError(t, &Error{Op: "get", Code: CodeNotFound, Outcome: NotApplied}, "get: NOT_FOUND (outcome not_applied)")
}

// A nil *Error must not become an error.
func TestNilErrors(t *testing.T) {
	require.NoError(t, asError(nil))
	require.NoError(t, asUnresolved(nil))
}
