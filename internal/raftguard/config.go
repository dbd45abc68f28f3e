package raftguard

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// maxAppendEntries times the largest entry, about 1 MiB, bounds one message to a follower.
const maxAppendEntries = 64

// Config sets what the guards rely on, and checks the rest.
func Config(c *raft.Config) (*raft.Config, error) {
	c.BatchApplyCh = true      // entries are grouped; without pipelining that is where the throughput comes from
	c.ShutdownOnRemove = false // a removed node decides itself how to end
	c.NoLegacyTelemetry = true // one name for each metric
	c.PreVoteDisabled = false  // a node that comes back must not depose a leader
	c.NoSnapshotRestoreOnStart = false
	c.MaxAppendEntries = maxAppendEntries
	if err := raft.ValidateConfig(c); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	return c, nil
}
