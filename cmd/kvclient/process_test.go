package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/localcluster"
	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
)

// binary runs the built kvclient against a cluster.
type binary struct {
	t         *testing.T
	path      string
	endpoints string
}

func newBinary(t *testing.T, c *localcluster.Cluster) *binary {
	return &binary{t, clustertest.BuildClient(t), strings.Join(c.Endpoints(), ",")}
}

func (b *binary) run(stdin string, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env = append(os.Environ(), "KVCLIENT_ENDPOINTS="+b.endpoints)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(b.t, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func TestCommandsOnACluster(t *testing.T) {
	b := newBinary(t, clustertest.Start(t, localcluster.Config{RestartDelay: 200 * time.Millisecond}))
	long, large := strings.Repeat("k", 5000), strings.Repeat("v", 1<<20+1)
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		out   string
	}{
		{"", []string{"put", "greeting", "olá"}, 0, "OK\n"},
		{"", []string{"get", "greeting"}, 0, "olá"},
		{"a\x00b\n", []string{"put", "binary"}, 0, "OK\n"},
		{"", []string{"get", "binary"}, 0, "a\x00b\n"},
		{"", []string{"put", "empty"}, 0, "OK\n"},
		{"", []string{"get", "empty"}, 0, ""},
		{"", []string{"put", "minus", "--", "-5"}, 0, "OK\n"},
		{"", []string{"incr", "minus", "--by", "-3"}, 0, "-8\n"},
		{"", []string{"put", "greeting", "hi", "--prev"}, 0, "olá"},
		{"", []string{"get", "nothing"}, 3, ""},
		{"", []string{"delete", "nothing"}, 0, "0\n"},
		{"", []string{"incr", "greeting"}, 4, ""},
		{"", []string{"put", "max", "9223372036854775807"}, 0, "OK\n"},
		{"", []string{"incr", "max"}, 4, ""},
		{"", []string{"put", "min", "--", "-9223372036854775808"}, 0, "OK\n"},
		{"", []string{"incr", "min", "--by", "-1"}, 4, ""},
		{"", []string{"append", "log", "ab"}, 0, "2\n"},
		{"", []string{"append", "log", "cd"}, 0, "4\n"},
		{"", []string{"cas", "greeting", "hello", "--expect", "hi"}, 0, "OK\n"},
		{"", []string{"cas", "greeting", "again", "--expect", "hi"}, 4, ""},
		{"", []string{"cas", "new", "x", "--absent"}, 0, "OK\n"},
		{"", []string{"cas", "new", "y", "--expect-version", "1"}, 0, "OK\n"},
		{`{"compare":[{"key":"new","value":"y"}],"then":[{"put":{"key":"a","value":"1"}},{"get":{"key":"new"}}]}`, []string{"txn"}, 0, "succeeded\nnew\ty\n"},
		{`{"compare":[{"key":"new","exists":false}],"then":[{"delete":{"key":"a"}}]}`, []string{"txn"}, 4, "compare failed\n"},
		{"", []string{"list", "m"}, 0, "max\nmin\nminus\n"},
		{"", []string{"get", "--prefix", "gr"}, 0, "greeting\thello\n"},
		{"", []string{"delete", "--prefix", "m"}, 0, "3\n"},
		{"", []string{"put", long, "x"}, 7, ""},
		{large, []string{"put", "large"}, 7, ""},
		{"", []string{"settings", "set", "max_value_bytes=2097152"}, 0, "OK\n"},
		{large, []string{"put", "large"}, 0, "OK\n"},
		{"", []string{"settings", "set", "no_such_setting=1"}, 2, ""},
		{"", []string{"put", "session", "x", "--ttl", "1h"}, 0, "OK\n"},
	} {
		r := b.run(c.stdin, c.args...)
		name := strings.Join(c.args, " ")
		require.Equal(t, c.code, r.code, "%.60s: %s", name, r.stderr)
		require.Equal(t, c.out, r.stdout, "%.60s", name)
		require.Equal(t, c.code != 0, r.stderr != "", "%.60s: an error and nothing else says something: %s", name, r.stderr)
	}
	require.Equal(t, large, b.run("", "get", "large").stdout)
	require.Contains(t, b.run("", "get", "session", "-o", "json").stdout, `"ttl_ms":`)
	require.Equal(t, 0, b.run("", "status").code)
	r := b.run("", "clients")
	require.Equal(t, 0, r.code)
	require.NotContains(t, r.stdout, "kvclient", "one-shot clients close themselves")
}

func TestStatusTellsDegradedFromDown(t *testing.T) {
	c := clustertest.Start(t, localcluster.Config{})
	b := newBinary(t, c)
	l := clustertest.WaitReady(t, c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var rest []*localcluster.Node
	for _, n := range c.Nodes() {
		if n != l {
			rest = append(rest, n)
		}
	}
	_, err := rest[0].Stop(ctx)
	require.NoError(t, err)
	require.Equal(t, exitDegraded, b.run("", "status").code)
	require.Equal(t, 0, b.run("", "put", "k", "v").code, "the cluster serves")
	_, err = rest[1].Stop(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.run("", "status").code == exitUnavailable }, 20*time.Second, 100*time.Millisecond)
	require.Contains(t, []int{exitUnavailable, exitUnknown}, b.run("", "put", "k", "w", "--timeout", "2s").code)
	require.Equal(t, exitUnavailable, b.run("", "get", "k", "--timeout", "2s").code)
	require.Equal(t, "v", b.run("", "get", "k", "--timeout", "2s", "--consistency", "serializable").stdout)
}

// drill runs a drill under kills and returns its result.
func drillUnderKills(t *testing.T, c *localcluster.Cluster, seconds string) (drillResult, int) {
	b := newBinary(t, c)
	done := make(chan result, 1)
	go func() { done <- b.run("", "drill", "--duration", seconds) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	killed := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := c.KillLeader(ctx); err != nil && ctx.Err() == nil {
				killed <- err
				return
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		killed <- nil
	}()
	r := <-done
	cancel()
	require.NoError(t, <-killed)
	var d drillResult
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &d), r.stderr)
	return d, r.code
}

func TestG1DrillIsExactUnderKills(t *testing.T) {
	c := clustertest.Start(t, localcluster.Config{RestartDelay: 200 * time.Millisecond})
	d, code := drillUnderKills(t, c, "15s")
	t.Logf("%+v", d)
	require.True(t, d.Exact)
	require.Zero(t, code)
	require.GreaterOrEqual(t, d.LeaderChanges, 3)
	require.GreaterOrEqual(t, d.Replayed, int64(1))
}

// The drill is tested too: on a server that doesn't look for duplicates it must not come out exact.
func TestG1DrillNoticesDuplicates(t *testing.T) {
	c := clustertest.Start(t, localcluster.Config{Binary: clustertest.Build(t, "-tags", "broken_noduplicatecheck"), RestartDelay: 200 * time.Millisecond})
	d, code := drillUnderKills(t, c, "20s")
	t.Logf("%+v", d)
	require.False(t, d.Exact)
	require.Equal(t, exitOther, code)
	require.Greater(t, d.Final-d.Initial, d.Acknowledged)
}
