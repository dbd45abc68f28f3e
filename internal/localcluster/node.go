package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// Node is one node of a cluster. Its methods can be used from any goroutine while the cluster runs; before that they
// wait, and after that they fail with ErrNotRunning.
type Node struct {
	cluster *Cluster
	number  int // from 1
	id      string
	calls   chan func(*supervisor)
	state   atomic.Pointer[State]
}

func newNode(c *Cluster, number int) *Node {
	n := &Node{cluster: c, number: number, id: nodeID(number), calls: make(chan func(*supervisor))}
	n.state.Store(&State{})
	return n
}

// ID returns the id of the node.
func (n *Node) ID() string { return n.id }

// ClientAddress returns host:port of the client service.
func (n *Node) ClientAddress() string { return n.cluster.config.address(clientOffset, n.number) }

// RaftAddress returns host:port of the raft port.
func (n *Node) RaftAddress() string { return n.cluster.config.address(raftOffset, n.number) }

// HTTPAddress returns host:port of the HTTP port.
func (n *Node) HTTPAddress() string { return n.cluster.config.address(httpOffset, n.number) }

// DataDir returns the data folder of the node.
func (n *Node) DataDir() string { return filepath.Join(n.cluster.config.DataDir, n.id) }

// LogPath returns the file that the node logs to.
func (n *Node) LogPath() string { return filepath.Join(n.DataDir(), logFile) }

// LogTail returns the last lines of the log, or why there are none.
func (n *Node) LogTail() string { return tail(n.LogPath()) }

// State returns what is known of the process now.
func (n *Node) State() State { return *n.state.Load() }

// args returns the flags of the node. What is given for this node comes last, so that it wins.
func (n *Node) args() []string {
	c := &n.cluster.config
	args := []string{
		"--id=" + n.id, "--data-dir=" + n.DataDir(), "--parent-pipe",
		"--listen-client=" + n.ClientAddress(), "--listen-raft=" + n.RaftAddress(), "--listen-http=" + n.HTTPAddress(),
		"--initial-cluster=" + c.initialCluster(),
	}
	args = append(args, c.Flags...)
	return append(args, c.NodeFlags[n.id]...)
}

// call has the supervisor run f.
func (n *Node) call(ctx context.Context, f func(*supervisor) error) error {
	done := make(chan error, 1)
	run := func(s *supervisor) {
		err := f(s)
		s.publish()
		done <- err
	}
	select {
	case n.calls <- run:
		return <-done
	case <-n.cluster.over:
		return ErrNotRunning
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", n.id, context.Cause(ctx))
	}
}

// Start starts the node unless it runs. It is started again when it ends, if the configuration says so.
func (n *Node) Start(ctx context.Context) error { return n.call(ctx, (*supervisor).start) }

// Stop stops the node gracefully (SIGTERM) and waits until it has ended. It stays stopped until it is started.
func (n *Node) Stop(ctx context.Context) (Exit, error) {
	return n.end(ctx, func(s *supervisor) error {
		s.wanted = false
		s.cancelRetry()
		return s.signal(syscall.SIGTERM)
	})
}

// Kill ends the node at once (SIGKILL) and waits until it has ended. It is started again if the configuration says
// so.
func (n *Node) Kill(ctx context.Context) (Exit, error) {
	return n.end(ctx, func(s *supervisor) error {
		if s.proc != nil {
			s.proc.killed = true
		}
		return s.signal(os.Kill)
	})
}

// Wait waits until the process that runs now has ended, and tells how. When none runs it tells how the last one
// ended.
func (n *Node) Wait(ctx context.Context) (Exit, error) {
	return n.end(ctx, func(*supervisor) error { return nil })
}

// end asks the supervisor for the end of the process and waits for it.
func (n *Node) end(ctx context.Context, ask func(*supervisor) error) (exit Exit, err error) {
	var p *process
	err = n.call(ctx, func(s *supervisor) error {
		p, exit = s.proc, s.last
		return ask(s)
	})
	if err != nil || p == nil {
		return exit, err
	}
	select {
	case <-p.done:
		// Another call comes after the supervisor took note, unless the cluster is ending.
		if err := n.call(ctx, func(*supervisor) error { return nil }); err != nil && !errors.Is(err, ErrNotRunning) {
			return p.exit, err
		}
		return p.exit, nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("node %s: %w", n.id, context.Cause(ctx))
	}
}

// Restart stops the node gracefully and starts it.
func (n *Node) Restart(ctx context.Context) error {
	if _, err := n.Stop(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Pause stops the clock of the process (SIGSTOP): it keeps its connections and answers nothing.
func (n *Node) Pause(ctx context.Context) error { return n.send(ctx, pauseSignal) }

// Continue lets a paused process go on (SIGCONT).
func (n *Node) Continue(ctx context.Context) error { return n.send(ctx, continueSignal) }

func (n *Node) send(ctx context.Context, sig os.Signal) error {
	return n.call(ctx, func(s *supervisor) error {
		if s.proc == nil {
			return fmt.Errorf("node %s: %w", n.id, errNotUp)
		}
		return s.signal(sig)
	})
}

// signal sends a signal to the process, if one runs.
func (s *supervisor) signal(sig os.Signal) error {
	if s.proc == nil {
		return nil
	}
	if err := s.proc.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("node %s: %w", s.node.id, err)
	}
	return nil
}
