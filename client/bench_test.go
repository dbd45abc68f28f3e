package client

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// echoNode answers every request at once, whatever it says.
type echoNode struct{ kvoncev1.UnimplementedKVServer }

func (echoNode) Session(stream kvoncev1.KV_SessionServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&kvoncev1.SessionResponse{Welcome: &kvoncev1.Welcome{Code: kvoncev1.Code_OK, NodeId: "n1", Incarnation: make([]byte, 16)}}); err != nil {
		return err
	}
	result := &kvoncev1.Response_Command{Command: &kvoncev1.CommandResult{Revision: 1, Succeeded: true, Ops: []*kvoncev1.OpResult{{}}}}
	registered := &kvoncev1.Response_Registered{Registered: &kvoncev1.Registered{ClientId: 1, TtlMs: 300_000, Window: 1024, Incarnation: make([]byte, 16)}}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return nil
		}
		out := &kvoncev1.SessionResponse{}
		for _, r := range frame.GetRequests() {
			a := &kvoncev1.Response{Tag: r.GetTag(), Code: kvoncev1.Code_OK, Outcome: kvoncev1.Outcome_APPLIED, Index: 1, Term: 1, Result: result}
			if r.GetRegister() != nil {
				a.Result = registered
			}
			out.Responses = append(out.Responses, a)
		}
		if err := stream.Send(out); err != nil {
			return nil
		}
	}
}

// BenchmarkPut measures small puts, 256 at a time, against a node on the loopback interface that does nothing.
func BenchmarkPut(b *testing.B) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := grpc.NewServer()
	kvoncev1.RegisterKVServer(server, echoNode{})
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()
	c, err := Open(b.Context(), WithEndpoints(lis.Addr().String()), WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(b, err)
	defer func() { _ = c.Close(context.Background()) }()
	_, err = c.Put(b.Context(), "warm", nil)
	require.NoError(b, err)

	const workers = 256
	value := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for i := w; i < b.N; i += workers {
				if _, err := c.Put(b.Context(), "some key of 16 B", value); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}
