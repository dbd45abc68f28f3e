package localcluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// MaxNodes is the largest cluster that can be started: more voters only make every write slower.
const MaxNodes = 9

// What is added to the base port for the services of a node; its number is added too.
const (
	clientOffset = 0
	raftOffset   = 100
	httpOffset   = 200
)

// loopback is where all nodes listen.
const loopback = "127.0.0.1"

// Config says how a cluster runs.
type Config struct {
	// Binary is the path of kvnode.
	Binary string
	// Nodes is how many nodes there are, 1 to MaxNodes. Their ids are n1, n2 and so on.
	Nodes int
	// BasePort gives node i the ports BasePort+i for clients, BasePort+100+i for raft and BasePort+200+i for HTTP.
	BasePort int
	// DataDir holds the state file and a folder per node.
	DataDir string
	// Flags are passed to every node, NodeFlags to the node of that id.
	Flags     []string
	NodeFlags map[string][]string
	// Env is added to the environment of the nodes. Variables of this process that begin with KVNODE_ aren't passed
	// on: what is meant for a whole cluster would confuse its nodes.
	Env []string
	// RestartDelay is how long after its end a node that wasn't stopped is started again; the delay doubles up to 30 s
	// while the node keeps ending soon. 0 means never.
	RestartDelay time.Duration
	// Log gets a line for a person about everything that happens to the nodes; nil drops them.
	Log io.Writer
}

// Validate says what can't be.
func (c *Config) Validate() error {
	switch {
	case c.Binary == "":
		return errors.New("the path of kvnode is empty")
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return fmt.Errorf("--nodes is %d, must be 1 to %d", c.Nodes, MaxNodes)
	case c.BasePort < 1 || c.BasePort+httpOffset+c.Nodes > 65535:
		return fmt.Errorf("--base-port is %d, must be 1 to %d", c.BasePort, 65535-httpOffset-c.Nodes)
	case c.DataDir == "":
		return errors.New("--data-dir is empty")
	case c.RestartDelay < 0 || c.RestartDelay > maxRestartDelay:
		return fmt.Errorf("--restart-delay is %v, must be at most %v", c.RestartDelay, maxRestartDelay)
	}
	return nil
}

// address returns host:port of a service of node i, from 1.
func (c *Config) address(offset, i int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(c.BasePort+offset+i))
}

func nodeID(i int) string { return "n" + strconv.Itoa(i) }

// initialCluster returns the value of --initial-cluster.
func (c *Config) initialCluster() (list string) {
	for i := 1; i <= c.Nodes; i++ {
		if i > 1 {
			list += ","
		}
		list += nodeID(i) + "=" + c.address(raftOffset, i)
	}
	return list
}
