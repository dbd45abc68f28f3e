package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/internal/raftguard"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// probeEvery is how often a node that waits for its cluster asks the others.
const probeEvery = 250 * time.Millisecond

// bootstrapper brings an empty data folder into a cluster, once.
//
// Only the node with the lowest id decides: when every other node answers, is empty, and was started with the same
// list and cluster name, it takes down which data folder each id has, and starts. The others start with that same
// map when a node shows it and it has their own folder. A folder that was emptied since then finds itself not in
// the map, and stays out for good: it has forgotten its votes.
type bootstrapper struct {
	config *Config
	folder *folder
	probe  func(ctx context.Context, address string) (*kvoncev1.PeerHello, error)
	log    *slog.Logger
	said   string // what was logged last
}

// Run returns when the data folder has a raft folder.
func (b *bootstrapper) Run(ctx context.Context) error {
	if b.folder.id.Bootstrapped {
		return nil
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		m, err := b.decide(b.ask(ctx))
		if err != nil {
			return err
		}
		if m != nil {
			return b.start(m)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ask probes all other nodes at once. A node that doesn't answer has no hello.
func (b *bootstrapper) ask(ctx context.Context) map[string]*kvoncev1.PeerHello {
	type answer struct {
		id    string
		hello *kvoncev1.PeerHello
	}
	answers := make(chan answer)
	n := 0
	for _, p := range b.config.InitialCluster {
		if p.ID == b.config.ID {
			continue
		}
		n++
		go func() {
			h, err := b.probe(ctx, p.RaftAddress)
			if err != nil {
				h = nil
			}
			answers <- answer{p.ID, h}
		}()
	}
	hellos := map[string]*kvoncev1.PeerHello{}
	for range n {
		if a := <-answers; a.hello != nil {
			hellos[a.id] = a.hello
		}
	}
	return hellos
}

// decide returns the map to start with, nil to wait, or an error when this node must never start.
func (b *bootstrapper) decide(hellos map[string]*kvoncev1.PeerHello) (members, error) {
	m := members{b.config.ID: b.folder.id.Folder}
	decider := b.config.InitialCluster[0].ID == b.config.ID
	for _, p := range b.config.InitialCluster {
		h := hellos[p.ID]
		if p.ID == b.config.ID || h == nil {
			continue
		}
		if reason := b.differs(p, h); reason != "" {
			b.say(slog.LevelWarn, "waiting: "+reason)
			return nil, nil
		}
		if h.GetBootstrapped() {
			return b.join(p, h, decider)
		}
		var folder hexID
		copy(folder[:], h.GetFolderIncarnation())
		m[p.ID] = folder
	}
	if !decider {
		b.say(slog.LevelInfo, fmt.Sprintf("waiting for %s to start the cluster", b.config.InitialCluster[0].ID))
		return nil, nil
	}
	if len(m) < len(b.config.InitialCluster) {
		b.say(slog.LevelInfo, fmt.Sprintf("waiting until all %d nodes answer: %d do", len(b.config.InitialCluster), len(m)))
		return nil, nil
	}
	return m, nil
}

// join starts with the map of a node that has started.
func (b *bootstrapper) join(p Peer, h *kvoncev1.PeerHello, decider bool) (members, error) {
	wayOut := "its data were lost, and it must not vote again; remove the node and add it again under a new id (kvclient member)"
	if decider {
		return nil, doNotRestart("node %s has an empty data folder, but %s has already started the cluster: %s", b.config.ID, p.ID, wayOut)
	}
	m := members{}
	for _, f := range h.GetFolders() {
		var folder hexID
		copy(folder[:], f.GetFolderIncarnation())
		m[f.GetNodeId()] = folder
	}
	if m[b.config.ID] != b.folder.id.Folder {
		return nil, doNotRestart("node %s has an empty data folder, but the cluster was started with another one: %s", b.config.ID, wayOut)
	}
	return m, nil
}

// differs says why a node can't be in one cluster with this one.
func (b *bootstrapper) differs(p Peer, h *kvoncev1.PeerHello) string {
	switch {
	case h.GetNodeId() != p.ID:
		return fmt.Sprintf("at %s is node %s, not %s", p.RaftAddress, h.GetNodeId(), p.ID)
	case h.GetClusterName() != b.config.ClusterName:
		return fmt.Sprintf("node %s belongs to cluster %q, this is %q", p.ID, h.GetClusterName(), b.config.ClusterName)
	case !h.GetBootstrapped() && !slices.EqualFunc(h.GetInitialCluster(), b.config.InitialCluster, samePeer):
		return fmt.Sprintf("node %s was started with another --initial-cluster", p.ID)
	}
	return ""
}

func samePeer(a *kvoncev1.PeerAddress, p Peer) bool {
	return a.GetNodeId() == p.ID && a.GetRaftAddress() == p.RaftAddress
}

// say logs what the node waits for, once.
func (b *bootstrapper) say(level slog.Level, text string) {
	if text != b.said {
		b.said = text
		b.log.Log(context.Background(), level, text)
	}
}

// start makes the raft folder with the first configuration in its log.
func (b *bootstrapper) start(m members) error {
	err := b.folder.makeRaft(m, func(dir string) error {
		store, err := raftguard.OpenBolt(filepath.Join(dir, boltFile))
		if err != nil {
			return err
		}
		_, inmem := raft.NewInmemTransport(raft.ServerAddress(b.config.AdvertiseRaft)) // only encodes addresses
		conf := raft.DefaultConfig()
		conf.LocalID = raft.ServerID(b.config.ID)
		err = raft.BootstrapCluster(conf, store, raftguard.NewVoteStore(store), raft.NewInmemSnapshotStore(), inmem, b.configuration())
		return errors.Join(err, store.Close())
	})
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	b.log.Info("cluster configuration written", "nodes", len(m))
	return nil
}

func (b *bootstrapper) configuration() (c raft.Configuration) {
	for _, p := range b.config.InitialCluster {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.RaftAddress)})
	}
	return c
}
