package transport

import (
	"crypto/sha256"
	"fmt"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

const (
	secretBytes      = 16
	incarnationBytes = 16
)

// Caller is the identity that a hello gave.
type Caller struct {
	// ClientID is the registered client, or 0 for a caller that only registers, reads, or sends commands
	// without a client. It is a claim: the registry compares the verifier when the log decides.
	ClientID uint64
	// Verifier is the SHA-256 of the secret; zero when ClientID is 0.
	Verifier [sha256.Size]byte
}

// greet judges a hello, first its form and then, with the backend, whether this is the right cluster. The
// caller counts only when the welcome is OK.
func (s *Server) greet(h *kvoncev1.Hello) (Caller, *kvoncev1.Welcome) {
	if err := checkHello(h); err != nil {
		return Caller{}, refuseHello(err.Error())
	}
	var c Caller
	if h.GetClientId() != 0 {
		c = Caller{ClientID: h.GetClientId(), Verifier: sha256.Sum256(h.GetSecret())}
	}
	return c, s.backend.Welcome(h)
}

func checkHello(h *kvoncev1.Hello) error {
	if n := len(h.GetIncarnation()); n != 0 && n != incarnationBytes {
		return fmt.Errorf("hello: incarnation has %d bytes, want 0 or %d", n, incarnationBytes)
	}
	want := 0
	if h.GetClientId() != 0 {
		want = secretBytes
	}
	if n := len(h.GetSecret()); n != want {
		return fmt.Errorf("hello: secret has %d bytes, want %d with client id %d", n, want, h.GetClientId())
	}
	return nil
}

func refuseHello(message string) *kvoncev1.Welcome {
	return &kvoncev1.Welcome{Code: kvoncev1.Code_INVALID_ARGUMENT, Message: message}
}
