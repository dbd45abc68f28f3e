package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

const (
	// PeerProtocol is the version of the handshake on raft connections, and of what follows it.
	PeerProtocol = 1

	// MaxPeerHelloBytes bounds the encoding of a PeerHello.
	MaxPeerHelloBytes = 64 << 10

	// helloMagic opens both directions of a raft connection, so that anything else that finds the port is
	// recognised by its first bytes.
	helloMagic = "KVR1"

	// maxRefusalBytes bounds the text of a refusal; a longer one is cut.
	maxRefusalBytes = 1 << 10
)

var errNotPeer = errors.New("transport: not a raft connection")

// writeHello writes magic, length in four bytes, big endian, and hello.
func writeHello(w io.Writer, h *kvoncev1.PeerHello) error {
	header := append([]byte(helloMagic), 0, 0, 0, 0)
	b, err := proto.MarshalOptions{}.MarshalAppend(header, h)
	if err != nil {
		return fmt.Errorf("transport: encode peer hello: %w", err)
	}
	n := len(b) - len(header)
	if n > MaxPeerHelloBytes {
		return fmt.Errorf("transport: peer hello has %d bytes, limit %d", n, MaxPeerHelloBytes)
	}
	binary.BigEndian.PutUint32(b[len(helloMagic):], uint32(n))
	_, err = w.Write(b)
	return err
}

// readHello reads what writeHello wrote and not a byte more. It returns io.EOF when there is nothing at all,
// and an error that wraps errNotPeer when there is something else.
func readHello(r io.Reader) (*kvoncev1.PeerHello, error) {
	header := make([]byte, len(helloMagic)+4)
	// The magic first: a short line of something else must not be waited on until it has eight bytes.
	if _, err := io.ReadFull(r, header[:len(helloMagic)]); err != nil {
		return nil, err
	}
	if string(header[:len(helloMagic)]) != helloMagic {
		return nil, fmt.Errorf("%w: it begins with %q", errNotPeer, header[:len(helloMagic)])
	}
	if _, err := io.ReadFull(r, header[len(helloMagic):]); err != nil {
		return nil, noEOF(err)
	}
	n := binary.BigEndian.Uint32(header[len(helloMagic):])
	if n > MaxPeerHelloBytes {
		return nil, fmt.Errorf("%w: hello of %d bytes, limit %d", errNotPeer, n, MaxPeerHelloBytes)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, noEOF(err)
	}
	h := new(kvoncev1.PeerHello)
	if err := proto.Unmarshal(body, h); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotPeer, err)
	}
	return h, nil
}

// noEOF is for reads that begin in the middle of a hello.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
