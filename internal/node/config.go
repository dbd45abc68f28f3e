package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kvonce/kvonce/fsm"
)

// Peer is a node of the initial cluster.
type Peer struct {
	ID string
	// RaftAddress is host:port of its raft port.
	RaftAddress string
}

// Config says how a node runs. Use DefaultConfig and change what differs.
type Config struct {
	// ID names the node within the cluster.
	ID string
	// DataDir is the folder that holds everything the node must not lose.
	DataDir string
	// ClusterName must be the same on all nodes of a cluster.
	ClusterName string
	// ListenClient, ListenRaft and ListenHTTP are host:port of the three services.
	ListenClient, ListenRaft, ListenHTTP string
	// AdvertiseClient, AdvertiseRaft and AdvertiseHTTP are what others dial; the listen addresses when empty.
	AdvertiseClient, AdvertiseRaft, AdvertiseHTTP string
	// InitialCluster lists all nodes with which an empty data folder bootstraps, this one included.
	InitialCluster []Peer
	// Settings are the values of the replicated settings that a new cluster gets.
	Settings fsm.Settings

	Tuning Tuning
	Logger *slog.Logger
	// Version is told to clients and peers.
	Version string
}

// Tuning holds what an operator may adjust on a single node without changing what the cluster decides.
type Tuning struct {
	// HeartbeatTimeout is how long a follower waits for the leader before it stands for election: 200 ms to 10 s.
	HeartbeatTimeout time.Duration
	// ElectionTimeout is how long a candidate waits for votes: HeartbeatTimeout to 10 s.
	ElectionTimeout time.Duration
	// LeaderLeaseTimeout is how long a leader goes on without hearing from a quorum: up to HeartbeatTimeout.
	LeaderLeaseTimeout time.Duration
	// BatchRequests and BatchBytes bound one log entry.
	BatchRequests, BatchBytes int
	// SnapshotEntries and SnapshotBytes are how many entries, and how many bytes of log, after a snapshot the next one
	// is taken. At least 16, and 1 MiB.
	SnapshotEntries, SnapshotBytes uint64
	// TrailingEntries is how many entries are kept behind a snapshot for followers that lag; may be 0.
	TrailingEntries uint64
	// DiskStallTimeout is how long one write to the log may take before the process gives up: 1 s to 10 min.
	DiskStallTimeout time.Duration
}

// DefaultTuning returns the values that suit a local network and a disk that syncs in milliseconds.
func DefaultTuning() Tuning {
	return Tuning{
		HeartbeatTimeout: 500 * time.Millisecond, ElectionTimeout: 500 * time.Millisecond,
		LeaderLeaseTimeout: 400 * time.Millisecond,
		BatchRequests:      1024, BatchBytes: 1 << 20,
		SnapshotEntries: 8192, SnapshotBytes: 256 << 20, TrailingEntries: 1024,
		DiskStallTimeout: 10 * time.Second,
	}
}

// Ranges of the tuning values.
const (
	minHeartbeat = 200 * time.Millisecond
	maxHeartbeat = 10 * time.Second
)

func (t *Tuning) validate() error {
	for _, r := range []struct {
		name          string
		value, lo, hi int64
	}{
		{"heartbeat-timeout", int64(t.HeartbeatTimeout), int64(minHeartbeat), int64(maxHeartbeat)},
		{"election-timeout", int64(t.ElectionTimeout), int64(t.HeartbeatTimeout), int64(maxHeartbeat)},
		{"leader-lease-timeout", int64(t.LeaderLeaseTimeout), int64(100 * time.Millisecond), int64(t.HeartbeatTimeout)},
		{"disk-stall-timeout", int64(t.DiskStallTimeout), int64(time.Second), int64(10 * time.Minute)},
	} {
		if r.value < r.lo || r.value > r.hi {
			return fmt.Errorf("--%s is %v, must be %v to %v", r.name, time.Duration(r.value), time.Duration(r.lo), time.Duration(r.hi))
		}
	}
	switch {
	case t.BatchRequests < 1 || t.BatchRequests > 1<<14:
		return fmt.Errorf("--batch-requests is %d, must be 1 to %d", t.BatchRequests, 1<<14)
	case t.BatchBytes < 1<<12 || t.BatchBytes > 4<<20:
		return fmt.Errorf("--batch-bytes is %d, must be %d to %d", t.BatchBytes, 1<<12, 4<<20)
	case t.SnapshotEntries < 16:
		return fmt.Errorf("--snapshot-entries is %d, must be at least 16: without snapshots the log grows for ever", t.SnapshotEntries)
	case t.SnapshotBytes < 1<<20:
		return fmt.Errorf("--snapshot-bytes is %d, must be at least %d", t.SnapshotBytes, 1<<20)
	}
	return nil
}

// Validate fills what is empty and says what can't be: the error names the flag.
func (c *Config) Validate() error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.ID == "" || len(c.ID) > 64 || strings.ContainsAny(c.ID, "=, /\\") {
		return fmt.Errorf("--id is %q, must be 1 to 64 characters without space, comma, slash or equals sign", c.ID)
	}
	if c.DataDir == "" {
		return errors.New("--data-dir is empty")
	}
	if c.ClusterName == "" || len(c.ClusterName) > 128 {
		return fmt.Errorf("--cluster-name is %q, must be 1 to 128 bytes", c.ClusterName)
	}
	for _, a := range []struct {
		name      string
		listen    string
		advertise *string
	}{
		{"client", c.ListenClient, &c.AdvertiseClient},
		{"raft", c.ListenRaft, &c.AdvertiseRaft},
		{"http", c.ListenHTTP, &c.AdvertiseHTTP},
	} {
		if err := checkAddresses(a.name, a.listen, a.advertise); err != nil {
			return err
		}
	}
	if err := c.validateCluster(); err != nil {
		return err
	}
	if err := c.Tuning.validate(); err != nil {
		return err
	}
	if _, err := c.Settings.With(); err != nil {
		return fmt.Errorf("--setting: %w", err)
	}
	return nil
}

func checkAddresses(name, listen string, advertise *string) error {
	if strings.Contains(listen, "://") || strings.Contains(*advertise, "://") {
		return fmt.Errorf("--listen-%s and --advertise-%s take host:port, without a scheme", name, name)
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen-%s is %q: %w", name, listen, err)
	}
	if *advertise == "" {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return fmt.Errorf("--listen-%s is %q, which others can't dial: give --advertise-%s", name, listen, name)
		}
		*advertise = net.JoinHostPort(host, port)
	}
	if _, _, err := net.SplitHostPort(*advertise); err != nil {
		return fmt.Errorf("--advertise-%s is %q: %w", name, *advertise, err)
	}
	return nil
}

func (c *Config) validateCluster() error {
	slices.SortFunc(c.InitialCluster, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	found := false
	for i, p := range c.InitialCluster {
		if i > 0 && c.InitialCluster[i-1].ID == p.ID {
			return fmt.Errorf("--initial-cluster names %s twice", p.ID)
		}
		if _, _, err := net.SplitHostPort(p.RaftAddress); err != nil || strings.Contains(p.RaftAddress, "://") {
			return fmt.Errorf("--initial-cluster: address of %s is %q, must be host:port", p.ID, p.RaftAddress)
		}
		if p.ID == c.ID {
			found = true
			if p.RaftAddress != c.AdvertiseRaft {
				return fmt.Errorf("--initial-cluster says %s is at %s, but it advertises %s", p.ID, p.RaftAddress, c.AdvertiseRaft)
			}
		}
	}
	if !found {
		return fmt.Errorf("--initial-cluster doesn't name this node (%s)", c.ID)
	}
	return nil
}
