package transport

import "time"

// Limits of the client service.
const (
	// MaxMessageBytes bounds one gRPC message in either direction. gRPC ends the stream of a client that sends
	// more with ResourceExhausted, which leaves everything in flight on it unresolved: a client must check the
	// size of a frame before it sends it.
	MaxMessageBytes = 32 << 20

	// MaxInFlight bounds the requests of one session that were read and whose answers have not been handed to
	// gRPC. At the limit the session stops reading and flow control holds the client back.
	MaxInFlight = 4096

	// MaxOutboxBytes is the size of waiting answers at which a session stops reading, in bytes.
	MaxOutboxBytes = 8 << 20

	// MaxHeldBytes is the size that the waiting answers of one session never pass, in bytes. Requests that were
	// let in while there was room can add up to more than MaxOutboxBytes; past this limit a read is refused
	// with BUSY, and any other answer ends the session.
	MaxHeldBytes = 2 * MaxMessageBytes

	// FrameBytes is the size that a frame of several answers stays below, in bytes. A larger answer has a frame
	// of its own.
	FrameBytes = 1 << 20

	// HelloTimeout is how long a session waits for the hello of its client.
	HelloTimeout = 10 * time.Second

	// StallTimeout is how long gRPC may take over one frame while the session has no room for more requests. Then
	// the session ends.
	StallTimeout = 30 * time.Second

	// ConnectionTimeout is how long a client's connection may take up to the end of the HTTP/2 handshake.
	ConnectionTimeout = 5 * time.Second

	// DefaultMaxConnections is the default for ServerOptions.MaxConnections.
	DefaultMaxConnections = 10_000

	// MaxStreams bounds the streams and calls that are open at the same time on one connection.
	MaxStreams = 1024
)

// answerOverhead is what a waiting answer is charged for beside its encoding, so that a great many small ones
// can't hold much more memory than MaxOutboxBytes says.
const answerOverhead = 256

// limits are the constants above as a session uses them; tests make them smaller.
type limits struct {
	inFlight     int
	outboxBytes  int
	heldBytes    int
	frameBytes   int
	answerBytes  int
	helloTimeout time.Duration
	stallTimeout time.Duration
}

func defaultLimits() limits {
	return limits{
		inFlight:     MaxInFlight,
		outboxBytes:  MaxOutboxBytes,
		heldBytes:    MaxHeldBytes,
		frameBytes:   FrameBytes,
		answerBytes:  MaxMessageBytes - 64<<10, // Call sends a welcome beside it
		helloTimeout: HelloTimeout,
		stallTimeout: StallTimeout,
	}
}
