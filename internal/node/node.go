package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/raftguard"
	"github.com/kvonce/kvonce/transport"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Bounds of a graceful stop; together they stay below the 10 s in which a node must end.
const (
	drainTimeout    = 2 * time.Second
	handOverTimeout = 3 * time.Second
	serverTimeout   = 1 * time.Second
	raftTimeout     = 3 * time.Second
)

// raftTransportTimeout bounds one call between nodes. It must stay at most 4 s, or a leadership transfer to a node
// that just died outlasts what raft allows for it.
const raftTransportTimeout = 3 * time.Second

// keptSnapshots is how many snapshots stay on disk.
const keptSnapshots = 2

// Node is one node of a cluster. Use New.
type Node struct {
	config Config
	log    *slog.Logger
	core   atomic.Pointer[core]
	stay   atomic.Bool // leave leadership where it is when stopping
	fatal  chan error
}

// New makes a node. Nothing is started, and nothing is read or written, before Run.
func New(c Config) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, &FatalError{ExitUsage, err}
	}
	return &Node{config: c, log: c.Logger.With("node", c.ID), fatal: make(chan error, 1)}, nil
}

// KeepLeadership makes the stop leave leadership where it is: the whole cluster is stopping.
func (n *Node) KeepLeadership() { n.stay.Store(true) }

// Run runs the node until ctx ends, then stops it gracefully within 10 s. A disk that hangs, a log that can't be
// written and the like end it at once: the error says how the process should exit; see ExitCode.
func (n *Node) Run(ctx context.Context) error {
	dir, err := openFolder(n.config.DataDir, n.config.ID, n.config.ClusterName)
	if err != nil {
		return err
	}
	r := &running{Node: n, dir: dir, peers: newPeers(&n.config, dir.id)}
	if err := r.listen(); err != nil {
		return errors.Join(err, dir.Close())
	}
	return errors.Join(r.run(ctx), dir.Close())
}

// die takes the first error that must end the process.
func (n *Node) die(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// running is what a node has open while it runs.
type running struct {
	*Node
	dir     *folder
	peers   *peers
	layer   *transport.StreamLayer
	client  net.Listener
	server  *transport.Server
	remotes *remotes
	closes  []io.Closer // last one first
	wg      sync.WaitGroup
}

func (r *running) listen() error {
	raftPort, err := net.Listen("tcp", r.config.ListenRaft)
	if err != nil {
		return fmt.Errorf("raft port: %w", err)
	}
	if r.client, err = net.Listen("tcp", r.config.ListenClient); err != nil {
		return errors.Join(fmt.Errorf("client port: %w", err), raftPort.Close())
	}
	r.layer = transport.NewStreamLayer(raftPort, r.config.AdvertiseRaft, r.peers, transport.StreamOptions{Logger: r.log})
	r.server = transport.NewServer(&backend{r.Node}, transport.ServerOptions{Logger: r.log})
	r.server.RegisterService(&kvoncev1.Peer_ServiceDesc, &peerService{node: r.Node})
	r.remotes = newRemotes(func() fsm.Incarnation { return r.core.Load().machine.View().Incarnation() })
	return nil
}

// run starts everything, waits for the end, and stops everything in order.
func (r *running) run(ctx context.Context) error {
	alive, kill := context.WithCancel(context.WithoutCancel(ctx)) // ends when everything has to
	defer kill()
	r.wg.Go(func() {
		if err := r.layer.Run(alive); err != nil {
			r.die(err)
		}
	})
	r.wg.Go(func() {
		if err := r.server.Serve(r.client); err != nil {
			r.die(fmt.Errorf("client port: %w", err))
		}
	})
	k, err := r.start(ctx)
	if err != nil {
		r.stopServing(context.Background())
		err = errors.Join(errIfNotStopped(ctx, err), r.layer.Close(), r.close())
		r.wg.Wait()
		return err
	}
	r.wg.Go(func() { r.watchBirth(alive, k) })
	inner, end := context.WithCancel(alive)
	defer end()
	served := make(chan struct{})
	go func() { k.Run(inner); close(served) }()
	select {
	case err := <-r.fatal: // nothing that runs can be trusted to end: the process has to
		return err
	case <-ctx.Done():
	}
	if err := r.stop(k, end, served); err != nil {
		return err
	}
	kill()
	r.wg.Wait()
	return nil
}

// errIfNotStopped drops the error of a start that was asked to stop.
func errIfNotStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// start brings the folder into a cluster if need be, and starts raft.
func (r *running) start(ctx context.Context) (*core, error) {
	b := &bootstrapper{config: &r.config, folder: r.dir, probe: r.layer.Probe, log: r.log}
	if err := b.Run(ctx); err != nil {
		return nil, err
	}
	m, err := r.dir.readMembers()
	if err != nil {
		return nil, err
	}
	stores, err := r.openStores()
	if err != nil {
		return nil, err
	}
	network := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: r.layer, MaxPool: 3, MaxRPCsInFlight: 1, Timeout: raftTransportTimeout, Logger: bridge(r.log)})
	r.closes = append(r.closes, network, r.remotes)
	k, err := newCore(coreConfig{
		id: raft.ServerID(r.config.ID), tuning: r.config.Tuning, stores: stores, transport: network,
		records: r.peers.Records, probe: r.probe, remotes: r.remotes, log: r.log, fatal: r.guardFailed,
		genesis: fsm.Genesis{ClusterName: r.config.ClusterName, Settings: r.config.Settings},
	})
	if err != nil {
		return nil, err
	}
	r.peers.started(r.dir.id, m, k.machine.View)
	r.layer.Open()
	r.core.Store(k)
	r.server.SetServing(true)
	return k, nil
}

func (r *running) openStores() (s stores, err error) {
	dir := r.dir.raft()
	if err := raftguard.PrepareSnapshotDir(dir); err != nil {
		return s, fmt.Errorf("snapshots: %w", err)
	}
	bolt, err := raftguard.OpenBolt(filepath.Join(dir, boltFile))
	if err != nil {
		return s, doNotRestart("%s can't be opened: %w; restore the data folder, or remove the node and add it again under a new id", boltFile, err)
	}
	r.closes = append(r.closes, bolt)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, hclogFor(r.log))
	if err != nil {
		return s, fmt.Errorf("snapshots: %w", err)
	}
	return stores{bolt, bolt, snapshots}, nil
}

func hclogFor(l *slog.Logger) hclog.Logger { return bridge(l) }

func (r *running) probe(ctx context.Context, address string) error {
	_, err := r.layer.Probe(ctx, address)
	return err
}

// guardFailed gives what a guard found its exit code, unless it has one: a disk that stalls or fails may be better
// after a restart.
func (r *running) guardFailed(err error) {
	r.log.Error("the node must end", "error", err)
	var coded *FatalError
	if !errors.As(err, &coded) {
		err = &FatalError{ExitRestart, err}
	}
	r.die(err)
}

// watchBirth writes the incarnation of the cluster into the folder as soon as it is applied.
func (r *running) watchBirth(ctx context.Context, k *core) {
	for {
		next := k.machine.change()
		if v := k.machine.View(); v.Born() {
			if err := r.dir.setCluster(v.Incarnation()); err != nil {
				r.die(err)
				return
			}
			r.peers.clusterKnown(r.dir.id)
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// stop refuses new work, lets what is under way end, hands leadership over, and stops raft before its stores.
func (r *running) stop(k *core, end context.CancelFunc, served <-chan struct{}) error {
	r.log.Info("stopping")
	bounded := func(d time.Duration, f func(context.Context)) {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		f(ctx)
	}
	r.server.SetServing(false)
	k.propose.Close()
	bounded(drainTimeout, k.propose.Drain)
	if !r.stay.Load() {
		bounded(handOverTimeout, func(ctx context.Context) {
			if err := k.HandOver(ctx); err != nil {
				r.log.Warn("leadership not handed over", "error", err)
			}
		})
	}
	bounded(serverTimeout, r.stopServing)
	end()
	err := r.layer.Close()
	bounded(raftTimeout, func(ctx context.Context) { err = errors.Join(err, k.Shutdown(ctx)) })
	if err != nil {
		return err // raft may still use the stores
	}
	<-served
	return r.close()
}

func (r *running) stopServing(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	r.server.GracefulStop(ctx)
}

// close closes the stores and the transport, the last opened first.
func (r *running) close() (err error) {
	for i := len(r.closes) - 1; i >= 0; i-- {
		err = errors.Join(err, r.closes[i].Close())
	}
	return err
}
