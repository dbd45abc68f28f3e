package transport

import "github.com/kvonce/kvonce/transport/kvoncev1"

// refusal says what is wrong with a request as far as the stream can tell, or nil. The fields of a request are
// for the backend to judge.
func (s *Server) refusal(c Caller, r *kvoncev1.Request) *kvoncev1.Response {
	switch r.GetKind().(type) {
	case nil:
		return refuse(kvoncev1.Code_INVALID_ARGUMENT, "request: no kind, or one that this node doesn't know")
	case *kvoncev1.Request_Write, *kvoncev1.Request_Cancel, *kvoncev1.Request_Touch, *kvoncev1.Request_Close:
		if c.ClientID == 0 {
			return refuse(kvoncev1.Code_INVALID_ARGUMENT, "request: this kind needs a client id in the hello")
		}
	}
	if s.isDraining() {
		return refuse(kvoncev1.Code_SHUTTING_DOWN, "the node is shutting down")
	}
	return nil
}

func refuse(c kvoncev1.Code, message string) *kvoncev1.Response {
	return &kvoncev1.Response{Code: c, Outcome: kvoncev1.Outcome_REFUSED, Message: message}
}

// withoutResult is r without what made it too large to send. Nothing is cut in silence: the code says that the
// answer is gone and the outcome stays.
func withoutResult(r *kvoncev1.Response, limit int) *kvoncev1.Response {
	return &kvoncev1.Response{
		Tag:           r.GetTag(),
		Code:          kvoncev1.Code_ANSWER_GONE,
		Outcome:       r.GetOutcome(),
		Message:       "the answer is larger than a message may be",
		Replayed:      r.GetReplayed(),
		Index:         r.GetIndex(),
		Term:          r.GetTerm(),
		ClusterTimeMs: r.GetClusterTimeMs(),
		Limit:         uint64(limit),
	}
}
