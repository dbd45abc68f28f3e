//go:build unix

package localcluster

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines collects what a cluster says.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// scripted runs a cluster whose nodes are a shell script, until the test ends.
type scripted struct {
	*Cluster
	said  *lines
	stop  context.CancelFunc
	ended chan error
}

func runScript(t *testing.T, script string, nodes int, delay time.Duration) *scripted {
	return runPatiently(t, script, nodes, delay, 10*time.Second)
}

func runPatiently(t *testing.T, script string, nodes int, delay, patience time.Duration) *scripted {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "kvnode")
	require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"+script), 0o700))
	s := &scripted{said: &lines{}, ended: make(chan error, 1)}
	var err error
	base := 11000 + rand.IntN(20000) // the script listens nowhere, so the ports only have to be free for a moment
	s.Cluster, err = New(Config{Binary: binary, Nodes: nodes, BasePort: base, DataDir: filepath.Join(dir, "data"), RestartDelay: delay, Log: s.said})
	require.NoError(t, err)
	s.patience = patience
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.ended <- s.Run(ctx); close(s.ended) }()
	t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	return s
}

func (s *scripted) eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, 5*time.Millisecond, "%s", s.said)
}

const obedient = "read line\n" // ends at "stop", or with the pipe

func TestSupervisorGivesUp(t *testing.T) {
	for _, code := range []string{"2", "10"} {
		s := runScript(t, "echo the way out\nexit "+code, 2, time.Millisecond)
		require.ErrorIs(t, <-s.ended, ErrAllGaveUp)
		require.Contains(t, s.said.String(), "n2 ended (exit status "+code+") and isn't started again")
		require.Contains(t, s.said.String(), "the way out")
		state := s.Node("n1").State()
		require.True(t, state.GaveUp && !state.Wanted && state.Starts == 1, "%+v", state)
		require.Equal(t, "exit status "+code, state.Last.Text)
		require.ErrorIs(t, s.Node("n1").Start(t.Context()), ErrNotRunning)
	}
}

func TestSupervisorGoesOnWithTheOthers(t *testing.T) {
	s := runScript(t, `case "$1" in --id=n2) exit 10;; esac`+"\n"+obedient, 3, time.Millisecond)
	s.eventually(t, func() bool {
		return s.Node("n2").State().GaveUp && s.Node("n1").State().PID > 0 && s.Node("n3").State().PID > 0
	})
	s.stop()
	require.NoError(t, <-s.ended)
	require.Contains(t, s.said.String(), "n1 stopped (exit status 0)")
}

func TestSupervisorBacksOff(t *testing.T) {
	s := runScript(t, "exit 1", 1, 2*time.Millisecond)
	s.eventually(t, func() bool { return s.Node("n1").State().Starts >= 4 })
	for _, delay := range []string{"2ms", "4ms", "8ms"} {
		require.Contains(t, s.said.String(), "n1 ended (exit status 1), is started again in "+delay)
	}
}

func TestSupervisorStartsAKilledNodeWithoutMoreDelay(t *testing.T) {
	s := runScript(t, obedient, 1, 2*time.Millisecond)
	for i := range 3 {
		s.eventually(t, func() bool { return s.Node("n1").State().Starts == i+1 && s.Node("n1").State().PID > 0 })
		exit, err := s.Node("n1").Kill(t.Context())
		require.NoError(t, err)
		require.Equal(t, Exit{-1, "signal: killed"}, exit)
	}
	require.Equal(t, 3, strings.Count(s.said.String(), "is started again in 2ms"), "%s", s.said)
}

func TestSupervisorWithoutRestarts(t *testing.T) {
	s := runScript(t, obedient, 1, 0)
	n := s.Node("n1")
	_, err := n.Kill(t.Context())
	require.NoError(t, err)
	require.Zero(t, n.State().PID)
	exit, err := n.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, -1, exit.Code, "the last one is remembered")
	require.NoError(t, n.Start(t.Context()))
	require.NoError(t, n.Start(t.Context()), "it runs already")
	require.Equal(t, 2, n.State().Starts)
	exit, err = n.Stop(t.Context())
	require.NoError(t, err)
	require.Equal(t, "signal: terminated", exit.Text)
	require.NoError(t, n.Restart(t.Context()), "a stopped node is started")
	require.Equal(t, 3, n.State().Starts)
	require.NoError(t, n.Restart(t.Context()))
	require.Equal(t, 4, n.State().Starts)
	_, err = n.Stop(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, n.Pause(t.Context()), errNotUp)
}

func TestSupervisorKillsWhatDoesNotStop(t *testing.T) {
	s := runPatiently(t, "trap '' TERM\nwhile true; do read line; read line; sleep 0.01; done", 1, 0, 200*time.Millisecond)
	n := s.Node("n1")
	s.eventually(t, func() bool { return n.State().PID > 0 })
	s.stop()
	require.NoError(t, <-s.ended)
	require.Contains(t, s.said.String(), "n1 hasn't stopped after 200ms and is killed")
}

func TestSupervisorStopsAPausedNode(t *testing.T) {
	s := runScript(t, obedient, 1, 0)
	require.NoError(t, s.Node("n1").Pause(t.Context()))
	s.stop()
	require.NoError(t, <-s.ended)
	require.Contains(t, s.said.String(), "n1 stopped (exit status 0)")
}

func TestNodesHaveTheirOwnProcessGroup(t *testing.T) {
	s := runScript(t, obedient, 1, 0)
	n := s.Node("n1")
	s.eventually(t, func() bool { return n.State().PID > 0 })
	group, err := syscall.Getpgid(n.State().PID)
	require.NoError(t, err)
	require.Equal(t, n.State().PID, group)
}
