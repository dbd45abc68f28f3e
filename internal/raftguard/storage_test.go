package raftguard

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// TestPrepareSnapshotDir: bare raft leaves the folders of unfinished snapshots where they are, readable by everybody.
func TestPrepareSnapshotDir(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, PrepareSnapshotDir(dir), "a new folder")
	require.NoError(t, os.Chmod(filepath.Join(dir, "snapshots"), 0o755))
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, hclog.NewNullLogger())
	require.NoError(t, err)
	persist(t, store, 10, 1)
	_ = sink(t, store, 20, 1) // the process dies here
	require.Equal(t, []fs.FileMode{0o755, 0o755}, modes(t, dir), "the fault shows")

	require.NoError(t, PrepareSnapshotDir(dir))
	require.Equal(t, []fs.FileMode{0o700}, modes(t, dir))
	info, err := os.Stat(filepath.Join(dir, "snapshots"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	list, err := store.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, uint64(10), list[0].Index)
}

// modes returns the permissions of the folders of snapshots.
func modes(t *testing.T, dir string) (all []fs.FileMode) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		all = append(all, info.Mode().Perm())
	}
	return all
}

func TestOpenBolt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	s, err := OpenBolt(path)
	require.NoError(t, err)
	require.NoError(t, s.StoreLog(&raft.Log{Index: 1, Term: 1}))
	start := time.Now()
	_, err = OpenBolt(path)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "data folder in use by another process")
	require.Less(t, time.Since(start), 3*boltTimeout, "bare bolt waits for ever")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	require.Less(t, info.Size(), int64(boltMap), "the map is address space, not disk")
	require.NoError(t, s.Close())
	s, err = OpenBolt(path)
	require.NoError(t, err)
	last, err := s.LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(1), last)
	require.NoError(t, s.Close())
}

func TestConfig(t *testing.T) {
	base := testConfig("a", time.Second)
	base.PreVoteDisabled, base.MaxAppendEntries = true, 500
	c, err := Config(base)
	require.NoError(t, err)
	require.True(t, c.BatchApplyCh)
	require.False(t, c.ShutdownOnRemove)
	require.True(t, c.NoLegacyTelemetry)
	require.False(t, c.PreVoteDisabled)
	require.True(t, c.NoSnapshotRestoreOnStart)
	require.Equal(t, 64, c.MaxAppendEntries)
	require.True(t, base.ShutdownOnRemove, "the base is left alone")

	base.NotifyCh = make(chan bool)
	_, err = Config(base)
	require.ErrorIs(t, err, errUnbuffered)
	base.NotifyCh = NewNotify().Chan()
	_, err = Config(base)
	require.NoError(t, err)
	base.LeaderLeaseTimeout = 2 * base.HeartbeatTimeout
	_, err = Config(base)
	require.ErrorContains(t, err, "LeaderLeaseTimeout")
}
