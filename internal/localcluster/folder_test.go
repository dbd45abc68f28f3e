package localcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigValidate(t *testing.T) {
	good := Config{Binary: "kvnode", Nodes: 3, BasePort: 4100, DataDir: "d", RestartDelay: time.Second}
	require.NoError(t, good.Validate())
	for want, change := range map[string]func(*Config){
		"path of kvnode":  func(c *Config) { c.Binary = "" },
		"--nodes":         func(c *Config) { c.Nodes = 0 },
		"--nodes is 10":   func(c *Config) { c.Nodes = 10 },
		"--base-port":     func(c *Config) { c.BasePort = 0 },
		"1 to 65332":      func(c *Config) { c.BasePort = 65333 },
		"--data-dir":      func(c *Config) { c.DataDir = "" },
		"--restart-delay": func(c *Config) { c.RestartDelay = time.Minute },
	} {
		c := good
		change(&c)
		_, err := New(c)
		require.ErrorContains(t, err, want)
	}
}

func TestPortsOfNodes(t *testing.T) {
	c, err := New(Config{Binary: "kvnode", Nodes: 2, BasePort: 4100, DataDir: "d", Flags: []string{"--a=1"},
		NodeFlags: map[string][]string{"n2": {"--b=2"}}})
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:4101", "127.0.0.1:4102"}, c.Endpoints())
	require.Equal(t, []string{"--id=n2", "--data-dir=d/n2", "--parent-pipe", "--listen-client=127.0.0.1:4102",
		"--listen-raft=127.0.0.1:4202", "--listen-http=127.0.0.1:4302",
		"--initial-cluster=n1=127.0.0.1:4201,n2=127.0.0.1:4202", "--a=1", "--b=2"}, c.Node("n2").args())
	require.Nil(t, c.Node("n3"))
}

func TestFolderRemembersTheCluster(t *testing.T) {
	c := Config{Nodes: 3, BasePort: 4100, DataDir: t.TempDir()}
	f, err := openFolder(&c)
	require.NoError(t, err)
	require.False(t, f.old)
	_, err = openFolder(&c)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("process %d", os.Getpid()), "it says by whom")
	require.NoError(t, f.Close())

	for want, other := range map[string]Config{
		"say --nodes 3":        {Nodes: 5, BasePort: 4100, DataDir: c.DataDir},
		"say --base-port 4100": {Nodes: 3, BasePort: 5100, DataDir: c.DataDir},
	} {
		_, err := openFolder(&other)
		require.ErrorIs(t, err, ErrDiffers)
		require.ErrorContains(t, err, want)
	}
	f, err = openFolder(&c)
	require.NoError(t, err, "a refusal gives the folder free")
	require.True(t, f.old)
	require.NoError(t, f.Close())
}

func TestFolderOfAnotherLayout(t *testing.T) {
	for name, content := range map[string]string{
		"local.json":   `{"format":2}`,
		"node.json":    `{}`,
		"n1/node.json": `{}`,
	} {
		c := Config{Nodes: 3, BasePort: 4100, DataDir: t.TempDir()}
		path := filepath.Join(c.DataDir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := openFolder(&c)
		require.ErrorIs(t, err, ErrLayout, name)
	}
}

func TestLogIsSetAsideWhenLarge(t *testing.T) {
	name := filepath.Join(t.TempDir(), "n1", "log")
	write := func(text string) {
		f, err := openLog(name)
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	write("1\n")
	write("2\n3\n4\n5\n6\n7\n")
	require.Equal(t, "3\n4\n5\n6\n7", tail(name))
	require.NoFileExists(t, name+".1")
	require.NoError(t, os.Truncate(name, maxLogBytes+1))
	write("new\n")
	require.Equal(t, "new", tail(name))
	require.FileExists(t, name+".1")
	require.Contains(t, tail(name+".none"), "no such file")
}

func TestEnvironmentOfNodes(t *testing.T) {
	got := environment([]string{"PATH=/bin", "KVNODE_NODES=5"}, []string{"KVNODE_LOG_LEVEL=debug"})
	require.Equal(t, "PATH=/bin KVNODE_LOG_LEVEL=debug", strings.Join(got, " "))
}
