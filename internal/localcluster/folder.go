package localcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/kvonce/kvonce/internal/durable"
)

// Names within the data folder of a cluster.
const (
	stateFile = "local.json"
	lockFile  = "local.lock"
	logFile   = "log" // within the folder of a node
)

// stateFormat is the version of the state file.
const stateFormat = 1

var (
	// ErrInUse means that another process has the data folder.
	ErrInUse = errors.New("data folder in use")
	// ErrDiffers means that the data folder was made with other parameters.
	ErrDiffers = errors.New("the data folder was made for another cluster")
	// ErrLayout means that the data folder isn't one of a local cluster, or one of another version.
	ErrLayout = errors.New("the data folder has another layout")
)

// state is the state file: what must stay the same for the same data.
type state struct {
	Format   int `json:"format"`
	Nodes    int `json:"nodes"`
	BasePort int `json:"base_port"`
}

// folder is an open data folder. It is locked as long as the process lives.
type folder struct {
	dir  string
	lock *flock.Flock
	old  bool // there were data
}

// openFolder locks the data folder and compares its state file with the configuration, or writes one.
func openFolder(c *Config) (*folder, error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	f := &folder{dir: c.DataDir, lock: flock.New(filepath.Join(c.DataDir, lockFile))}
	if err := f.takeLock(); err != nil {
		return nil, err
	}
	if err := f.readState(c); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// takeLock fails at once, and says who has the folder.
func (f *folder) takeLock() error {
	name := filepath.Join(f.dir, lockFile)
	got, err := f.lock.TryLock()
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if !got {
		owner, _ := os.ReadFile(name) // only for the message
		return fmt.Errorf("%w: %s belongs to the running process %s", ErrInUse, f.dir, strings.TrimSpace(string(owner)))
	}
	return os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
}

func (f *folder) readState(c *Config) error {
	b, err := os.ReadFile(filepath.Join(f.dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return f.newState(c)
	}
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil || s.Format != stateFormat {
		return fmt.Errorf("%w: %s in %s is damaged or of another version", ErrLayout, stateFile, f.dir)
	}
	switch {
	case s.Nodes != c.Nodes:
		return fmt.Errorf("%w: %s holds %d nodes, --nodes is %d; say --nodes %d, or choose another --data-dir", ErrDiffers, f.dir, s.Nodes, c.Nodes, s.Nodes)
	case s.BasePort != c.BasePort:
		return fmt.Errorf("%w: the nodes in %s know each other at --base-port %d, not %d; say --base-port %d, or choose another --data-dir",
			ErrDiffers, f.dir, s.BasePort, c.BasePort, s.BasePort)
	}
	f.old = true
	return nil
}

// newState writes the state file of new data, unless there are data that it should have been with.
func (f *folder) newState(c *Config) error {
	for _, name := range []string{"node.json", filepath.Join(nodeID(1), "node.json")} {
		if _, err := os.Stat(filepath.Join(f.dir, name)); err == nil {
			return fmt.Errorf("%w: there is %s in %s, but no %s", ErrLayout, name, f.dir, stateFile)
		}
	}
	b, err := json.Marshal(state{Format: stateFormat, Nodes: c.Nodes, BasePort: c.BasePort})
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(f.dir, stateFile), append(b, '\n'))
}

// Close gives the folder free.
func (f *folder) Close() error { return f.lock.Unlock() }
