package transport

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// A bad hello is answered in the stream, never by its status (G4, G8: nothing is guessed about a caller).
func TestHelloIsJudged(t *testing.T) {
	tests := []struct {
		name  string
		first *kvoncev1.SessionRequest
		want  kvoncev1.Code
	}{
		{"anonymous", &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{}}, kvoncev1.Code_OK},
		{"registered", &kvoncev1.SessionRequest{Hello: registeredHello()}, kvoncev1.Code_OK},
		{"missing", writes(1), kvoncev1.Code_INVALID_ARGUMENT},
		{"no secret", &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{ClientId: 7}}, kvoncev1.Code_INVALID_ARGUMENT},
		{"long secret", &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{ClientId: 7, Secret: make([]byte, 17)}}, kvoncev1.Code_INVALID_ARGUMENT},
		{"secret of nobody", &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{Secret: make([]byte, 16)}}, kvoncev1.Code_INVALID_ARGUMENT},
		{"short incarnation", &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{Incarnation: []byte("x")}}, kvoncev1.Code_INVALID_ARGUMENT},
		{"other cluster", &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{Incarnation: make([]byte, 16)}}, kvoncev1.Code_WRONG_CLUSTER},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newScripted()
			s := serveTest(t, b, nil)
			stream, w := s.open(t, tt.first)
			require.Equal(t, tt.want, w.GetCode(), w.GetMessage())
			if tt.want == kvoncev1.Code_OK {
				require.NoError(t, stream.CloseSend())
			}
			requireEnd(t, stream, codes.OK)
			require.Empty(t, b.kept())
		})
	}
}

func TestHelloHasADeadline(t *testing.T) {
	s := serveTest(t, newScripted(), func(l *limits) { l.helloTimeout = 10 * time.Millisecond })
	stream, w := s.open(t, nil)
	require.Equal(t, kvoncev1.Code_INVALID_ARGUMENT, w.GetCode())
	requireEnd(t, stream, codes.OK)
}

func TestSecondHelloEndsTheStream(t *testing.T) {
	s := serveTest(t, newScripted(), nil)
	stream := s.session(t)
	require.NoError(t, stream.Send(&kvoncev1.SessionRequest{Hello: registeredHello()}))
	requireEnd(t, stream, codes.InvalidArgument)
}

// Requests may ride in the first frame, and each knows whose it is: the hash of the secret, never the secret.
func TestCallerComesFromTheHello(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream, _ := s.open(t, &kvoncev1.SessionRequest{Hello: registeredHello(), Requests: writes(5).GetRequests()})
	w := b.waitFor(t, 1)[0]
	require.Equal(t, Caller{ClientID: 7, Verifier: sha256.Sum256([]byte("sixteen byte key"))}, w.caller)
	w.ok(1)
	require.EqualValues(t, 5, answers(t, stream, 1)[0].GetTag())
}

// What is wrong with a request is a response with the outcome refused (G4); the stream goes on.
func TestBadRequestsAreRefusedInTheStream(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream, _ := s.open(t, &kvoncev1.SessionRequest{Hello: &kvoncev1.Hello{}, Requests: []*kvoncev1.Request{
		{Tag: 1},
		write(2),
		{Tag: 3, Kind: &kvoncev1.Request_Cancel{}},
		{Tag: 4, Kind: &kvoncev1.Request_Touch{}},
		{Tag: 5, Kind: &kvoncev1.Request_Close{}},
		{Tag: 6, Kind: &kvoncev1.Request_Read{}},
	}})
	for _, r := range answers(t, stream, 5) {
		require.Equal(t, kvoncev1.Code_INVALID_ARGUMENT, r.GetCode())
		require.Equal(t, kvoncev1.Outcome_REFUSED, r.GetOutcome())
		require.NotEmpty(t, r.GetMessage())
	}
	kept := b.waitFor(t, 1)
	require.Len(t, kept, 1)
	kept[0].ok(1)
	require.EqualValues(t, 6, answers(t, stream, 1)[0].GetTag())
}

// Answers come in the order in which they are given, not in that of the requests.
func TestAnswersInAnyOrder(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1, 2, 3, 4)))
	kept := b.waitFor(t, 4)
	for _, i := range []int{2, 0, 3, 1} {
		kept[i].ok(1)
	}
	var tags []uint64
	for _, r := range answers(t, stream, 4) {
		require.Equal(t, r.GetTag(), r.GetIndex(), "the answer belongs to its request")
		tags = append(tags, r.GetTag())
	}
	require.Equal(t, []uint64{3, 1, 4, 2}, tags)
}

// A refusal with the tag of another request would be taken for an answer to it, and its outcome for final; so
// the stream ends and leaves both unresolved (G4).
func TestDuplicateTagEndsTheStream(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1, 2, 1)))
	requireEnd(t, stream, codes.InvalidArgument)
	require.Len(t, b.kept(), 2)
}

func TestTagIsFreeOnceAnswered(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream := s.session(t)
	for i := range 3 {
		require.NoError(t, stream.Send(writes(1)))
		b.waitFor(t, i+1)[i].ok(1)
		require.EqualValues(t, 1, answers(t, stream, 1)[0].GetTag())
	}
}

// A second answer to the same request goes nowhere.
func TestSecondAnswerIsDropped(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1, 2)))
	kept := b.waitFor(t, 2)
	kept[0].ok(1)
	kept[0].ok(1)
	kept[1].ok(1)
	require.NoError(t, stream.CloseSend())
	got := answers(t, stream, 2)
	require.EqualValues(t, 1, got[0].GetTag())
	require.EqualValues(t, 2, got[1].GetTag())
	requireEnd(t, stream, codes.OK)
}

// A client that has sent its last request still gets every answer.
func TestHalfClosedStreamGetsItsAnswers(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1, 2)))
	require.NoError(t, stream.CloseSend())
	for _, w := range b.waitFor(t, 2) {
		w.ok(1)
	}
	require.Len(t, answers(t, stream, 2), 2)
	requireEnd(t, stream, codes.OK)
}

// At the limit of unanswered requests the session stops reading, and goes on with each answer.
func TestSessionStopsReadingAtItsLimit(t *testing.T) {
	const limit = 8
	b := newScripted()
	s := serveTest(t, b, func(l *limits) { l.inFlight = limit })
	stream := s.session(t)
	for tag := uint64(1); tag <= 4*limit; tag++ {
		require.NoError(t, stream.Send(writes(tag)))
	}
	for n := limit; n <= 4*limit; n++ {
		kept := b.waitFor(t, n)
		require.Len(t, kept, n, "one answer makes room for one request")
		kept[n-limit].ok(1)
		answers(t, stream, 1)
	}
}

// When a client goes away, late answers go nowhere and nobody who gives one waits.
func TestLateAnswersOfADroppedStream(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	leave := s.sessionToLeave(t, 1, 2, 3)
	kept := b.waitFor(t, 3)
	leave()
	require.Eventually(t, func() bool { return s.server.Sessions() == 0 }, patience, time.Millisecond)
	for _, w := range kept {
		w.ok(1 << 20)
	}
	require.NoError(t, s.session(t).CloseSend())
}

// A client that goes away while its session waits for room leaves nothing behind: the stop of the server, which
// waits for all goroutines of sessions, returns.
func TestDroppedStreamAtItsLimit(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, func(l *limits) { l.inFlight = 1 })
	leave := s.sessionToLeave(t, 1, 2)
	b.waitFor(t, 1)
	leave()
	require.Eventually(t, func() bool { return s.server.Sessions() == 0 }, patience, time.Millisecond)
	s.server.GracefulStop(t.Context())
	require.Len(t, b.kept(), 1)
}

// sessionToLeave opens a stream with these writes, which the returned function drops.
func (s *service) sessionToLeave(t *testing.T, tags ...uint64) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := kvoncev1.NewKVClient(s.conn).Session(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&kvoncev1.SessionRequest{Hello: registeredHello(), Requests: writes(tags...).GetRequests()}))
	return cancel
}
