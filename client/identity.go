package client

import (
	"crypto/rand"
	"crypto/sha256"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

const (
	secretBytes = 16
	saltBytes   = 16
)

// identity is a registered client as its owner knows it: all that must be kept to go on as this client.
type identity struct {
	id          uint64
	secret      []byte
	incarnation []byte
	ttlMs       uint64
	ledger      *ledger
	// ended tells that the log has decided that this client is no more. Its requests are asked for their verdicts;
	// no new ones are sent.
	ended bool
	// forgotten tells that the cluster itself is no more: nothing can be asked.
	forgotten bool
}

func newIdentity(secret []byte, r *kvoncev1.Registered) *identity {
	return &identity{id: r.GetClientId(), secret: secret, incarnation: r.GetIncarnation(), ttlMs: r.GetTtlMs(),
		ledger: newLedger(r.GetWindow())}
}

// drawSecret draws the secret of a registration.
func drawSecret() []byte { return random(secretBytes) }

// verifierOf returns what a registration shows of a secret.
func verifierOf(secret []byte) []byte {
	v := sha256.Sum256(secret)
	return v[:]
}

// drawSalt draws the salt of a request, which tells it from any other with the same content.
func drawSalt() []byte { return random(saltBytes) }

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, says crypto/rand
	return b
}
