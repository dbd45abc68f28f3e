package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/localcluster"
	"github.com/kvonce/kvonce/internal/localcluster/clustertest"
)

// elsewhere are commands of the README that other tests, or the gate, run.
var elsewhere = map[string]string{
	"go run ./cmd/kvnode local":                        "cmd/kvnode, TestLocal*",
	"go run ./cmd/kvnode local --kill-leader-every 3s": "cmd/kvnode, TestLocal*",
	"go test ./...":                                    "the gate",
	"go test ./internal/localcluster -run '^$' -bench Writes -benchtime 200000x": "below, with fewer writes",
}

// shellLines returns the lines of the sh blocks of a Markdown file.
func shellLines(t *testing.T, name string) (lines []string) {
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	in := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```sh":
			in = true
		case line == "```":
			in = false
		case in && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}

// Every command that the README shows does what it says.
func TestReadmeCommands(t *testing.T) {
	b := newBinary(t, clustertest.Start(t, localcluster.Config{RestartDelay: 200 * time.Millisecond}))
	ran := 0
	for _, line := range shellLines(t, "../../README.md") {
		if _, ok := elsewhere[line]; ok {
			continue
		}
		args, ok := strings.CutPrefix(line, "go run ./cmd/kvclient ")
		require.True(t, ok, "nothing runs %q", line)
		args = strings.Replace(args, "--duration 60s", "--duration 3s", 1)
		r := b.run("", strings.Fields(args)...)
		require.Zero(t, r.code, "%s: %s", line, r.stderr)
		require.NotEmpty(t, r.stdout, line)
		ran++
	}
	require.Greater(t, ran, 5)
}

func TestReadmeBenchmark(t *testing.T) {
	cmd := exec.Command("go", "test", "./internal/localcluster", "-run", "^$", "-bench", "Writes", "-benchtime", "2000x")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "writes/s")
}
