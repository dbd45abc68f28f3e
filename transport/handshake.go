package transport

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// HandshakeTimeout is how long the exchange of hellos may take on an accepted connection and for a probe.
const HandshakeTimeout = 5 * time.Second

// Hellos is what the stream layer needs from a node to know whom it talks to. Its methods are called from many
// goroutines and return without waiting for the network or the disk.
type Hellos interface {
	// Local describes this node. The stream layer fills in protocol, purpose and refusal.
	Local() *kvoncev1.PeerHello
	// Check refuses a remote node with an error, whose text is shown to both sides. It is asked on both ends of
	// a raft connection, and not about probes that others make.
	Check(remote *kvoncev1.PeerHello) error
	// Learned tells of a remote node that passed Check: addr is the raft address that was dialled, or, on the
	// accepting side, the host and port that the connection came from.
	Learned(remote *kvoncev1.PeerHello, addr string)
}

// RefusedError says that one of two nodes doesn't want to talk raft with the other.
type RefusedError struct {
	// Address is the raft address that was dialled.
	Address string
	// Reason is the text of the side that refused, for people.
	Reason string
	// Local is true when this node refused the other one.
	Local bool
}

// Error tells who refused whom, and why.
func (e *RefusedError) Error() string {
	if e.Local {
		return fmt.Sprintf("transport: this node refuses the node at %s: %s", e.Address, e.Reason)
	}
	return fmt.Sprintf("transport: the node at %s refuses this one: %s", e.Address, e.Reason)
}

// localHello is the hello of this node for one connection.
func (l *StreamLayer) localHello(p kvoncev1.PeerHello_Purpose) *kvoncev1.PeerHello {
	h := proto.CloneOf(l.hellos.Local())
	h.Protocol = PeerProtocol
	h.Purpose = p
	h.Refusal = ""
	return h
}

// exchange is the handshake of the dialling side; the caller bounds its time.
func (l *StreamLayer) exchange(c net.Conn, addr string, p kvoncev1.PeerHello_Purpose) (*kvoncev1.PeerHello, error) {
	if err := writeHello(c, l.localHello(p)); err != nil {
		return nil, err
	}
	remote, err := readHello(c)
	if err != nil {
		return nil, fmt.Errorf("transport: hello of %s: %w", addr, noEOF(err))
	}
	if reason := remote.GetRefusal(); reason != "" {
		return nil, &RefusedError{Address: addr, Reason: trim(reason)}
	}
	return remote, nil
}

// answerHello is the handshake of the accepting side. It returns nil without an error after a probe.
func (l *StreamLayer) answerHello(c net.Conn) (*kvoncev1.PeerHello, error) {
	remote, err := readHello(c)
	if err != nil {
		return nil, err
	}
	local := l.localHello(remote.GetPurpose())
	refused := l.judge(remote)
	if refused != nil {
		local.Refusal = trim(refused.Error())
	}
	if err := writeHello(c, local); err != nil {
		return nil, err
	}
	if refused != nil || remote.GetPurpose() == kvoncev1.PeerHello_PROBE {
		return nil, refused
	}
	return remote, nil
}

// judge says why a hello that was received on an accepted connection is refused. A probe never is: it only asks.
func (l *StreamLayer) judge(remote *kvoncev1.PeerHello) error {
	switch remote.GetPurpose() {
	case kvoncev1.PeerHello_PROBE:
		return nil
	case kvoncev1.PeerHello_RAFT:
	default:
		return fmt.Errorf("unknown purpose %d", remote.GetPurpose())
	}
	if err := l.check(remote); err != nil {
		return err
	}
	if !l.open.Load() {
		return errNotStarted
	}
	return nil
}

var errNotStarted = errors.New("not started")

// check is asked on both sides of a raft connection.
func (l *StreamLayer) check(remote *kvoncev1.PeerHello) error {
	if v := remote.GetProtocol(); v != PeerProtocol {
		return fmt.Errorf("handshake protocol %d, want %d", v, PeerProtocol)
	}
	return l.hellos.Check(remote)
}

// trim makes a text fit for the wire and the log.
func trim(s string) string {
	if len(s) > maxRefusalBytes {
		s = s[:maxRefusalBytes]
	}
	return strings.ToValidUTF8(s, "")
}
