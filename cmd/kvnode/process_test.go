//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// program is a running kvnode, whose output is collected.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *program) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts the built binary. It is killed at the end of the test at the latest.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(clustertest.Build(t), args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the state of the process tells more
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// says waits until the output contains a text.
func (p *program) says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.output(), text) }, clustertest.ReadyTimeout, 20*time.Millisecond,
		"it doesn't say %q", text)
}

func (p *program) signal(s os.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// exits waits for the end and requires the exit code.
func (p *program) exits(code int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(clustertest.ReadyTimeout):
		require.Fail(p.t, "it doesn't end", p.output())
	}
	require.Equal(p.t, code, p.cmd.ProcessState.ExitCode(), p.output())
}

// pids returns those of all nodes that were started.
func (p *program) pids() (list []int) {
	for _, m := range regexp.MustCompile(`started \(pid (\d+)\)`).FindAllStringSubmatch(p.output(), -1) {
		pid, err := strconv.Atoi(m[1])
		require.NoError(p.t, err)
		list = append(list, pid)
	}
	return list
}

// gone tells whether a process has ended. A system without anybody who asks for the exit codes of orphans keeps them
// as zombies.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

func (p *program) leavesNothing() {
	p.t.Helper()
	for _, pid := range p.pids() {
		require.Eventually(p.t, func() bool { return gone(pid) }, 20*time.Second, 20*time.Millisecond, "process %d", pid)
	}
}

// local is a local cluster and its parameters.
type local struct {
	nodes, base int
	dir         string
}

func newLocal(t *testing.T, nodes int) local {
	clustertest.Exclusive(t)
	return local{nodes, clustertest.FreePorts(t, nodes), filepath.Join(t.TempDir(), "data")}
}

func (l local) start(t *testing.T, more ...string) *program {
	args := []string{"local", fmt.Sprint("--nodes=", l.nodes), fmt.Sprint("--base-port=", l.base), "--data-dir=" + l.dir, "--restart-delay=50ms"}
	return start(t, append(args, more...)...)
}

// call asks node after node until one doesn't refuse.
func (l local) call(t *testing.T, r *kvoncev1.Request) (out *kvoncev1.Response) {
	t.Helper()
	require.Eventually(t, func() bool {
		for i := 1; i <= l.nodes; i++ {
			if out = callOne(t, fmt.Sprintf("127.0.0.1:%d", l.base+i), r); out.GetOutcome() == kvoncev1.Outcome_APPLIED {
				return true
			}
		}
		return false
	}, 10*time.Second, 20*time.Millisecond)
	return out
}

func callOne(t *testing.T, address string, r *kvoncev1.Request) *kvoncev1.Response {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	out, err := kvoncev1.NewKVClient(conn).Call(ctx, &kvoncev1.CallRequest{Hello: &kvoncev1.Hello{}, Request: r})
	if err != nil {
		return nil // the next node is asked
	}
	return out.Response
}

func put(key, value string) *kvoncev1.Request {
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Unregistered{Unregistered: &kvoncev1.Command{Kind: &kvoncev1.Command_Put{
		Put: &kvoncev1.Put{Key: []byte(key), Value: []byte(value)}}}}}
}

func get(key string) *kvoncev1.Request {
	return &kvoncev1.Request{Kind: &kvoncev1.Request_Read{Read: &kvoncev1.Read{Kind: &kvoncev1.Read_Get{Get: &kvoncev1.Get{Key: []byte(key)}}}}}
}

// G2: what was acknowledged is there after all nodes have stopped and started.
func TestG2LocalKeepsItsData(t *testing.T) {
	l := newLocal(t, 3)
	for round, end := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := l.start(t)
		p.says("cluster is ready: leader n")
		p.says("put greeting olá")
		if round > 0 {
			require.Equal(t, "olá", string(l.call(t, get("greeting")).GetRead().Kvs[0].Value))
		}
		require.Equal(t, kvoncev1.Code_OK, l.call(t, put("greeting", "olá")).Code)
		p.signal(end)
		p.exits(0)
		require.Contains(t, p.output(), "all nodes have stopped")
		require.Equal(t, 3, strings.Count(p.output(), "stopped (exit status 0)"), p.output())
		require.Len(t, p.pids(), 3)
		p.leavesNothing()
	}
}

// A supervisor that is killed leaves no node behind, and the data come up again right after it.
func TestG2LocalKilledLeavesNoChild(t *testing.T) {
	l := newLocal(t, 3)
	p := l.start(t)
	p.says("cluster is ready")
	l.call(t, put("k", "v"))
	p.signal(syscall.SIGKILL)
	next := l.start(t)
	p.leavesNothing()
	next.says("cluster is ready")
	require.Equal(t, "v", string(l.call(t, get("k")).GetRead().Kvs[0].Value))
	next.signal(syscall.SIGINT)
	next.exits(0)
}

func TestLocalRefusals(t *testing.T) {
	l := newLocal(t, 1)
	p := l.start(t)
	p.says("cluster is ready")
	second := l.start(t)
	second.exits(1)
	require.Contains(t, second.output(), fmt.Sprintf("process %d", p.cmd.Process.Pid))

	node := start(t, nodeArgs(l.dir, clustertest.FreePorts(t, 1))...)
	node.exits(1)
	require.Contains(t, node.output(), fmt.Sprintf("in use by another process (pid %d)", p.pids()[0]))
	elsewhere := l
	elsewhere.dir = t.TempDir()
	taken := elsewhere.start(t)
	taken.exits(1)
	require.Contains(t, taken.output(), "address already in use")
	p.signal(syscall.SIGINT)
	p.exits(0)

	l.start(t, "--nodes=2").exits(2)
	l.start(t, "--base-port=2000").exits(2)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "local.json"), []byte("nonsense"), 0o600))
	l.start(t).exits(10)
}

// A node whose folder was emptied is given up, and the others serve.
func TestG2LocalGivesUpAnEmptiedNode(t *testing.T) {
	l := newLocal(t, 3)
	p := l.start(t)
	p.says("cluster is ready")
	p.signal(syscall.SIGINT)
	p.exits(0)
	require.NoError(t, os.RemoveAll(filepath.Join(l.dir, "n2")))
	p = l.start(t)
	p.says("n2 ended (exit status 10) and isn't started again")
	p.says("under a new id")
	p.says("cluster is ready")
	require.Equal(t, kvoncev1.Code_OK, l.call(t, put("k", "v")).Code)
	p.signal(syscall.SIGINT)
	p.exits(0)
}

func TestLocalKillsLeadersAndStartsThemAgain(t *testing.T) {
	l := newLocal(t, 3)
	p := l.start(t, "--kill-leader-every=1s", "--", "--log-format=json")
	require.Eventually(t, func() bool { return strings.Count(p.output(), "killed leader n") >= 2 }, clustertest.ReadyTimeout, 20*time.Millisecond)
	require.Regexp(t, `killed leader n\d \(pid \d+\), new leader n\d after \d+\.\d s`, p.output())
	p.signal(syscall.SIGINT)
	p.exits(0)
	p.leavesNothing()
	logged, err := os.ReadFile(filepath.Join(l.dir, "n1", "log"))
	require.NoError(t, err)
	require.Equal(t, byte('{'), logged[0], "flags after -- reach the nodes")
}

func TestExitCodesOfTheBinary(t *testing.T) {
	clustertest.Exclusive(t)
	binary := clustertest.Build(t)
	for _, c := range usageErrors {
		cmd := exec.Command(binary, strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), c.env)
		out, err := cmd.CombinedOutput()
		var ended *exec.ExitError
		require.ErrorAs(t, err, &ended, c.args)
		require.Equal(t, 2, ended.ExitCode(), "%s: %s", c.args, out)
		require.Contains(t, string(out), c.want)
	}
	require.NoError(t, exec.Command(binary, "version").Run())
	require.NoError(t, exec.Command(binary, "help").Run())
}

func TestNodeStopsOnSignal(t *testing.T) {
	clustertest.Exclusive(t)
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		base := clustertest.FreePorts(t, 1)
		args := nodeArgs(t.TempDir(), base)
		args = append(args[:2], args[3:]...) // without --parent-pipe: the test has no pipe
		p := start(t, args...)
		require.Eventually(t, func() bool { return readyz(base) == 200 }, 10*time.Second, 20*time.Millisecond, p.output())
		p.signal(s)
		p.exits(0)
		require.Contains(t, p.output(), "msg=stopped")
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	exit := make(chan struct{})
	ctx := stopOnSignal(t.Context(), func() { close(exit) })
	self := os.Getpid()
	require.NoError(t, syscall.Kill(self, syscall.SIGTERM))
	<-ctx.Done()
	select {
	case <-exit:
		require.Fail(t, "the first signal is graceful")
	default:
	}
	require.NoError(t, syscall.Kill(self, syscall.SIGINT))
	<-exit
}
