// Package clustertest runs clusters of real processes in tests: it builds the binaries, finds ports, and keeps
// process tests of different packages apart.
package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/localcluster"
)

const module = "github.com/kvonce/kvonce/"

// Bounds of waiting. They are generous: a machine that runs tests has other things to do.
const (
	// ReadyTimeout is how long a cluster may take to be ready.
	ReadyTimeout = 30 * time.Second
	lockTimeout  = 8 * time.Minute
	endTimeout   = 30 * time.Second
)

// Exclusive waits until no other test, of whatever package, runs processes, and keeps the others waiting until the
// test ends. Clusters that share two cores disturb each other's elections. A test calls it once, and not in its
// subtests.
func Exclusive(t testing.TB) {
	t.Helper()
	lock := flock.New(filepath.Join(os.TempDir(), "kvonce-process-tests.lock"))
	ctx, cancel := context.WithTimeout(t.Context(), lockTimeout)
	defer cancel()
	got, err := lock.TryLockContext(ctx, 50*time.Millisecond)
	require.NoError(t, err, "other process tests didn't end")
	require.True(t, got)
	t.Cleanup(func() { require.NoError(t, lock.Unlock()) })
}

// binaries are those that this test binary has built.
var binaries struct {
	sync.Mutex
	dir   string
	built map[string]string
}

// Main runs the tests of a package that calls Build: TestMain does os.Exit(clustertest.Main(m)).
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kvonce-binaries-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder spoils no test
	binaries.dir, binaries.built = dir, map[string]string{}
	return m.Run()
}

// Build builds kvnode, with flags for go build such as -tags, and returns the path of the binary. It is built once per
// test binary and set of flags.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	return build(t, "kvnode", flags)
}

// BuildClient builds kvclient likewise.
func BuildClient(t testing.TB, flags ...string) string {
	t.Helper()
	return build(t, "kvclient", flags)
}

func build(t testing.TB, command string, flags []string) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	require.NotEmpty(t, binaries.dir, "TestMain must call clustertest.Main")
	key := command + " " + strings.Join(flags, " ")
	if path, ok := binaries.built[key]; ok {
		return path
	}
	path := filepath.Join(binaries.dir, fmt.Sprint(len(binaries.built)), command)
	args := slices.Concat([]string{"build", "-o", path}, flags, []string{module + "cmd/" + command})
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	binaries.built[key] = path
	return path
}

// FreePorts finds a base port whose ports for a number of nodes are free now. They lie below those that systems give
// to outgoing connections.
func FreePorts(t testing.TB, nodes int) int {
	t.Helper()
	for range 100 {
		if base := 11000 + rand.IntN(20000); free(base, nodes) {
			return base
		}
	}
	require.Fail(t, "no free ports")
	return 0
}

func free(base, nodes int) bool {
	for i := 1; i <= nodes; i++ {
		for _, offset := range []int{0, 100, 200} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset+i))
			if err != nil || l.Close() != nil {
				return false
			}
		}
	}
	return true
}

// Start runs a cluster until the test ends, and waits until it is ready. What the configuration leaves empty is
// filled: the binary, three nodes, free ports, a temporary data folder, and the log of the test.
func Start(t testing.TB, config localcluster.Config) *localcluster.Cluster {
	t.Helper()
	c, _ := StartUntil(t, config)
	return c
}

// StartUntil is like Start, and also returns what stops the cluster before the test ends.
func StartUntil(t testing.TB, config localcluster.Config) (c *localcluster.Cluster, stop func()) {
	t.Helper()
	fill(t, &config)
	c, err := localcluster.New(config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(endTimeout):
			require.Fail(t, "the cluster doesn't stop")
		}
	})
	t.Cleanup(func() {
		stop()
		logTails(t, c)
	})
	WaitReady(t, c)
	return c, stop
}

// logTails shows what the nodes of a failed test logged last.
func logTails(t testing.TB, c *localcluster.Cluster) {
	if !t.Failed() {
		return
	}
	for _, n := range c.Nodes() {
		t.Logf("end of the log of %s:\n%s", n.ID(), n.LogTail())
	}
}

func fill(t testing.TB, c *localcluster.Config) {
	if c.Binary == "" {
		c.Binary = Build(t)
	}
	if c.Nodes == 0 {
		c.Nodes = 3
	}
	if c.BasePort == 0 {
		c.BasePort = FreePorts(t, c.Nodes)
	}
	if c.DataDir == "" {
		c.DataDir = t.TempDir()
	}
	if c.Log == nil {
		c.Log = t.Output()
	}
}

// WaitReady waits until the cluster is ready and returns its leader.
func WaitReady(t testing.TB, c *localcluster.Cluster) *localcluster.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ReadyTimeout)
	defer cancel()
	leader, err := c.WaitReady(ctx)
	require.NoError(t, err)
	return leader
}
