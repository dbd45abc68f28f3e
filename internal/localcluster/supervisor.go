package localcluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxRestartDelay is the longest that a node which keeps ending is left alone.
	maxRestartDelay = 30 * time.Second
	// steadyAfter is how long a node must have run for its next end to count as the first.
	steadyAfter = 30 * time.Second
)

// Exit codes of kvnode with which starting it again is no use.
const (
	exitUsage        = 2
	exitDoNotRestart = 10
)

// State is what a supervisor says of its node.
type State struct {
	// PID is that of the running process, 0 when none runs.
	PID int
	// Wanted tells that the node runs or will be started again by itself.
	Wanted bool
	// GaveUp tells that the node ended in a way that starting it again can't cure.
	GaveUp bool
	// Starts counts how often the node was started.
	Starts int
	// Last tells how the last process that ended did.
	Last Exit
}

// supervisor owns the process of one node.
type supervisor struct {
	node   *Node
	wanted bool
	gaveUp bool
	starts int
	proc   *process // nil when none runs
	last   Exit
	delay  time.Duration // before the last start by itself
	retry  *time.Timer   // runs while a start is due
}

// run starts the node and keeps it as it is wanted until ctx ends, then stops it.
func (s *supervisor) run(ctx context.Context) {
	s.launch()
	for {
		s.publish()
		select {
		case call := <-s.node.calls:
			s.reap() // a caller that saw the process end must find it gone
			call(s)
		case <-s.ended():
			s.afterEnd()
		case <-s.due():
			s.launch()
		case <-ctx.Done():
			s.shutdown()
			s.publish()
			return
		}
	}
}

func (s *supervisor) publish() {
	state := State{Wanted: s.wanted && !s.gaveUp, GaveUp: s.gaveUp, Starts: s.starts, Last: s.last}
	if s.proc != nil {
		state.PID = s.proc.cmd.Process.Pid
	}
	s.node.state.Store(&state)
}

// ended returns what is closed when the process ends; nil blocks for ever.
func (s *supervisor) ended() <-chan struct{} {
	if s.proc == nil {
		return nil
	}
	return s.proc.done
}

func (s *supervisor) due() <-chan time.Time {
	if s.retry == nil {
		return nil
	}
	return s.retry.C
}

// start starts the process unless it runs.
func (s *supervisor) start() error {
	s.cancelRetry()
	if s.gaveUp {
		s.gaveUp = false
		s.node.cluster.gaveUp.Add(-1)
	}
	s.wanted = true
	if s.proc != nil {
		return nil
	}
	p, err := startProcess(&s.node.cluster.config, s.node)
	if err != nil {
		return err
	}
	s.proc = p
	s.starts++
	s.node.cluster.say("%s started (pid %d): client %s, raft %s, http %s", s.node.id, p.cmd.Process.Pid,
		s.node.ClientAddress(), s.node.RaftAddress(), s.node.HTTPAddress())
	return nil
}

// launch starts the process by itself, and tries again later when that fails.
func (s *supervisor) launch() {
	if err := s.start(); err != nil {
		s.startLater(fmt.Sprintf("can't be started: %v", err), false)
	}
}

// reap takes note of a process that has ended.
func (s *supervisor) reap() {
	select {
	case <-s.ended():
		s.afterEnd()
	default:
	}
}

func (s *supervisor) afterEnd() {
	p := s.proc
	s.proc, s.last = nil, p.exit
	c := s.node.cluster
	switch {
	case !s.wanted:
		c.say("%s stopped (%s)", s.node.id, p.exit.Text)
	case p.exit.Code == exitUsage || p.exit.Code == exitDoNotRestart:
		s.giveUp()
	default:
		s.startLater("ended ("+p.exit.Text+")", p.killed || time.Since(p.started) > steadyAfter)
	}
}

// startLater has the node started again after the delay, which doubles each time unless this end counts as the first.
func (s *supervisor) startLater(what string, first bool) {
	c := s.node.cluster
	base := c.config.RestartDelay
	if base == 0 {
		c.say("%s %s", s.node.id, what)
		return
	}
	if s.delay *= 2; s.delay == 0 || first {
		s.delay = base
	}
	s.delay = min(s.delay, maxRestartDelay)
	s.retry = time.NewTimer(s.delay)
	c.say("%s %s, is started again in %v", s.node.id, what, s.delay)
}

func (s *supervisor) giveUp() {
	s.gaveUp = true
	c := s.node.cluster
	c.say("%s ended (%s) and isn't started again. The end of its log %s:\n%s", s.node.id, s.last.Text, s.node.LogPath(), s.node.LogTail())
	if int(c.gaveUp.Add(1)) == len(c.nodes) {
		c.giveUp(ErrAllGaveUp)
	}
}

func (s *supervisor) cancelRetry() {
	if s.retry != nil {
		s.retry.Stop()
		s.retry = nil
	}
}

// shutdown ends the process, gracefully if it can.
func (s *supervisor) shutdown() {
	s.cancelRetry()
	s.wanted = false
	if s.proc == nil {
		return
	}
	_ = s.proc.cmd.Process.Signal(continueSignal) // a paused node couldn't stop; one that has ended needn't
	s.proc.stop()
	timeout := time.NewTimer(s.node.cluster.patience)
	defer timeout.Stop()
	select {
	case <-s.proc.done:
	case <-timeout.C:
		s.node.cluster.say("%s hasn't stopped after %v and is killed", s.node.id, s.node.cluster.patience)
		_ = s.proc.cmd.Process.Kill() // fails only when it has ended
		<-s.proc.done
	}
	s.afterEnd()
}

// errNotUp is the answer to a signal for a node that doesn't run.
var errNotUp = errors.New("the node doesn't run")
