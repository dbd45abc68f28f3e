package transport

import (
	"context"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// kvService is the KV service in front of the backend of a server.
type kvService struct {
	kvoncev1.UnimplementedKVServer
	server *Server
}

// Session runs one stream.
func (k kvService) Session(stream kvoncev1.KV_SessionServer) error {
	k.server.sessions.Add(1)
	defer k.server.sessions.Add(-1)
	return newSession(k.server, stream).run()
}

// Call runs one request. A missing hello counts as an empty one: a caller without a client, who takes any
// cluster. When ctx ends first, the answer is dropped and the request unresolved.
func (k kvService) Call(ctx context.Context, c *kvoncev1.CallRequest) (*kvoncev1.CallResponse, error) {
	caller, w := k.server.greet(c.GetHello())
	if w.GetCode() != kvoncev1.Code_OK {
		return &kvoncev1.CallResponse{Welcome: w}, nil
	}
	answered := make(chan *kvoncev1.Response, 1)
	k.server.start(caller, c.GetRequest(), func(r *kvoncev1.Response) {
		select {
		case answered <- r:
		default: // a second answer
		}
	})
	select {
	case r := <-answered:
		return &kvoncev1.CallResponse{Welcome: w, Response: k.server.fit(c.GetRequest().GetTag(), r)}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// start refuses a request or gives it to the backend.
func (s *Server) start(c Caller, r *kvoncev1.Request, reply func(*kvoncev1.Response)) {
	if refused := s.refusal(c, r); refused != nil {
		reply(refused)
		return
	}
	s.backend.Do(c, r, reply)
}

// fit gives a response its tag and makes sure that a message can hold it.
func (s *Server) fit(tag uint64, r *kvoncev1.Response) *kvoncev1.Response {
	r.Tag = tag
	if proto.Size(r) > s.limits.answerBytes {
		return withoutResult(r, s.limits.answerBytes)
	}
	return r
}

// clusterService is the Cluster service of a backend.
type clusterService struct {
	kvoncev1.UnimplementedClusterServer
	backend Backend
}

func (c clusterService) Status(ctx context.Context, r *kvoncev1.StatusRequest) (*kvoncev1.StatusResponse, error) {
	return c.backend.Status(ctx, r)
}

func (c clusterService) ListClients(ctx context.Context, r *kvoncev1.ListClientsRequest) (*kvoncev1.ListClientsResponse, error) {
	return c.backend.ListClients(ctx, r)
}

func (c clusterService) GetSettings(ctx context.Context, r *kvoncev1.GetSettingsRequest) (*kvoncev1.GetSettingsResponse, error) {
	return c.backend.GetSettings(ctx, r)
}

func (c clusterService) TransferLeader(ctx context.Context, r *kvoncev1.TransferLeaderRequest) (*kvoncev1.TransferLeaderResponse, error) {
	return c.backend.TransferLeader(ctx, r)
}
