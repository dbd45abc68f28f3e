package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/internal/node"
)

// envPrefix begins the environment variable of each flag.
const envPrefix = "KVNODE_"

// nodeOptions are the flags of one node.
type nodeOptions struct {
	config     node.Config
	cluster    []string // id=raft address
	settings   []string // name=value
	logLevel   string
	logFormat  string
	parentPipe bool
}

// identityFlags say which node this is. A local cluster decides them itself.
var identityFlags = []string{
	"id", "data-dir", "listen-client", "listen-raft", "listen-http", "advertise-client", "advertise-raft", "advertise-http",
	"initial-cluster", "parent-pipe",
}

func newFlagSet(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	return fs
}

// flags makes the flag set that fills the options.
func (o *nodeOptions) flags() *pflag.FlagSet {
	fs := newFlagSet("kvnode")
	c := &o.config
	fs.StringVar(&c.ID, "id", "", "`name` of the node within the cluster, such as n1; never given to another data folder")
	fs.StringVar(&c.DataDir, "data-dir", "./kvonce-node", "`folder` that holds everything the node must not lose")
	fs.StringVar(&c.ClusterName, "cluster-name", "kvonce", "`name` that is the same on all nodes of the cluster")
	fs.StringSliceVar(&o.cluster, "initial-cluster", nil, "`list` of id=host:port, separated by commas: the raft addresses of all nodes, this one included, with which an empty data folder starts a new cluster")
	fs.StringSliceVar(&o.settings, "setting", nil, "`setting` as name=number, in its unit; only a new cluster takes it. May be repeated")
	fs.StringVar(&c.ListenClient, "listen-client", "127.0.0.1:4101", "`address` for clients (gRPC), host:port")
	fs.StringVar(&c.ListenRaft, "listen-raft", "127.0.0.1:4201", "`address` for the other nodes, host:port")
	fs.StringVar(&c.ListenHTTP, "listen-http", "127.0.0.1:4301", "`address` for health and metrics, host:port")
	fs.StringVar(&c.AdvertiseClient, "advertise-client", "", "`address` that clients dial; --listen-client when empty")
	fs.StringVar(&c.AdvertiseRaft, "advertise-raft", "", "`address` that the other nodes dial; --listen-raft when empty")
	fs.StringVar(&c.AdvertiseHTTP, "advertise-http", "", "`address` of the HTTP port for others; --listen-http when empty")
	fs.StringVar(&o.logLevel, "log-level", "info", "`level` of the log: debug, info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", "text", "`format` of the log: text or json")
	tuningFlags(fs, &c.Tuning)
	fs.BoolVar(&o.parentPipe, "parent-pipe", false, "stop at the line \"stop\", or the end, of the standard input")
	// pflag fails here only for a flag that doesn't exist.
	_ = fs.MarkHidden("parent-pipe")
	return fs
}

// tuningFlags have the ranges that node.Tuning documents and Validate checks.
func tuningFlags(fs *pflag.FlagSet, t *node.Tuning) {
	d := node.DefaultTuning()
	fs.DurationVar(&t.HeartbeatTimeout, "heartbeat-timeout", d.HeartbeatTimeout, "how long a follower waits for the leader before an election, 200ms to 10s")
	fs.DurationVar(&t.ElectionTimeout, "election-timeout", d.ElectionTimeout, "how long a candidate waits for votes, --heartbeat-timeout to 10s")
	fs.DurationVar(&t.LeaderLeaseTimeout, "leader-lease-timeout", d.LeaderLeaseTimeout, "how long a leader goes on without a majority, 100ms to --heartbeat-timeout")
	fs.IntVar(&t.BatchRequests, "batch-requests", d.BatchRequests, "`requests` in one log entry, 1 to 16384")
	fs.IntVar(&t.BatchBytes, "batch-bytes", d.BatchBytes, "`bytes` in one log entry, 4096 to 4194304")
	fs.Uint64Var(&t.SnapshotBytes, "snapshot-bytes", d.SnapshotBytes, "`bytes` of log between two snapshots, at least 1048576")
	fs.Uint64Var(&t.SnapshotEntries, "snapshot-entries", d.SnapshotEntries, "log `entries` between two snapshots, at least 16")
	fs.Uint64Var(&t.TrailingEntries, "trailing-entries", d.TrailingEntries, "log `entries` kept behind a snapshot for nodes that lag, may be 0")
	fs.DurationVar(&t.DiskStallTimeout, "disk-stall-timeout", d.DiskStallTimeout, "how long one write to the log may take before the process ends (exit code 11), 1s to 10m")
}

// parse parses arguments, then takes the flags that weren't given from the environment.
func parse(fs *pflag.FlagSet, args, env []string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return &usageError{err}
	}
	return fromEnv(fs, env)
}

func fromEnv(fs *pflag.FlagSet, env []string) error {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok {
			continue
		}
		f := fs.Lookup(strings.ToLower(strings.ReplaceAll(rest, "_", "-")))
		if f == nil || f.Changed || f.Hidden || envName(f.Name) != name {
			continue
		}
		if err := fs.Set(f.Name, value); err != nil {
			return usagef("%s: %w", name, err)
		}
	}
	return nil
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// finish makes the configuration of the node out of the options, but for the logger.
func (o *nodeOptions) finish() error {
	c := &o.config
	c.Version = version()
	for _, a := range []struct{ name, value string }{
		{"listen-client", c.ListenClient}, {"listen-raft", c.ListenRaft}, {"listen-http", c.ListenHTTP},
		{"advertise-client", c.AdvertiseClient}, {"advertise-raft", c.AdvertiseRaft}, {"advertise-http", c.AdvertiseHTTP},
	} {
		if err := checkAddress(a.value); a.value != "" && err != nil {
			return usagef("--%s is %q: %w", a.name, a.value, err)
		}
	}
	if err := o.parseCluster(); err != nil {
		return err
	}
	return o.parseSettings()
}

// checkAddress demands host:port with a port that can be dialled.
func checkAddress(address string) error {
	if strings.Contains(address, "://") {
		return errors.New("it must be host:port, without a scheme")
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q must be a number from 1 to 65535", port)
	}
	return nil
}

func (o *nodeOptions) parseCluster() error {
	for _, s := range o.cluster {
		id, address, ok := strings.Cut(s, "=")
		if !ok || id == "" {
			return usagef("--initial-cluster: %q must be id=host:port", s)
		}
		if err := checkAddress(address); err != nil {
			return usagef("--initial-cluster: address of %s is %q: %w", id, address, err)
		}
		o.config.InitialCluster = append(o.config.InitialCluster, node.Peer{ID: id, RaftAddress: address})
	}
	return nil
}

func (o *nodeOptions) parseSettings() error {
	settings := fsm.DefaultSettings()
	var changes []fsm.Change
	for _, s := range o.settings {
		name, text, _ := strings.Cut(s, "=")
		setting, ok := fsm.SettingByName(name)
		if !ok {
			return usagef("--setting: there is no setting %q", name)
		}
		value, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return usagef("--setting: %q must be %s=number, in %s", s, name, fsm.SettingInfos()[setting].Unit)
		}
		changes = append(changes, fsm.Change{Setting: setting, Value: value})
	}
	settings, err := settings.With(changes...)
	if err != nil {
		return usagef("--setting: %w", err)
	}
	o.config.Settings = settings
	return nil
}

// logger makes the logger that the options ask for.
func (o *nodeOptions) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, o.logLevel) {
		return nil, usagef("--log-level is %q, must be debug, info, warn or error", o.logLevel)
	}
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, usagef("--log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usagef("--log-format is %q, must be text or json", o.logFormat)
}
