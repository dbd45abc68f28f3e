package raftguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// ErrAbandoned says that nobody waits for a future any more: what became of it is unknown.
var ErrAbandoned = errors.New("gave up waiting for raft")

// Await waits for a future until ctx ends (#498: some futures never resolve when raft shuts down). The goroutine that
// waits for such a future stays until the process ends. Unless the error is ErrAbandoned the future has resolved, and
// its other methods may be called, those of a raft.ApplyFuture for example; after ErrAbandoned they must not be.
func Await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))
	}
}
