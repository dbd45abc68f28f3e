package node

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Check is one thing that must hold for a node to be ready.
type Check struct {
	Name string
	OK   bool
	// Detail says more, for people.
	Detail string
}

// Checks tells whether the node can serve requests, and if not, why not.
func (n *Node) Checks() []Check {
	k := n.core.Load()
	if k == nil {
		return []Check{{"started", false, "waiting for the other nodes of the cluster"}}
	}
	view, leader, behind := k.machine.View(), k.Leader(), k.behind()
	return []Check{
		{"started", true, ""},
		{"genesis", view.Born(), "the first entry of the cluster is applied"},
		{"leader", leader != nil, "leader " + leader.GetNodeId()},
		{"applied", behind == 0, fmt.Sprintf("entry %d of %d is applied", view.Index(), k.raft.CommitIndex())},
	}
}

// Stats are the numbers of a node at one moment.
type Stats struct {
	// Started is false while the node waits for its cluster; everything else is 0 then.
	Started                                                  bool
	Leader                                                   bool
	Term, CommitIndex, AppliedIndex, LastLogIndex            uint64
	Revision, Keys, KeySpaceBytes                            uint64
	Clients, Tombstones, Answers, AnswerBytes                uint64
	Replayed                                                 uint64
	Proposals, Entries, Refusals, Unknown, Reads, ReadRounds uint64
	Queued                                                   int
	ClusterTime, LastDiskWrite                               time.Duration
	DigestAlarms                                             uint64
}

// Stats returns the numbers of the node.
func (n *Node) Stats() (s Stats) {
	k := n.core.Load()
	if k == nil {
		return s
	}
	view := k.machine.View()
	r := view.Registry()
	return Stats{
		Started: true, Leader: k.raft.State() == raft.Leader,
		Term: k.raft.CurrentTerm(), CommitIndex: k.raft.CommitIndex(), AppliedIndex: view.Index(), LastLogIndex: k.raft.LastIndex(),
		Revision: view.Revision(), Keys: uint64(view.Keys()), KeySpaceBytes: view.KeySpaceBytes(),
		Clients: uint64(r.Clients()), Tombstones: uint64(r.Tombstones()), Answers: uint64(r.Answers()), AnswerBytes: r.AnswerBytes(),
		Replayed:  k.requests.replayed.Load(),
		Proposals: k.propose.counts.proposals.Load(), Entries: k.propose.counts.entries.Load(),
		Refusals: k.propose.counts.refused.Load(), Unknown: k.propose.counts.unknown.Load(),
		Reads: k.reads.counts.reads.Load(), ReadRounds: k.reads.counts.rounds.Load(),
		Queued: len(k.propose.queue), ClusterTime: time.Duration(view.Time()) * time.Millisecond,
		LastDiskWrite: k.watched.LastWrite(), DigestAlarms: k.lead.audit.alarms.Load(),
	}
}
