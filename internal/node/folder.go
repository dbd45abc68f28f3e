package node

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/durable"
)

// Names within a data folder.
const (
	lockFile     = "lock"
	identityFile = "node.json"
	raftFolder   = "raft"
	raftNew      = "raft.new" // while it is made; renamed into place when complete
	membersFile  = "members.json"
	boltFile     = "raft.db"
)

// identity is what a data folder says about itself, in node.json.
type identity struct {
	Format      int    `json:"format"`
	ID          string `json:"id"`
	ClusterName string `json:"cluster_name"`
	// Folder is the incarnation of the folder: 128 random bits, drawn before the node answers anything.
	Folder hexID `json:"folder"`
	// Cluster is the incarnation of the cluster, once it is applied.
	Cluster hexID `json:"cluster,omitzero"`
	// Bootstrapped tells that the raft folder exists. When it doesn't any more, the disk has lost votes.
	Bootstrapped bool `json:"bootstrapped"`
}

// hexID is an incarnation in JSON.
type hexID fsm.Incarnation

// MarshalText implements encoding.TextMarshaler.
func (h hexID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hexID) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(string(b))
	if err != nil || len(raw) != len(h) {
		return fmt.Errorf("%q isn't 32 hexadecimal digits", b)
	}
	copy(h[:], raw)
	return nil
}

// folder is an open data folder. It is locked as long as the process lives.
type folder struct {
	dir  string
	lock *flock.Flock
	id   identity
}

// openFolder locks the folder and reads its identity, or makes one in an empty folder.
func openFolder(dir, id, clusterName string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	f := &folder{dir: dir, lock: flock.New(filepath.Join(dir, lockFile))}
	if err := f.takeLock(); err != nil {
		return nil, err
	}
	err := f.readIdentity(id, clusterName)
	if err == nil {
		err = f.checkRaftFolder()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// takeLock fails at once, and says who has the folder.
func (f *folder) takeLock() error {
	got, err := f.lock.TryLock()
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	name := filepath.Join(f.dir, lockFile)
	if !got {
		owner, _ := os.ReadFile(name) // only for the message
		return fmt.Errorf("data folder %s in use by another process (pid %s)", f.dir, strings.TrimSpace(string(owner)))
	}
	return os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
}

func (f *folder) readIdentity(id, clusterName string) error {
	b, err := os.ReadFile(filepath.Join(f.dir, identityFile))
	if errors.Is(err, os.ErrNotExist) {
		return f.newIdentity(id, clusterName)
	} else if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := json.Unmarshal(b, &f.id); err != nil || f.id.Format != 1 {
		return doNotRestart("data folder %s: %s is damaged or of another version (%v); restore it, or remove the node and add it again under a new id", f.dir, identityFile, err)
	}
	switch {
	case f.id.ID != id:
		return doNotRestart("data folder %s belongs to node %s, this is %s", f.dir, f.id.ID, id)
	case f.id.ClusterName != clusterName:
		return doNotRestart("data folder %s belongs to cluster %q, this is %q", f.dir, f.id.ClusterName, clusterName)
	}
	return nil
}

func (f *folder) newIdentity(id, clusterName string) error {
	if _, err := os.Stat(f.raft()); err == nil {
		return doNotRestart("data folder %s has a raft folder but no %s: it isn't complete, restore it, or remove the node and add it again under a new id", f.dir, identityFile)
	}
	f.id = identity{Format: 1, ID: id, ClusterName: clusterName}
	_, _ = rand.Read(f.id.Folder[:]) // never fails
	return f.save()
}

// checkRaftFolder removes what a crash left of making the raft folder, and refuses a folder that has lost it.
func (f *folder) checkRaftFolder() error {
	if err := os.RemoveAll(filepath.Join(f.dir, raftNew)); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	_, err := os.Stat(f.raft())
	switch {
	case err == nil && !f.id.Bootstrapped: // a crash came between the rename and this mark
		f.id.Bootstrapped = true
		return f.save()
	case errors.Is(err, os.ErrNotExist) && f.id.Bootstrapped:
		return doNotRestart("data folder %s has lost its raft folder, and with it the votes of node %s: it must not vote again; remove the node and add it again under a new id", f.dir, f.id.ID)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

func (f *folder) raft() string { return filepath.Join(f.dir, raftFolder) }

// setCluster writes the incarnation of the cluster into the folder. Another one than before is another cluster.
func (f *folder) setCluster(c fsm.Incarnation) error {
	if f.id.Cluster == hexID(c) {
		return nil
	}
	if f.id.Cluster != (hexID{}) {
		return doNotRestart("data folder %s belongs to cluster %x, the log says %x", f.dir, f.id.Cluster, c)
	}
	f.id.Cluster = hexID(c)
	return f.save()
}

func (f *folder) save() error {
	b, err := json.MarshalIndent(&f.id, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(f.dir, identityFile), append(b, '\n'))
}

// Close gives the folder free.
func (f *folder) Close() error { return f.lock.Unlock() }

// members maps the ids of the initial cluster to the folder incarnations seen at bootstrap.
type members map[string]hexID

func (f *folder) readMembers() (members, error) {
	b, err := os.ReadFile(filepath.Join(f.raft(), membersFile))
	if err != nil {
		return nil, doNotRestart("data folder: %w", err)
	}
	m := members{}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, doNotRestart("data folder: %s is damaged: %w", membersFile, err)
	}
	return m, nil
}

// makeRaft makes the raft folder beside its place with fill, and renames it when it is complete and on disk.
func (f *folder) makeRaft(m members, fill func(dir string) error) error {
	dir := filepath.Join(f.dir, raftNew)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, membersFile), b); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return err
	}
	if err := durable.SyncDir(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, f.raft()); err != nil {
		return err
	}
	f.id.Bootstrapped = true
	return errors.Join(durable.SyncDir(f.dir), f.save())
}
