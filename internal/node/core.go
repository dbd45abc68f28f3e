package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/raftguard"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// stores are where raft keeps what it must not lose.
type stores struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
}

// coreConfig is what a core is made from. Tests give it a network and stores in memory.
type coreConfig struct {
	id        raft.ServerID
	tuning    Tuning
	stores    stores
	transport raftguard.Inner
	records   func() []fsm.Node
	genesis   fsm.Genesis
	remotes   remoteNodes
	// probe asks whether a node answers, before leadership is handed to it.
	probe func(ctx context.Context, address string) error
	log   *slog.Logger
	// fatal takes an error that must end the process.
	fatal func(error)
}

// remoteNodes asks other nodes, at their client addresses; see the Peer service.
type remoteNodes interface {
	readIndex(ctx context.Context, address string) (index uint64, err error)
	digest(ctx context.Context, address string, index uint64) (sum uint64, known bool)
}

// core is raft with the guards round it, the machine under it and the proposer and reader before it.
type core struct {
	config    coreConfig
	raft      *raft.Raft
	transport *raftguard.Transport
	watched   *raftguard.WatchedLog
	notify    *raftguard.Notify
	transfer  *raftguard.Transfer
	machine   *machine
	gate      *gate
	propose   *proposer
	reads     *reader
	lead      *leadership
	requests  *requests
}

// logCacheSize is how many recent entries, of up to about 1 MiB, are kept in memory for followers and reads.
const logCacheSize = 256

// newCore starts raft, which restores the newest snapshot and begins to talk to its peers; the rest starts with Run.
func newCore(c coreConfig) (*core, error) {
	k := &core{config: c, gate: &gate{}, notify: raftguard.NewNotify()}
	k.machine = newMachine(c.log, c.fatal)
	if err := k.restoreNewest(c.stores); err != nil {
		return nil, err
	}
	logs, snapshots, err := k.guardStores()
	if err != nil {
		return nil, err
	}
	conf, err := raftConfig(c, k.notify)
	if err != nil {
		return nil, err
	}
	if k.raft, err = raft.NewRaft(conf, k.machine, logs, k.guardVotes(), snapshots, k.transport); err != nil {
		return nil, fmt.Errorf("raft: %w", err)
	}
	clock := &clock{}
	k.propose = newProposer(k.raft, k.gate, clock, c.tuning)
	k.reads = newReader(k.raft, logs, k.transport, k.gate, k.machine, k.remoteIndex)
	k.lead = &leadership{raft: k.raft, gate: k.gate, clock: clock, machine: k.machine, propose: k.propose,
		records: c.records, genesis: c.genesis, log: c.log}
	k.lead.audit = &audit{self: c.id, configuration: k.reads.voters, machine: k.machine, remotes: c.remotes, log: c.log}
	k.requests = &requests{machine: k.machine, propose: k.propose, reads: k.reads, leader: k.Leader}
	k.transfer = raftguard.NewTransfer(k.raft, k.probeServer, c.fatal)
	return k, nil
}

// restoreNewest puts the newest snapshot into the machine, or says why this data folder must not be used. Raft would
// go on with an older snapshot when the newest can't be read, though the log between them is gone.
func (k *core) restoreNewest(s stores) error {
	wayOut := "restore the data folder, or remove the node and add it again under a new id"
	list, err := s.snapshots.List()
	if err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	var newest uint64
	if len(list) > 0 {
		newest = list[0].Index
		_, content, err := s.snapshots.Open(list[0].ID)
		if err == nil {
			err = k.machine.Restore(content)
		}
		if err != nil {
			return doNotRestart("the newest snapshot %s can't be read (%w): %s", list[0].ID, err, wayOut)
		}
	}
	first, err := s.logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if first > newest+1 {
		return doNotRestart("the log begins at entry %d, but the newest readable snapshot ends at %d: %s", first, newest, wayOut)
	}
	return nil
}

// guardStores puts the guards round the stores, the cache between them, and the transport beside them.
func (k *core) guardStores() (raft.LogStore, raft.SnapshotStore, error) {
	k.watched = raftguard.NewWatchedLog(k.config.stores.logs, k.config.tuning.DiskStallTimeout, k.config.fatal)
	cache, err := raft.NewLogCache(logCacheSize, k.watched)
	if err != nil {
		return nil, nil, err
	}
	guard, err := raftguard.NewSnapshotGuard(cache, k.config.stores.snapshots)
	if err != nil {
		return nil, nil, err
	}
	k.transport = raftguard.NewTransport(k.config.transport, k.config.id)
	k.transport.SetSnapshotGuard(guard)
	return guard.Logs(), guard.Snapshots(), nil
}

// guardVotes watches the store of terms and votes like that of the log, and keeps a vote in one piece.
func (k *core) guardVotes() raft.StableStore {
	watched := raftguard.NewWatchedStable(k.config.stores.stable, k.config.tuning.DiskStallTimeout, k.config.fatal)
	return raftguard.NewVoteStore(watched)
}

func raftConfig(c coreConfig, notify *raftguard.Notify) (*raft.Config, error) {
	conf := raft.DefaultConfig()
	conf.LocalID = c.id
	conf.HeartbeatTimeout, conf.ElectionTimeout = c.tuning.HeartbeatTimeout, c.tuning.ElectionTimeout
	conf.LeaderLeaseTimeout = c.tuning.LeaderLeaseTimeout
	conf.CommitTimeout = 10 * time.Millisecond
	conf.SnapshotThreshold, conf.TrailingLogs = c.tuning.SnapshotEntries, c.tuning.TrailingEntries
	conf.SnapshotInterval = 10 * time.Second
	conf.NotifyCh = notify.Chan()
	conf.Logger = bridge(c.log)
	return raftguard.Config(conf)
}

func (k *core) probeServer(ctx context.Context, s raft.Server) error {
	return k.config.probe(ctx, string(s.Address))
}

// Run serves until ctx ends; then it proposes nothing any more, and answers everybody who waits.
func (k *core) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { k.propose.Run(ctx) })
	wg.Go(func() { k.reads.Run(ctx) })
	wg.Go(func() { k.transfer.Run(ctx) })
	wg.Go(func() { k.snapshotByBytes(ctx) })
	wg.Go(func() { k.notify.Run(ctx, func(leader bool) { k.lead.changed(ctx, leader) }) })
	wg.Wait()
	k.lead.stop()
}

// Leader returns where the leader is, as far as this node knows.
func (k *core) Leader() *kvoncev1.Leader {
	_, id := k.raft.LeaderWithID()
	if id == "" {
		return nil
	}
	l := &kvoncev1.Leader{NodeId: string(id), Term: k.raft.CurrentTerm()}
	if n, ok := k.machine.View().Node(string(id)); ok {
		l.ClientAddress = n.ClientAddress
	}
	return l
}

// remoteIndex asks the leader for an index, when this node isn't it.
func (k *core) remoteIndex(ctx context.Context) (uint64, error) {
	l := k.Leader()
	if l.GetClientAddress() == "" || l.GetNodeId() == string(k.config.id) {
		return 0, errNotLeader
	}
	index, err := k.config.remotes.readIndex(ctx, l.GetClientAddress())
	if err != nil {
		k.config.log.Debug("the leader gave no index for a read", "leader", l.GetNodeId(), "error", err)
		return 0, errNotReady
	}
	return index, nil
}

// HandOver gives leadership to another voter, if this node leads and one can take it.
func (k *core) HandOver(ctx context.Context) error {
	if k.raft.State() != raft.Leader {
		return nil
	}
	target, ok := k.bestVoter()
	if !ok {
		return errors.New("no other voter answers")
	}
	return k.transfer.To(ctx, target.ID, target.Address)
}

// bestVoter returns the other voter that was heard of last.
func (k *core) bestVoter() (best raft.Server, ok bool) {
	var newest time.Time
	for _, s := range k.raft.GetConfiguration().Configuration().Servers {
		if at, heard := k.transport.LastAck(s.ID); s.ID != k.config.id && s.Suffrage == raft.Voter && heard && at.After(newest) {
			best, newest, ok = s, at, true
		}
	}
	return best, ok
}

// Shutdown stops raft within ctx. The transport must be closed first: raft may be in the middle of a snapshot that
// never ends.
func (k *core) Shutdown(ctx context.Context) error {
	if err := raftguard.Await(ctx, k.raft.Shutdown()); err != nil {
		return fmt.Errorf("raft didn't stop: %w", err)
	}
	return nil
}
