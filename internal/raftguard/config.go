package raftguard

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// maxAppendEntries times the largest entry, about 1 MiB, bounds one message to a follower.
const maxAppendEntries = 64

// errUnbuffered says that raft would stand still at every change of leadership until somebody reads its channel.
var errUnbuffered = errors.New("raft configuration: NotifyCh has no buffer; take that of a Notify")

// Config returns a copy of base with what the guards rely on, and refuses what raft wouldn't run with.
func Config(base *raft.Config) (*raft.Config, error) {
	c := *base
	c.BatchApplyCh = true      // entries are grouped; without pipelining that is where the throughput comes from
	c.ShutdownOnRemove = false // a removed node decides itself how to end
	c.NoLegacyTelemetry = true // one name for each metric
	c.PreVoteDisabled = false  // a node that comes back must not depose a leader
	c.MaxAppendEntries = maxAppendEntries
	c.NoSnapshotRestoreOnStart = true // the node restores the newest itself; raft would fall back on an older one
	if c.NotifyCh != nil && cap(c.NotifyCh) == 0 {
		return nil, errUnbuffered
	}
	if err := raft.ValidateConfig(&c); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	return &c, nil
}
