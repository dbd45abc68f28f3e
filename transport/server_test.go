package transport

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func TestCall(t *testing.T) {
	b := newScripted()
	b.do = func(w work) { w.ok(1) }
	s := serveTest(t, b, nil)
	kv := kvoncev1.NewKVClient(s.conn)

	tests := []struct {
		name    string
		call    *kvoncev1.CallRequest
		welcome kvoncev1.Code
		code    kvoncev1.Code
	}{
		{"write", &kvoncev1.CallRequest{Hello: registeredHello(), Request: write(3)}, kvoncev1.Code_OK, kvoncev1.Code_OK},
		{"write of nobody", &kvoncev1.CallRequest{Request: write(3)}, kvoncev1.Code_OK, kvoncev1.Code_INVALID_ARGUMENT},
		{"no hello", &kvoncev1.CallRequest{Request: &kvoncev1.Request{Tag: 3, Kind: &kvoncev1.Request_Read{}}}, kvoncev1.Code_OK, kvoncev1.Code_OK},
		{"no request", &kvoncev1.CallRequest{}, kvoncev1.Code_OK, kvoncev1.Code_INVALID_ARGUMENT},
		{"bad hello", &kvoncev1.CallRequest{Hello: &kvoncev1.Hello{ClientId: 1}, Request: write(3)}, kvoncev1.Code_INVALID_ARGUMENT, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := kv.Call(t.Context(), tt.call)
			require.NoError(t, err)
			require.Equal(t, tt.welcome, got.GetWelcome().GetCode())
			require.Equal(t, tt.code, got.GetResponse().GetCode())
			if tt.welcome == kvoncev1.Code_OK {
				require.Equal(t, tt.call.GetRequest().GetTag(), got.GetResponse().GetTag())
			}
		})
	}
}

// A call whose context ends first returns the status of the context, and its late answer goes nowhere.
func TestCallEndsWithItsContext(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := kvoncev1.NewKVClient(s.conn).Call(ctx, &kvoncev1.CallRequest{Hello: registeredHello(), Request: write(1)})
		failed <- err
	}()
	w := b.waitFor(t, 1)[0]
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-failed))
	w.ok(1)
	w.ok(1)
}

func TestClusterGoesStraightThrough(t *testing.T) {
	s := serveTest(t, newScripted(), nil)
	c := kvoncev1.NewClusterClient(s.conn)
	st, err := c.Status(t.Context(), &kvoncev1.StatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "n1", st.GetNodeId())
	cl, err := c.ListClients(t.Context(), &kvoncev1.ListClientsRequest{AfterId: 4})
	require.NoError(t, err)
	require.EqualValues(t, 5, cl.GetClients()[0].GetId())
	se, err := c.GetSettings(t.Context(), &kvoncev1.GetSettingsRequest{})
	require.NoError(t, err)
	require.Equal(t, "window", se.GetSettings()[0].GetName())
	_, err = c.TransferLeader(t.Context(), &kvoncev1.TransferLeaderRequest{})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
}

func TestHealthSaysWhatTheNodeSays(t *testing.T) {
	s := serveTest(t, newScripted(), nil)
	h := healthv1.NewHealthClient(s.conn)
	for _, serving := range []bool{false, true, false} {
		s.server.SetServing(serving)
		want := healthv1.HealthCheckResponse_NOT_SERVING
		if serving {
			want = healthv1.HealthCheckResponse_SERVING
		}
		for _, service := range []string{"", "kvonce.v1.KV"} {
			got, err := h.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			require.Equal(t, want, got.GetStatus())
		}
	}
}

func TestReflectionIsOn(t *testing.T) {
	s := serveTest(t, newScripted(), nil)
	stream, err := reflectionv1.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}))
	got, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, service := range got.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	require.Contains(t, names, "kvonce.v1.KV")
	require.Contains(t, names, "kvonce.v1.Cluster")
	require.NoError(t, stream.CloseSend())
}

// A graceful stop refuses what is new, waits for what is under way, and isn't held up by a health watch.
func TestGracefulStopDrains(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	watch, err := healthv1.NewHealthClient(s.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1)))
	w := b.waitFor(t, 1)[0]

	stopped := make(chan struct{})
	go func() { defer close(stopped); s.server.GracefulStop(t.Context()) }()
	require.Eventually(t, s.server.isDraining, patience, time.Millisecond)
	require.NoError(t, stream.Send(writes(2)))
	r := answers(t, stream, 1)[0]
	require.EqualValues(t, 2, r.GetTag())
	require.Equal(t, kvoncev1.Code_SHUTTING_DOWN, r.GetCode())
	require.Equal(t, kvoncev1.Outcome_REFUSED, r.GetOutcome())

	w.ok(1)
	require.EqualValues(t, 1, answers(t, stream, 1)[0].GetTag())
	requireEnd(t, stream, codes.OK)
	<-stopped
}

// An answer that never comes holds a stop up only for as long as its context lasts.
func TestGracefulStopIsBounded(t *testing.T) {
	b := newScripted()
	s := serveTest(t, b, nil)
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1)))
	b.waitFor(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.server.GracefulStop(ctx)
	require.Zero(t, s.server.Sessions())
	requireEnd(t, stream, codes.Unavailable)
}

// Connections that say nothing cost nobody else anything.
func TestSilentClientConnections(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := newScripted()
	b.do = func(w work) { w.ok(1) }
	server := NewServer(b, ServerOptions{Logger: quiet()})
	for range 300 {
		c, err := net.Dial("tcp", lis.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	s := &service{server: server, conn: startServer(t, server, lis, lis.Addr().String())}
	stream := s.session(t)
	require.NoError(t, stream.Send(writes(1)))
	answers(t, stream, 1)
	require.NoError(t, stream.CloseSend())
	requireEnd(t, stream, codes.OK)
}

// A connection that never got as far as HTTP/2 doesn't hold up a stop.
func TestStopWithASilentConnection(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := NewServer(newScripted(), ServerOptions{Logger: quiet()})
	startServer(t, server, lis, lis.Addr().String())
	c, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	accepted := func() bool {
		server.conns.mu.Lock()
		defer server.conns.mu.Unlock()
		return len(server.conns.conns) == 1
	}
	require.Eventually(t, accepted, patience, time.Millisecond)
	begin := time.Now()
	server.GracefulStop(t.Context())
	require.Less(t, time.Since(begin), ConnectionTimeout/2)
	require.False(t, accepted())
}

// At the limit of connections the next one waits for another to go.
func TestConnectionLimit(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	silent, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(t, err)
	server := NewServer(newScripted(), ServerOptions{Logger: quiet(), MaxConnections: 1})
	conn := startServer(t, server, lis, lis.Addr().String())

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = kvoncev1.NewClusterClient(conn).Status(ctx, &kvoncev1.StatusRequest{})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))

	require.NoError(t, silent.Close())
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.Eventually(t, func() bool {
		_, err := kvoncev1.NewClusterClient(conn).Status(ctx, &kvoncev1.StatusRequest{})
		return err == nil
	}, patience, time.Millisecond)
}

// BenchmarkSession measures the echo of small requests through one session whose client sends frames of so many.
func BenchmarkSession(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("frame=%d", size), func(b *testing.B) {
			backend := newScripted()
			backend.do = func(w work) { w.ok(16) }
			s := serveTest(b, backend, nil)
			stream := s.session(b)
			b.ReportAllocs()
			b.ResetTimer()
			go sendFrames(b, stream, b.N, size)
			answers(b, stream, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			b.StopTimer()
			requireEnd(b, stream, codes.OK)
		})
	}
}

func sendFrames(b *testing.B, stream kvoncev1.KV_SessionClient, n, size int) {
	for tag := 0; tag < n; {
		frame := &kvoncev1.SessionRequest{}
		for ; tag < n && len(frame.Requests) < size; tag++ {
			frame.Requests = append(frame.Requests, write(uint64(tag)))
		}
		if err := stream.Send(frame); err != nil {
			b.Error(err)
			return
		}
	}
	if err := stream.CloseSend(); err != nil {
		b.Error(err)
	}
}
