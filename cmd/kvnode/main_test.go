package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// runMain runs the program in this process.
func runMain(env []string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	m := &Main{Args: args, Env: env, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	code = m.Run(context.Background())
	return code, out.String(), errs.String()
}

// usageErrors are command lines that can't be, with what the message must name.
var usageErrors = []struct{ args, env, want string }{
	{"", "", "--id"},
	{"--nonsense", "", "--nonsense"},
	{"--id", "", "--id"},
	{"start", "", `no command "start"`},
	{"--id n1 stray", "", `"stray"`},
	{"--id n/1 --initial-cluster n1=127.0.0.1:4201", "", "--id"},
	{"--id n1", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n2=127.0.0.1:4202", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n1", "", "--initial-cluster"},
	{"--id n1 --initial-cluster =127.0.0.1:4201", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n1=127.0.0.1", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4202", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n1=http://127.0.0.1:4201", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201,n1=127.0.0.1:4202", "", "--initial-cluster"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --cluster-name=", "", "--cluster-name"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --data-dir=", "", "--data-dir"},
	{"--id n1 --listen-client 127.0.0.1:70000", "", "--listen-client"},
	{"--id n1 --listen-client 127.0.0.1:0", "", "--listen-client"},
	{"--id n1 --listen-client 127.0.0.1:http", "", "--listen-client"},
	{"--id n1 --listen-raft 127.0.0.1", "", "--listen-raft"},
	{"--id n1 --listen-http http://127.0.0.1:4301", "", "--listen-http"},
	{"--id n1 --advertise-client https://example.org", "", "--advertise-client"},
	{"--id n1 --advertise-raft example.org:-1", "", "--advertise-raft"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --listen-client 0.0.0.0:4101", "", "--advertise-client"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --listen-http [::]:4301", "", "--advertise-http"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --listen-raft :4201", "", "--advertise-raft"},
	{"--id n1 --setting nonsense=1", "", "--setting"},
	{"--id n1 --setting window", "", "--setting"},
	{"--id n1 --setting window=1s", "", "--setting"},
	{"--id n1 --setting window=0", "", "--setting: window is 0"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --log-level loud", "", "--log-level"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --log-format xml", "", "--log-format"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --heartbeat-timeout 1ms", "", "--heartbeat-timeout"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --election-timeout 1ms", "", "--election-timeout"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --leader-lease-timeout 1m", "", "--leader-lease-timeout"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --batch-requests 0", "", "--batch-requests"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --batch-bytes 1", "", "--batch-bytes"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --snapshot-bytes 1", "", "--snapshot-bytes"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --snapshot-entries 1", "", "--snapshot-entries"},
	{"--id n1 --trailing-entries -1", "", "--trailing-entries"},
	{"--id n1 --initial-cluster n1=127.0.0.1:4201 --disk-stall-timeout 1ms", "", "--disk-stall-timeout"},
	{"--id n1", "KVNODE_HEARTBEAT_TIMEOUT=soon", "KVNODE_HEARTBEAT_TIMEOUT"},
	{"--id n1", "KVNODE_LISTEN_RAFT=127.0.0.1:99999", "--listen-raft"},
	{"help me", "", "no help"},
	{"local --nodes 0", "", "--nodes"},
	{"local --nodes 10", "", "--nodes"},
	{"local --nodes three", "", "--nodes"},
	{"local --base-port 65535", "", "--base-port"},
	{"local --data-dir=", "", "--data-dir"},
	{"local --restart-delay 0", "", "--restart-delay"},
	{"local --restart-delay 1m", "", "--restart-delay"},
	{"local --kill-leader-every 1ms", "", "--kill-leader-every"},
	{"local --kill-leader-every -1s", "", "--kill-leader-every"},
	{"local --id n1", "", "--id"},
	{"local stray", "", `"stray"`},
	{"local stray -- --log-level debug", "", `"stray"`},
	{"local -- stray", "", `"stray"`},
	{"local -- --nonsense", "", "--nonsense"},
	{"local -- --id n1", "", "--id"},
	{"local -- --batch-bytes 1", "", "--batch-bytes"},
	{"local", "KVNODE_NODES=0", "--nodes"},
	{"local", "KVNODE_BATCH_BYTES=1", "--batch-bytes"},
}

func TestUsageErrors(t *testing.T) {
	for _, c := range usageErrors {
		code, stdout, stderr := runMain([]string{c.env}, strings.Fields(c.args)...)
		require.Equal(t, 2, code, "%s: %s", c.args, stderr)
		require.Contains(t, stderr, c.want, c.args)
		require.Contains(t, stderr, "kvnode help", c.args)
		require.Empty(t, stdout, c.args)
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var o nodeOptions
	var l localOptions
	for _, args := range []string{"help", "--help", "-h"} {
		code, stdout, _ := runMain(nil, args)
		require.Zero(t, code)
		require.NotContains(t, stdout, "parent-pipe")
		for _, s := range fsm.SettingInfos() {
			require.Contains(t, stdout, s.Name)
		}
		require.Equal(t, strings.Count(stdout, "\n      --"), countFlags(o.flags().FlagUsages()))
	}
	for _, args := range []string{"help local", "local --help"} {
		code, stdout, _ := runMain(nil, strings.Fields(args)...)
		require.Zero(t, code)
		require.Equal(t, strings.Count(stdout, "\n      --"), countFlags(l.flags().FlagUsages()))
	}
}

func countFlags(usages string) int { return strings.Count("\n"+usages, "\n      --") }

func TestVersion(t *testing.T) {
	code, stdout, _ := runMain(nil, "version")
	require.Zero(t, code)
	require.Regexp(t, `^kvnode (devel|v\S+) go1\.\S+ \w+/\w+\n$`, stdout)
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	var o nodeOptions
	env := []string{"KVNODE_ID=env", "KVNODE_DATA_DIR=d", "KVNODE_SETTING=window=7,max_clients=9", "KVNODE_BATCH_BYTES=8192",
		"KVNODE_PARENT_PIPE=true", "KVNODE_UNKNOWN=1", "kvnode_cluster_name=x"}
	require.NoError(t, parse(o.flags(), []string{"--id=flag", "--initial-cluster=flag=127.0.0.1:4201"}, env))
	require.NoError(t, o.finish())
	require.Equal(t, "flag", o.config.ID)
	require.Equal(t, "d", o.config.DataDir)
	require.Equal(t, "kvonce", o.config.ClusterName)
	require.Equal(t, 8192, o.config.Tuning.BatchBytes)
	require.Equal(t, uint64(7), o.config.Settings[fsm.Window])
	require.Equal(t, uint64(9), o.config.Settings[fsm.MaxClients])
	require.False(t, o.parentPipe, "it isn't for people")
}

func TestFlagsThatLocalPassesOn(t *testing.T) {
	env := []string{"KVNODE_ID=n7", "KVNODE_LISTEN_RAFT=nonsense", "KVNODE_NODES=5", "KVNODE_BATCH_BYTES=8192", "KVNODE_LOG_LEVEL=warn"}
	got, err := passedOn([]string{"--setting=window=7", "--setting", "max_clients=9", "--log-level=debug"}, env)
	require.NoError(t, err)
	require.Equal(t, "--setting=window=7 --setting=max_clients=9 --log-level=debug --batch-bytes=8192", strings.Join(got, " "))
}

func TestInvitationNamesOtherEndpoints(t *testing.T) {
	var o localOptions
	text := o.invitation(strings.Split(defaultEndpoints, ","))
	require.Contains(t, text, "go run ./cmd/kvclient put greeting olá", "no kvclient lies beside the test binary")
	require.Contains(t, o.invitation([]string{"127.0.0.1:5101"}), "--endpoints 127.0.0.1:5101 put")
}

// A node in this process: it serves HTTP, and ends at "stop" and with the pipe.
func TestNodeStopsWithItsParent(t *testing.T) {
	clustertest.Exclusive(t)
	for _, last := range []string{"stop\n", "nonsense\n", ""} {
		base := clustertest.FreePorts(t, 1)
		pipe, parent := io.Pipe()
		m := &Main{Args: nodeArgs(t.TempDir(), base), Stdin: pipe, Stdout: io.Discard, Stderr: t.Output()}
		ended := make(chan int, 1)
		go func() { ended <- m.Run(context.Background()) }()
		require.Eventually(t, func() bool { return readyz(base) == http.StatusOK }, 10*time.Second, 20*time.Millisecond)
		_, err := io.WriteString(parent, last)
		require.NoError(t, err)
		if last != "stop\n" {
			require.NoError(t, parent.Close())
		}
		require.Zero(t, <-ended)
	}
}

// nodeArgs are the flags of a cluster of one node.
func nodeArgs(dir string, base int) []string {
	address := func(offset int) string { return fmt.Sprintf("127.0.0.1:%d", base+offset+1) }
	return []string{"--id=n1", "--data-dir=" + filepath.Join(dir, "n1"), "--parent-pipe", "--listen-client=" + address(0),
		"--listen-raft=" + address(100), "--listen-http=" + address(200), "--initial-cluster=n1=" + address(100)}
}

func readyz(base int) int {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", base+201))
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

func TestLogFormats(t *testing.T) {
	for format, want := range map[string]string{"text": "level=WARN msg=x", "json": `"level":"WARN","msg":"x"`} {
		var b bytes.Buffer
		o := nodeOptions{logLevel: "warn", logFormat: format}
		log, err := o.logger(&b)
		require.NoError(t, err)
		log.Info("hidden")
		log.Warn("x")
		require.Contains(t, b.String(), want)
		require.NotContains(t, b.String(), "hidden")
	}
}
