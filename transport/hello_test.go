package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func framed(magic string, n uint32, body string) string {
	return magic + string(binary.BigEndian.AppendUint32(nil, n)) + body
}

func TestHelloRoundTrip(t *testing.T) {
	want := &kvoncev1.PeerHello{Protocol: 1, Purpose: kvoncev1.PeerHello_RAFT, NodeId: "n1", Refusal: "no"}
	var b bytes.Buffer
	require.NoError(t, writeHello(&b, want))
	b.WriteString("raft follows")
	got, err := readHello(&b)
	require.NoError(t, err)
	require.True(t, proto.Equal(want, got))
	require.Equal(t, "raft follows", b.String(), "nothing after the hello is read")
}

func TestHelloErrors(t *testing.T) {
	tests := []struct {
		name, in string
		want     error
	}{
		{"nothing", "", io.EOF},
		{"part of the magic", "KV", io.ErrUnexpectedEOF},
		{"no length", "KVR1", io.ErrUnexpectedEOF},
		{"part of the length", "KVR1\x00", io.ErrUnexpectedEOF},
		{"no body", framed("KVR1", 5, ""), io.ErrUnexpectedEOF},
		{"part of the body", framed("KVR1", 5, "abc"), io.ErrUnexpectedEOF},
		{"http", "GET / HTTP/1.1\r\n\r\n", errNotPeer},
		{"short line", "hi\r\n", errNotPeer},
		{"other version", framed("KVR2", 0, ""), errNotPeer},
		{"too long", framed("KVR1", MaxPeerHelloBytes+1, ""), errNotPeer},
		{"no proto", framed("KVR1", 3, "\xff\xff\xff"), errNotPeer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readHello(strings.NewReader(tt.in))
			require.ErrorIs(t, err, tt.want)
		})
	}
}

func TestHelloTooLargeToSend(t *testing.T) {
	h := &kvoncev1.PeerHello{Version: strings.Repeat("x", MaxPeerHelloBytes)}
	var b bytes.Buffer
	require.Error(t, writeHello(&b, h))
	require.Zero(t, b.Len())
}

// Whatever comes in, reading it ends in a hello or an error.
func FuzzReadHello(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(framed("KVR1", 2, "\x08\x01")))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := readHello(bytes.NewReader(in))
		require.Equal(t, err == nil, h != nil)
	})
}
