package transport

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// patience is how long a test waits for something that should take no time.
const patience = 10 * time.Second

// work is a request as the backend got it.
type work struct {
	caller  Caller
	request *kvoncev1.Request
	reply   func(*kvoncev1.Response)
}

// ok answers a request with a result of so many bytes, of the kind that a read has.
func (w work) ok(size int) {
	w.reply(&kvoncev1.Response{
		Code:    kvoncev1.Code_OK,
		Outcome: kvoncev1.Outcome_APPLIED,
		Index:   w.request.GetTag(),
		Result: &kvoncev1.Response_Read{Read: &kvoncev1.ReadResult{
			Kvs: []*kvoncev1.KeyValue{{Key: []byte("k"), Value: make([]byte, size)}},
		}},
	})
}

// scripted is a backend that hands each request to the test, and welcomes only its own cluster.
type scripted struct {
	incarnation []byte
	do          func(work)

	mu   sync.Mutex
	work []work
}

func newScripted() *scripted {
	b := &scripted{incarnation: []byte("0123456789abcdef")}
	b.do = b.keep
	return b
}

func (b *scripted) keep(w work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work = append(b.work, w)
}

func (b *scripted) kept() []work {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]work(nil), b.work...)
}

// waitFor waits until the backend holds n requests.
func (b *scripted) waitFor(t *testing.T, n int) []work {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.kept()) >= n }, patience, time.Millisecond)
	return b.kept()
}

func (b *scripted) Welcome(h *kvoncev1.Hello) *kvoncev1.Welcome {
	w := &kvoncev1.Welcome{Code: kvoncev1.Code_OK, Incarnation: b.incarnation, NodeId: "n1"}
	if len(h.GetIncarnation()) > 0 && string(h.GetIncarnation()) != string(b.incarnation) {
		w.Code = kvoncev1.Code_WRONG_CLUSTER
	}
	return w
}

func (b *scripted) Do(c Caller, r *kvoncev1.Request, reply func(*kvoncev1.Response)) {
	b.do(work{caller: c, request: r, reply: reply})
}

func (b *scripted) Status(context.Context, *kvoncev1.StatusRequest) (*kvoncev1.StatusResponse, error) {
	return &kvoncev1.StatusResponse{NodeId: "n1"}, nil
}

func (b *scripted) ListClients(_ context.Context, r *kvoncev1.ListClientsRequest) (*kvoncev1.ListClientsResponse, error) {
	return &kvoncev1.ListClientsResponse{Clients: []*kvoncev1.ClientInfo{{Id: r.GetAfterId() + 1}}}, nil
}

func (b *scripted) GetSettings(context.Context, *kvoncev1.GetSettingsRequest) (*kvoncev1.GetSettingsResponse, error) {
	return &kvoncev1.GetSettingsResponse{Settings: []*kvoncev1.SettingInfo{{Name: "window"}}}, nil
}

func (b *scripted) TransferLeader(context.Context, *kvoncev1.TransferLeaderRequest) (*kvoncev1.TransferLeaderResponse, error) {
	return nil, status.Error(codes.FailedPrecondition, "not leader")
}

// service is a server under test and a connection to it.
type service struct {
	server *Server
	conn   *grpc.ClientConn
}

// serveTest starts a server whose limits were changed by the test, and stops it in the end.
func serveTest(t testing.TB, b Backend, change func(*limits)) *service {
	t.Helper()
	s := NewServer(b, ServerOptions{Logger: quiet()})
	if change != nil {
		change(&s.limits)
	}
	lis := bufconn.Listen(1 << 16)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }
	return &service{server: s, conn: startServer(t, s, lis, "passthrough:test", grpc.WithContextDialer(dial))}
}

func startServer(t testing.TB, s *Server, lis net.Listener, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	options = append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(2*MaxMessageBytes)))
	conn, err := grpc.NewClient(target, options...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.GracefulStop(ctx)
		require.NoError(t, <-served)
		require.Zero(t, s.Sessions())
	})
	return conn
}

// open opens a stream, sends the first frame, and returns the welcome.
func (s *service) open(t testing.TB, first *kvoncev1.SessionRequest) (kvoncev1.KV_SessionClient, *kvoncev1.Welcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	stream, err := kvoncev1.NewKVClient(s.conn).Session(ctx)
	require.NoError(t, err)
	if first != nil {
		require.NoError(t, stream.Send(first))
	}
	frame, err := stream.Recv()
	require.NoError(t, err)
	require.NotNil(t, frame.GetWelcome())
	return stream, frame.GetWelcome()
}

// session opens a stream of a registered client.
func (s *service) session(t testing.TB) kvoncev1.KV_SessionClient {
	t.Helper()
	stream, w := s.open(t, &kvoncev1.SessionRequest{Hello: registeredHello()})
	require.Equal(t, kvoncev1.Code_OK, w.GetCode())
	return stream
}

func registeredHello() *kvoncev1.Hello {
	return &kvoncev1.Hello{ClientId: 7, Secret: []byte("sixteen byte key")}
}

func write(tag uint64) *kvoncev1.Request {
	return &kvoncev1.Request{Tag: tag, Kind: &kvoncev1.Request_Write{Write: &kvoncev1.Write{Sequence: tag}}}
}

func writes(tags ...uint64) *kvoncev1.SessionRequest {
	frame := &kvoncev1.SessionRequest{}
	for _, tag := range tags {
		frame.Requests = append(frame.Requests, write(tag))
	}
	return frame
}

// answers receives frames until there are n responses.
func answers(t testing.TB, stream kvoncev1.KV_SessionClient, n int) []*kvoncev1.Response {
	t.Helper()
	var all []*kvoncev1.Response
	for len(all) < n {
		frame, err := stream.Recv()
		require.NoError(t, err)
		all = append(all, frame.GetResponses()...)
	}
	return all
}

func requireEnd(t testing.TB, stream kvoncev1.KV_SessionClient, want codes.Code) {
	t.Helper()
	_, err := stream.Recv()
	require.Error(t, err)
	if want == codes.OK {
		require.ErrorIs(t, err, io.EOF)
		return
	}
	require.Equal(t, want, status.Code(err), err.Error())
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
