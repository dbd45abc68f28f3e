// Package raftguard holds the guards round hashicorp/raft v1.7.3: what that library leaves to luck, made certain.
//
// Each guard answers a fault that was reproduced on that version. What an operator would see without it:
//
//   - Transport, heartbeats (hashicorp/raft #695): after a partition heals, two nodes hold different entries at one
//     place of the log, for ever. A heartbeat of a newer term is taken on a connection's goroutine while the old
//     leader is about to store an entry, which then carries a term this node never led.
//   - Transport, no pipelining (#612): a follower whose disk failed once stops catching up, because the sender of its
//     entries is dead-locked.
//   - Transport, commit index: a follower applies entries that were never committed, because it takes over a commit
//     index that lies beyond the entries it has compared with the leader's.
//   - Transport, proof of leadership: a leader that was paused answers a read with an old value. VerifyLeader counts
//     answers to messages that were sent before the read, and answers of non-voters.
//   - VoteStore (#661): after a power cut a node with a full log votes for one with an empty log, because term and
//     candidate of a vote are written one after the other.
//   - WatchedLog (#503, #614): a leader whose disk hangs stays leader, and the cluster stands still. And after a failed
//     write nothing is known about the disk, so the process must not go on. A compaction in one transaction keeps
//     writes waiting; it is done in pieces.
//   - WatchedStable: raft panics when it can't store its term, and nobody learns that it was the disk.
//   - SnapshotGuard (#697): a follower whose log differs from the leader's installs the same snapshot thousands of
//     times a second, or feeds entries that were never committed to others.
//   - Transfer (#696): after two attempts to hand leadership to a dead node, a later leader refuses all writes.
//   - Await (#498): calls hang for ever when raft is shut down at the wrong moment.
//   - Notify: raft itself stops while nobody reads its leadership channel.
//   - PrepareSnapshotDir and OpenBolt: leftovers of crashes fill the disk, folders are readable by everybody, and a
//     second process waits for ever for a data folder that is in use.
//   - Config: a node that comes back deposes a leader (no pre-vote), or stops when it is removed.
//
// One more fault is answered where connections are accepted, in the stream layer of package transport: who receives a
// snapshot from a node that is gone waits for ever, and so does raft's Shutdown.
//
// Outermost comes what raft is given: SnapshotGuard, round raft's LogCache if there is one, round WatchedLog, round the
// store; VoteStore round WatchedStable round the store; Transport round a *raft.NetworkTransport. The price of heartbeats
// in the main loop: a follower whose append takes longer than the leader's lease, or that installs a snapshot, is silent
// for so long. Its disk should append well within the lease.
package raftguard
