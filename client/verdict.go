package client

import "github.com/kvonce/kvonce/transport/kvoncev1"

// verdict is what a response to one copy means for its request.
type verdict uint8

const (
	// refused: this copy did nothing; another may be sent.
	refused verdict = iota
	// hopeless: this copy did nothing, and another would fare the same.
	hopeless
	// lost: nobody knows what became of this copy; another is sent to find out.
	lost
	// answered: the request took effect and this is its answer.
	answered
	// gone: the request took effect; the answer isn't kept.
	gone
	// failed: decided without effect, for good.
	failed
	// expired: the client is gone and the request never ran, so it may run under another.
	expired
	// unknowable: nothing more can be learned.
	unknowable
)

// final reports whether the log has decided on the request, or never will.
func (v verdict) final() bool { return v >= answered }

// verdictOf reads a response to a copy of a write, a cancel or an unregistered command. What it doesn't understand it
// takes for the less certain.
func verdictOf(r *kvoncev1.Response) verdict {
	switch r.GetOutcome() {
	case kvoncev1.Outcome_APPLIED:
		if r.GetCode() == kvoncev1.Code_OK && r.GetCommand() != nil {
			return answered
		}
		return gone
	case kvoncev1.Outcome_NOT_APPLIED:
		if r.GetCode() == kvoncev1.Code_CLIENT_EXPIRED {
			return expired
		}
		return failed
	case kvoncev1.Outcome_REFUSED:
		if isHopeless(r.GetCode()) {
			return hopeless
		}
		return refused
	}
	if isUnknowable(r.GetCode()) {
		return unknowable
	}
	return lost
}

// isHopeless tells the refusals that depend on the request alone.
func isHopeless(c kvoncev1.Code) bool {
	switch c {
	case kvoncev1.Code_INVALID_ARGUMENT, kvoncev1.Code_REQUEST_TOO_LARGE, kvoncev1.Code_INVALID, kvoncev1.Code_WRONG_SECRET:
		return true
	}
	return false
}

// isUnknowable tells the unknown outcomes that asking again can't change.
func isUnknowable(c kvoncev1.Code) bool {
	switch c {
	case kvoncev1.Code_STALE_SEQUENCE, kvoncev1.Code_SEQUENCE_REUSED, kvoncev1.Code_UNKNOWN_CLIENT, kvoncev1.Code_CLIENT_EXPIRED:
		return true
	}
	return false
}

// endsIdentity tells the decisions after which a client can't go on as who it is.
func endsIdentity(c kvoncev1.Code) bool {
	switch c {
	case kvoncev1.Code_CLIENT_EXPIRED, kvoncev1.Code_UNKNOWN_CLIENT, kvoncev1.Code_WRONG_SECRET:
		return true
	}
	return false
}
