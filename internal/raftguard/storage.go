package raftguard

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// ErrInUse says that another process has a data folder open.
var ErrInUse = errors.New("data folder in use by another process")

const (
	boltTimeout = time.Second
	// boltMap is reserved as address space at open, so that a growing file needs no new map, which waits for readers:
	// 1 GiB, or 64 MiB where addresses have 32 bits.
	boltMap = 1 << (22 + bits.UintSize/8)
)

// OpenBolt opens the store of log and votes. The options keep a single append fast after a large truncation. The error
// is ErrInUse when another process has it open still after a second.
func OpenBolt(path string) (*raftboltdb.BoltStore, error) {
	s, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
		Timeout: boltTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: boltMap}})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", path, ErrInUse)
	}
	return s, err
}

// PrepareSnapshotDir removes what crashes have left of unfinished snapshots, and takes the folders that raft makes
// readable by everybody back to their owner. Dir is what raft.NewFileSnapshotStore is given next; the snapshots are in
// a folder below it.
func PrepareSnapshotDir(dir string) error {
	snapshots := filepath.Join(dir, "snapshots")
	if err := os.MkdirAll(snapshots, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(snapshots, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(snapshots)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(snapshots, e.Name())
		if strings.HasSuffix(e.Name(), ".tmp") {
			err = os.RemoveAll(path)
		} else if e.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
