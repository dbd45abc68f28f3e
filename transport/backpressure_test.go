package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// blockSender has a session's sender wait for a client that reads nothing: the first answer is more than
// flow control lets through, the second finds no room.
func blockSender(t *testing.T, b *scripted, stream kvoncev1.KV_SessionClient) {
	t.Helper()
	require.NoError(t, stream.Send(writes(1, 2)))
	for _, w := range b.waitFor(t, 2) {
		w.ok(512 << 10)
	}
}

// What is answered while a frame is on its way leaves as one frame.
func TestAnswersAreCoalesced(t *testing.T) {
	const n = 100
	b := newScripted()
	s := serveTest(t, b, func(l *limits) { l.frameBytes = 64 << 10 })
	stream := s.session(t)
	blockSender(t, b, stream)
	frame := &kvoncev1.SessionRequest{}
	for tag := uint64(3); tag < 3+n; tag++ {
		frame.Requests = append(frame.Requests, write(tag))
	}
	require.NoError(t, stream.Send(frame))
	for _, w := range b.waitFor(t, 2+n)[2:] {
		w.ok(1)
	}
	sizes := []int{}
	for got := 0; got < 2+n; {
		f, err := stream.Recv()
		require.NoError(t, err)
		got += len(f.GetResponses())
		sizes = append(sizes, len(f.GetResponses()))
	}
	require.Equal(t, []int{1, 1, n}, sizes, "responses in each frame")
}

func TestCutSplitsByBytes(t *testing.T) {
	tests := []struct {
		sizes []int
		want  []int // answers in each frame
	}{
		{[]int{10}, []int{1}},
		{[]int{50, 50, 1}, []int{2, 1}},
		{[]int{500}, []int{1}},
		{[]int{1, 500, 1, 1}, []int{1, 1, 2}},
		{[]int{99, 2, 98, 1}, []int{1, 2, 1}},
	}
	for _, tt := range tests {
		var batch []answer
		for _, size := range tt.sizes {
			batch = append(batch, answer{size: size})
		}
		var got []int
		for len(batch) > 0 {
			var frame []answer
			frame, batch = cut(batch, 100)
			got = append(got, len(frame))
		}
		require.Equal(t, tt.want, got, "%v", tt.sizes)
	}
}

// A frame that takes no more than its limit by our count is no larger when it is encoded.
func TestAnswerSizeIsAnUpperBound(t *testing.T) {
	o := newOutbox(defaultLimits())
	for _, size := range []int{0, 100, 200, 1 << 14, 1 << 20, 4 << 20} {
		r := &kvoncev1.Response{Message: string(make([]byte, size))}
		a := o.weigh(r)
		frame := &kvoncev1.SessionResponse{Responses: []*kvoncev1.Response{r, r}}
		require.LessOrEqual(t, proto.Size(frame), 2*a.size)
	}
}

// A client that takes nothing while its outbox is full loses the stream, and learns so when it reads again.
func TestSlowReaderIsEnded(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, func(l *limits) {
		l.outboxBytes = 1 << 10
		l.stallTimeout = 20 * time.Millisecond
	})
	stream := s.session(t)
	blockSender(t, b, stream)
	require.Eventually(t, func() bool { return s.server.Sessions() == 0 }, patience, time.Millisecond)
	require.EqualValues(t, 1, answers(t, stream, 1)[0].GetTag())
	requireEnd(t, stream, codes.ResourceExhausted)
}

// Beyond the size that an outbox may ever hold, a read is refused, which is true of it (G4), and any other
// answer costs the stream.
func TestOutboxNeverPassesItsLimit(t *testing.T) {
	l := defaultLimits()
	l.heldBytes = 10_000
	o := newOutbox(l)
	for tag := range uint64(4) {
		require.NoError(t, o.admit(tag))
	}
	big := func() *kvoncev1.ReadResult {
		return &kvoncev1.ReadResult{Kvs: []*kvoncev1.KeyValue{{Value: make([]byte, 6000)}}}
	}
	read := func() *kvoncev1.Response {
		return &kvoncev1.Response{Code: kvoncev1.Code_OK, Result: &kvoncev1.Response_Read{Read: big()}}
	}
	require.NoError(t, o.answer(0, read()))
	require.NoError(t, o.answer(1, read()))
	got := o.take(nil)
	require.Len(t, got, 2)
	require.Equal(t, kvoncev1.Code_OK, got[0].response.GetCode())
	require.Equal(t, kvoncev1.Code_BUSY, got[1].response.GetCode())
	require.Equal(t, kvoncev1.Outcome_REFUSED, got[1].response.GetOutcome())
	require.EqualValues(t, 1, got[1].response.GetTag())

	command := &kvoncev1.Response{Code: kvoncev1.Code_OK, Message: string(make([]byte, 6000))}
	require.ErrorIs(t, o.answer(2, command), errOverflow)

	o.sent(got)
	require.NoError(t, o.answer(3, read()))
	require.Equal(t, kvoncev1.Code_OK, o.take(nil)[0].response.GetCode())
}

func TestOverflowEndsTheStream(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, func(l *limits) { l.heldBytes = 1000 })
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1)))
	b.waitFor(t, 1)[0].reply(&kvoncev1.Response{Code: kvoncev1.Code_OK, Message: string(make([]byte, 2000))})
	requireEnd(t, stream, codes.ResourceExhausted)
}

// While its outbox is over the limit, a session takes no further request, and then all of them.
func TestSessionStopsReadingWhileItsOutboxIsFull(t *testing.T) {
	o := newOutbox(limits{inFlight: 10, outboxBytes: 1000, heldBytes: 1 << 20, answerBytes: 1 << 20})
	require.NoError(t, o.admit(1))
	require.NoError(t, o.answer(1, &kvoncev1.Response{Message: string(make([]byte, 1000))}))
	require.ErrorIs(t, o.admit(2), errNoRoom)
	batch := o.take(nil)
	require.ErrorIs(t, o.admit(2), errNoRoom, "taken is not sent")
	o.sent(batch)
	require.Len(t, o.room, 1)
	require.NoError(t, o.admit(2))
	require.False(t, o.idle())
	o.close()
	require.ErrorIs(t, o.admit(3), errOutboxClosed)
}

// An answer that no message can hold keeps its outcome (G4).
func TestTooLargeAnswerKeepsItsOutcome(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, func(l *limits) { l.answerBytes = 1000 })
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(4)))
	b.waitFor(t, 1)[0].ok(2000)
	r := answers(t, stream, 1)[0]
	require.Equal(t, kvoncev1.Code_ANSWER_GONE, r.GetCode())
	require.Equal(t, kvoncev1.Outcome_APPLIED, r.GetOutcome())
	require.EqualValues(t, 4, r.GetIndex())
	require.EqualValues(t, 1000, r.GetLimit())
}

// The largest answer there may be does fit a message, and a frame that is larger ends the stream.
func TestMessageLimits(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, func(l *limits) { l.heldBytes *= 2 })
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1)))
	b.waitFor(t, 1)[0].ok(s.server.limits.answerBytes - 100)
	require.Equal(t, kvoncev1.Code_OK, answers(t, stream, 1)[0].GetCode())

	large := write(2)
	large.GetWrite().Salt = make([]byte, MaxMessageBytes)
	require.NoError(t, stream.Send(&kvoncev1.SessionRequest{Requests: []*kvoncev1.Request{large}}))
	requireEnd(t, stream, codes.ResourceExhausted)
}

func TestStallWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second
		var calls []time.Duration
		begin := time.Now()
		w := newStallWatch(limit, func() bool {
			calls = append(calls, time.Since(begin))
			return len(calls) == 2
		})
		w.start()
		<-time.After(limit - 1)
		w.stop()
		<-time.After(2 * limit)
		synctest.Wait()
		require.Empty(t, calls, "what was stopped in time is no stall")

		begin = time.Now()
		w.start()
		<-time.After(10 * limit)
		synctest.Wait()
		require.Equal(t, []time.Duration{limit, 2 * limit}, calls, "it asks until it is told that it is one")
		w.stop()
	})
}
