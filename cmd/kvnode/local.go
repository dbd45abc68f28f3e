package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/internal/localcluster"
)

// Ranges of the flags of a local cluster.
const (
	minRestartDelay = 10 * time.Millisecond
	minKillEvery    = time.Second
)

// readyNotice is after how long a cluster that isn't ready says why, again and again.
const readyNotice = 10 * time.Second

// localOptions are the flags of a local cluster.
type localOptions struct {
	nodes, basePort         int
	dataDir                 string
	restartDelay, killEvery time.Duration
}

func (o *localOptions) flags() *pflag.FlagSet {
	fs := newFlagSet("kvnode local")
	fs.IntVar(&o.nodes, "nodes", 3, "`number` of nodes, 1 to 9")
	fs.IntVar(&o.basePort, "base-port", 4100, "`port` that the ports of the nodes are counted from")
	fs.StringVar(&o.dataDir, "data-dir", "./kvonce-data", "`folder` of the cluster")
	fs.DurationVar(&o.restartDelay, "restart-delay", time.Second, "how long a node that ended is left alone, 10ms to 30s")
	fs.DurationVar(&o.killEvery, "kill-leader-every", 0, "kill the leader (SIGKILL) this often, whenever all nodes are up and caught up; at least 1s, 0 for never")
	return fs
}

// config checks the flags and makes the configuration of the cluster.
func (o *localOptions) config(passed []string, log io.Writer) (localcluster.Config, error) {
	binary, err := os.Executable()
	if err != nil {
		return localcluster.Config{}, err
	}
	if o.restartDelay < minRestartDelay {
		return localcluster.Config{}, usagef("--restart-delay is %v, must be %v to 30s", o.restartDelay, minRestartDelay)
	}
	if o.killEvery != 0 && o.killEvery < minKillEvery {
		return localcluster.Config{}, usagef("--kill-leader-every is %v, must be 0 or at least %v", o.killEvery, minKillEvery)
	}
	c := localcluster.Config{Binary: binary, Nodes: o.nodes, BasePort: o.basePort, DataDir: o.dataDir, Flags: passed,
		RestartDelay: o.restartDelay, Log: log}
	if err := c.Validate(); err != nil {
		return c, &usageError{err}
	}
	return c, nil
}

// runLocal runs a cluster of processes.
func (m *Main) runLocal(ctx context.Context, args []string) error {
	var o localOptions
	fs := o.flags()
	if err := parse(fs, args, m.Env); errors.Is(err, pflag.ErrHelp) {
		return m.help([]string{"local"})
	} else if err != nil {
		return err
	}
	dash := fs.ArgsLenAtDash()
	if dash > 0 || dash < 0 && fs.NArg() > 0 {
		return usagef("%q isn't a flag; flags for the nodes come after --", fs.Arg(0))
	}
	passed, err := passedOn(fs.Args(), m.Env)
	if err != nil {
		return err
	}
	m.Stdout = &lockedWriter{w: m.Stdout}
	config, err := o.config(passed, m.Stdout)
	if err != nil {
		return err
	}
	cluster, err := localcluster.New(config)
	if err != nil {
		return &usageError{err}
	}
	m.printf(m.Stdout, "a cluster of %d nodes with its data in %s\n", o.nodes, o.dataDir)
	return m.supervise(ctx, cluster, &o)
}

// passedOn checks the flags for all nodes and returns them, with those from the environment.
func passedOn(args, env []string) (flags []string, err error) {
	var o nodeOptions
	fs := o.flags()
	if err := fs.Parse(args); err != nil {
		return nil, usagef("after --: %w", err)
	}
	if fs.NArg() > 0 {
		return nil, usagef("after --: %q isn't a flag", fs.Arg(0))
	}
	for _, name := range identityFlags {
		if fs.Changed(name) {
			return nil, usagef("after --: a local cluster decides --%s itself", name)
		}
	}
	if err := fromEnv(fs, slices.DeleteFunc(slices.Clone(env), ofIdentity)); err != nil {
		return nil, err
	}
	fs.Visit(func(f *pflag.Flag) { flags = append(flags, flagText(f)...) })
	return flags, o.check()
}

// check tells whether a node would take the options. Its name and addresses are decided elsewhere.
func (o *nodeOptions) check() error {
	o.config.ID, o.cluster = "n1", []string{"n1=" + o.config.ListenRaft}
	_, _, err := o.build(io.Discard)
	return err
}

// ofIdentity tells whether an environment variable belongs to a flag that a local cluster decides itself.
func ofIdentity(v string) bool {
	return slices.ContainsFunc(identityFlags, func(name string) bool {
		prefix := envName(name) + "="
		return len(v) >= len(prefix) && v[:len(prefix)] == prefix
	})
}

// flagText writes a flag as arguments, one for each value.
func flagText(f *pflag.Flag) (args []string) {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		for _, v := range list.GetSlice() {
			args = append(args, "--"+f.Name+"="+v)
		}
		return args
	}
	return []string{"--" + f.Name + "=" + f.Value.String()}
}

// supervise runs the cluster and tells what it does.
func (m *Main) supervise(ctx context.Context, cluster *localcluster.Cluster, o *localOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if !m.announce(ctx, cluster, o) || o.killEvery == 0 {
			return
		}
		m.killLeaders(ctx, cluster, o.killEvery)
	})
	err := cluster.Run(ctx)
	cancel()
	wg.Wait()
	if err == nil {
		m.printf(m.Stdout, "all nodes have stopped\n")
	}
	return err
}

// announce waits until the cluster is ready, and then says so and what can be done with it.
func (m *Main) announce(ctx context.Context, cluster *localcluster.Cluster, o *localOptions) bool {
	for {
		attempt, cancel := context.WithTimeout(ctx, readyNotice)
		leader, err := cluster.WaitReady(attempt)
		cancel()
		switch {
		case err == nil:
			m.printf(m.Stdout, "cluster is ready: leader %s\n%s", leader.ID(), o.invitation(cluster.Endpoints()))
			return true
		case ctx.Err() != nil, errors.Is(err, localcluster.ErrNotRunning):
			return false
		}
		m.printf(m.Stdout, "the cluster isn't ready yet: %v; see the logs in %s/n*/log\n", err, o.dataDir)
	}
}

// lockedWriter lets several goroutines write, one at a time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// killLeaders kills the leader again and again.
func (m *Main) killLeaders(ctx context.Context, cluster *localcluster.Cluster, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		f, err := cluster.KillLeader(ctx)
		if err != nil {
			return // only the end of the cluster ends the wait for a leader
		}
		m.printf(m.Stdout, "killed leader %s (pid %d), new leader %s after %.1f s\n", f.Killed.ID(), f.PID, f.Leader.ID(), f.After.Seconds())
	}
}
