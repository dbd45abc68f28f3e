package node

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/internal/raftguard"
)

// snapshotCheck is how often the bytes of the log are looked at.
const snapshotCheck = time.Second

// snapshotByBytes takes a snapshot whenever the log has grown by so many bytes since the last one. Raft itself counts
// entries, of which one may be a few bytes or a megabyte.
func (k *core) snapshotByBytes(ctx context.Context) {
	tick := time.NewTicker(snapshotCheck)
	defer tick.Stop()
	var at int64 // bytes written when the last snapshot was taken
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		written := k.watched.Stats().Bytes
		if uint64(written-at) < k.config.tuning.SnapshotBytes {
			continue
		}
		if err := k.Snapshot(ctx); err != nil {
			k.config.log.Warn("snapshot failed; it will be tried again", "error", err)
			continue
		}
		at = written
	}
}

// Snapshot takes a snapshot of what is applied now. Nothing new since the last one is no error.
func (k *core) Snapshot(ctx context.Context) error {
	err := raftguard.Await(ctx, k.raft.Snapshot())
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}
