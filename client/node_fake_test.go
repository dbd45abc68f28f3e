package client

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// action is what a node does with a request.
type action struct {
	// answer is given without asking the registry.
	answer *kvoncev1.Response
	// apply asks the registry; its answer is given unless mute.
	apply, mute bool
	// hangUp ends the stream after this.
	hangUp bool
	// until delays the answer.
	until <-chan struct{}
}

var (
	serve   = action{apply: true}
	ignore  = action{}
	swallow = action{apply: true, mute: true}
	drop    = action{hangUp: true}
	cutOff  = action{apply: true, mute: true, hangUp: true}
)

func say(code kvoncev1.Code, o kvoncev1.Outcome) action {
	return action{answer: &kvoncev1.Response{Code: code, Outcome: o, Message: "said by the script"}}
}

func refuse(code kvoncev1.Code) action { return action{answer: refusal(code)} }

// script decides what a node does with a request.
type script func(n *fakeNode, r *kvoncev1.Request) action

// fakeCluster is a few nodes in front of one registry.
type fakeCluster struct {
	t        testing.TB
	registry *fakeRegistry
	nodes    []*fakeNode

	mu     sync.Mutex
	leader string
	script script
	// seen holds every request that reached a node, in order.
	seen []seen
}

type seen struct {
	node    string
	client  uint64
	request *kvoncev1.Request
}

// fakeNode serves the KV service on an address of a network of its own.
type fakeNode struct {
	kvoncev1.UnimplementedKVServer
	kvoncev1.UnimplementedClusterServer
	cluster  *fakeCluster
	id, addr string

	mu     sync.Mutex
	lis    *bufconn.Listener
	server *grpc.Server
	// silent nodes take streams and don't welcome anybody.
	silent bool
	// wrong nodes belong to another cluster.
	wrong bool
}

func newFakeCluster(t testing.TB, nodes int) *fakeCluster {
	f := &fakeCluster{t: t, registry: newFakeRegistry(), leader: "n1"}
	for i := range nodes {
		n := &fakeNode{cluster: f, id: "n" + string(rune('1'+i)), addr: "127.0.0.1:410" + string(rune('1'+i))}
		f.nodes = append(f.nodes, n)
		n.start()
	}
	t.Cleanup(func() {
		for _, n := range f.nodes {
			n.stop()
		}
	})
	return f
}

func (n *fakeNode) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lis = bufconn.Listen(1 << 20)
	n.server = grpc.NewServer(grpc.MaxRecvMsgSize(32 << 20))
	kvoncev1.RegisterKVServer(n.server, n)
	kvoncev1.RegisterClusterServer(n.server, n)
	server, lis := n.server, n.lis
	go func() { _ = server.Serve(lis) }() // ends with an error when the test stops the node
}

func (n *fakeNode) stop() {
	n.mu.Lock()
	server := n.server
	n.server, n.lis = nil, nil
	n.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (f *fakeCluster) dial(ctx context.Context, addr string) (net.Conn, error) {
	for _, n := range f.nodes {
		if n.addr != addr {
			continue
		}
		n.mu.Lock()
		lis := n.lis
		n.mu.Unlock()
		if lis != nil {
			return lis.DialContext(ctx)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.ErrClosed}
}

func (f *fakeCluster) endpoints() (addrs []string) {
	for _, n := range f.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// open opens a client that is closed with the test.
func (f *fakeCluster) open(options ...Option) *Client {
	f.t.Helper()
	options = append([]Option{
		WithEndpoints(f.endpoints()...),
		WithDialOptions(grpc.WithContextDialer(f.dial)),
		WithLogger(slog.New(slog.DiscardHandler)),
	}, options...)
	c, err := Open(f.t.Context(), options...)
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = c.Close(ctx) // tests of Close have closed it already
	})
	return c
}

// does sets what nodes do with requests.
func (f *fakeCluster) does(s script) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = s
}

func (f *fakeCluster) lead(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader = id
}

func (f *fakeCluster) leaderHint() *kvoncev1.Leader {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if n.id == f.leader {
			return &kvoncev1.Leader{NodeId: n.id, ClientAddress: n.addr, Term: 1}
		}
	}
	return nil
}

// requests returns the requests that have reached nodes and that match.
func (f *fakeCluster) requests(match func(*kvoncev1.Request) bool) (found []seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		if match(s.request) {
			found = append(found, s)
		}
	}
	return found
}

func isWrite(r *kvoncev1.Request) bool { return r.GetWrite() != nil }

func (f *fakeCluster) decide(n *fakeNode, client uint64, r *kvoncev1.Request) action {
	f.mu.Lock()
	f.seen = append(f.seen, seen{n.id, client, r})
	s, leader := f.script, f.leader
	f.mu.Unlock()
	if s != nil {
		return s(n, r)
	}
	if n.id != leader {
		return f.notLeader()
	}
	return serve
}

func (f *fakeCluster) notLeader() action {
	a := refuse(kvoncev1.Code_NOT_LEADER)
	a.answer.Leader = f.leaderHint()
	return a
}

// Session serves a stream.
func (n *fakeNode) Session(stream kvoncev1.KV_SessionServer) error {
	frame, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := frame.GetHello()
	w := n.welcome(hello)
	if w == nil {
		<-stream.Context().Done()
		return nil
	}
	if err := stream.Send(&kvoncev1.SessionResponse{Welcome: w}); err != nil || w.Code != kvoncev1.Code_OK {
		return err
	}
	s := &fakeStream{stream: stream, node: n, hello: hello}
	defer s.late.Wait()
	for {
		frame, err := stream.Recv()
		if err != nil {
			return nil
		}
		if s.take(frame.GetRequests()) {
			return nil
		}
	}
}

func (n *fakeNode) welcome(hello *kvoncev1.Hello) *kvoncev1.Welcome {
	n.mu.Lock()
	silent, wrong := n.silent, n.wrong
	n.mu.Unlock()
	n.cluster.registry.mu.Lock()
	incarnation := slices.Clone(n.cluster.registry.incarnation)
	n.cluster.registry.mu.Unlock()
	if wrong {
		incarnation = []byte("another  cluster")
	}
	switch {
	case silent:
		return nil
	case len(hello.GetIncarnation()) > 0 && string(hello.GetIncarnation()) != string(incarnation):
		return &kvoncev1.Welcome{Code: kvoncev1.Code_WRONG_CLUSTER, Incarnation: incarnation}
	}
	return &kvoncev1.Welcome{Code: kvoncev1.Code_OK, Incarnation: incarnation, NodeId: n.id, Leader: n.cluster.leaderHint()}
}

// fakeStream answers on one stream.
type fakeStream struct {
	node  *fakeNode
	hello *kvoncev1.Hello
	late  sync.WaitGroup

	mu     sync.Mutex
	stream kvoncev1.KV_SessionServer
}

// take deals with the requests of a frame, and reports whether to hang up.
func (s *fakeStream) take(requests []*kvoncev1.Request) bool {
	out := &kvoncev1.SessionResponse{}
	for _, r := range requests {
		a := s.node.cluster.decide(s.node, s.hello.GetClientId(), r)
		response := a.answer
		if a.apply {
			response = s.node.cluster.registry.apply(s.hello.GetClientId(), s.hello.GetSecret(), r)
		}
		if response != nil && !a.mute {
			response.Tag = r.GetTag()
			if a.until != nil {
				s.later(a.until, response)
			} else {
				out.Responses = append(out.Responses, response)
			}
		}
		if a.hangUp {
			s.send(out)
			return true
		}
	}
	if len(out.Responses) > 0 {
		s.send(out)
	}
	return false
}

func (s *fakeStream) later(until <-chan struct{}, r *kvoncev1.Response) {
	s.late.Go(func() {
		select {
		case <-until:
			s.send(&kvoncev1.SessionResponse{Responses: []*kvoncev1.Response{r}})
		case <-s.stream.Context().Done():
		}
	})
}

func (s *fakeStream) send(out *kvoncev1.SessionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.stream.Send(out) // the client may be gone
}

// Status says who leads.
func (n *fakeNode) Status(context.Context, *kvoncev1.StatusRequest) (*kvoncev1.StatusResponse, error) {
	return &kvoncev1.StatusResponse{NodeId: n.id, Leader: n.cluster.leaderHint()}, nil
}

// GetSettings has one setting.
func (n *fakeNode) GetSettings(context.Context, *kvoncev1.GetSettingsRequest) (*kvoncev1.GetSettingsResponse, error) {
	return &kvoncev1.GetSettingsResponse{Settings: []*kvoncev1.SettingInfo{{Name: "window", Value: 1024}}}, nil
}

// ListClients lists the clients of the registry.
func (n *fakeNode) ListClients(context.Context, *kvoncev1.ListClientsRequest) (*kvoncev1.ListClientsResponse, error) {
	g := n.cluster.registry
	g.mu.Lock()
	defer g.mu.Unlock()
	out := &kvoncev1.ListClientsResponse{}
	for _, c := range g.clients {
		out.Clients = append(out.Clients, &kvoncev1.ClientInfo{Id: c.id, Name: c.name})
	}
	return out, nil
}

// TransferLeader changes the leader at once.
func (n *fakeNode) TransferLeader(_ context.Context, r *kvoncev1.TransferLeaderRequest) (*kvoncev1.TransferLeaderResponse, error) {
	n.cluster.lead(r.GetNodeId())
	return &kvoncev1.TransferLeaderResponse{Leader: n.cluster.leaderHint()}, nil
}
