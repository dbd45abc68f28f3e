package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Backend is what the service needs from a node. All of its methods are called from many goroutines.
type Backend interface {
	// Welcome judges the incarnation of a hello, whose form has been checked, and describes the node. It
	// doesn't wait.
	Welcome(*kvoncev1.Hello) *kvoncev1.Welcome

	// Do starts one request and returns without waiting. The backend calls reply exactly once, from any
	// goroutine, possibly before Do returns, and in bounded time even when the caller is long gone; reply
	// never blocks. The response then belongs to the transport, which sets its tag; strings in it must be
	// valid UTF-8.
	Do(c Caller, r *kvoncev1.Request, reply func(*kvoncev1.Response))

	// Status, ListClients, GetSettings and TransferLeader are the methods of the Cluster service, whose proto
	// describes them. Errors should be gRPC statuses. They return when the context ends.
	Status(context.Context, *kvoncev1.StatusRequest) (*kvoncev1.StatusResponse, error)
	ListClients(context.Context, *kvoncev1.ListClientsRequest) (*kvoncev1.ListClientsResponse, error)
	GetSettings(context.Context, *kvoncev1.GetSettingsRequest) (*kvoncev1.GetSettingsResponse, error)
	TransferLeader(context.Context, *kvoncev1.TransferLeaderRequest) (*kvoncev1.TransferLeaderResponse, error)
}

// ServerOptions are the settings of a Server; the zero value has the defaults.
type ServerOptions struct {
	// MaxConnections bounds the client connections that are open at the same time; the next ones wait in the
	// backlog of the listener. 0 means DefaultMaxConnections.
	MaxConnections int
	// Credentials secure the connections; nil means plain text.
	Credentials credentials.TransportCredentials
	// Logger is where the server logs; nil means slog.Default().
	Logger *slog.Logger
}

// Server is the gRPC service of a node: KV and Cluster in front of a Backend, with health and reflection.
type Server struct {
	backend Backend
	limits  limits
	conns   *clientConns
	log     *slog.Logger
	grpc    *grpc.Server
	health  *health.Server

	sessions atomic.Int64
	// streams are the receivers and senders of sessions, which outlive their handlers by a moment.
	streams sync.WaitGroup
	// draining ends when a graceful stop begins.
	draining context.Context
	drain    context.CancelFunc
}

// NewServer makes a server in front of b. It serves nothing before Serve, and its health says NOT_SERVING before
// SetServing.
func NewServer(b Backend, o ServerOptions) *Server {
	if o.MaxConnections <= 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{
		backend: b,
		limits:  defaultLimits(),
		conns:   newClientConns(o.MaxConnections),
		log:     o.Logger,
		health:  health.NewServer(),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(append(grpcOptions(o.Credentials), grpc.StreamInterceptor(s.endOnDrain))...)
	s.SetServing(false)
	kvoncev1.RegisterKVServer(s.grpc, kvService{server: s})
	kvoncev1.RegisterClusterServer(s.grpc, clusterService{backend: b})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	return s
}

func grpcOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.MaxConcurrentStreams(MaxStreams),
		grpc.ConnectionTimeout(ConnectionTimeout),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			// Half of what the most eager sensible client does, a ping every 10 s.
			MinTime:             5 * time.Second,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 15 * time.Minute,
			Time:              20 * time.Second,
			Timeout:           10 * time.Second,
		}),
	}
	if creds != nil {
		options = append(options, grpc.Creds(creds))
	}
	return options
}

// RegisterService adds a service of the caller's to the same port. It must be called before Serve.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	s.grpc.RegisterService(d, impl)
}

// Serve accepts connections on lis until the server is stopped, and then returns nil. It closes lis.
func (s *Server) Serve(lis net.Listener) error {
	err := s.grpc.Serve(s.conns.limit(lis))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// SetServing sets what the health service says, for the server as a whole and for the KV service.
func (s *Server) SetServing(serving bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(kvoncev1.KV_ServiceDesc.ServiceName, status)
}

// Sessions is the number of sessions that are open now.
func (s *Server) Sessions() int { return int(s.sessions.Load()) }

func (s *Server) isDraining() bool {
	return s.draining.Err() != nil
}

// drainedStream is a stream whose context ends when its server begins to drain.
type drainedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (d drainedStream) Context() context.Context { return d.ctx }

// endOnDrain keeps streams that last for ever, a health watch for one, from holding up a graceful stop. Sessions
// see to that themselves.
func (s *Server) endOnDrain(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	if info.FullMethod == kvoncev1.KV_Session_FullMethodName {
		return h(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	return h(srv, drainedStream{ServerStream: stream, ctx: ctx})
}

// GracefulStop takes no new connections, refuses new requests with SHUTTING_DOWN, and ends each session when its
// last answer has been sent. What is left when ctx ends is cut off. It returns when no handler runs and no
// request will be given to the backend any more. The server can't be used again.
func (s *Server) GracefulStop(ctx context.Context) {
	s.health.Shutdown()
	s.drain()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	s.conns.drain()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.log.Warn("client connections are cut off", "sessions", s.Sessions())
		s.conns.cut()
		s.grpc.Stop()
		<-stopped
	}
	s.streams.Wait()
}
