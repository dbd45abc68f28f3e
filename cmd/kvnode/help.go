package main

import (
	"fmt"
	"strings"

	"github.com/kvonce/kvonce/fsm"
)

// helpWidth is where help texts are wrapped, in columns.
const helpWidth = 100

const nodeHelp = `kvnode runs a node of kvonce, a replicated key-value server in which every retry is safe.

Usage:
  kvnode --id n1 --initial-cluster n1=host1:4201,n2=host2:4201,n3=host3:4201 [flags]
  kvnode local [flags] [-- flags for every node]    a whole cluster on this machine
  kvnode version
  kvnode help [local]

Each flag can be given as an environment variable: --data-dir is KVNODE_DATA_DIR. A flag wins.
SIGTERM or SIGINT stops the node gracefully; a second one ends it at once.

Exit codes:
  0   stopped as asked
  2   wrong usage
  10  must not be started again as it is: damaged or foreign data, a replaced data folder
  11  starting it again is right: the disk stalled or failed
  1   anything else

Flags:
`

const localHelp = `kvnode local runs a cluster on this machine: each node is a process of its own, on 127.0.0.1.

Usage:
  kvnode local [flags] [-- flags for every node]

Node i gets the ports base+i (clients), base+100+i (raft) and base+200+i (HTTP), and logs to nI/log in the data
folder. Old data come up as the same cluster again. A node that ends is started again after a delay, which doubles
up to 30s while it keeps ending, unless it says that this is no use (exit codes 2 and 10). Ctrl-C or SIGTERM stops
all nodes; they also stop when this process is killed.
After -- come flags for every node, such as -- --heartbeat-timeout 1s; see 'kvnode help'. Each flag, those too, can be
given as an environment variable: --base-port is KVNODE_BASE_PORT. A flag wins.

Exit codes:
  0   stopped as asked
  2   wrong usage, also --nodes or --base-port that differ from those of the data
  10  the data folder isn't one of a local cluster, or of another version
  1   anything else: the data folder or a port is in use, no node is left

Flags:
`

// help prints the help of a command.
func (m *Main) help(args []string) error {
	switch {
	case len(args) == 0:
		var o nodeOptions
		m.printf(m.Stdout, "%s%s\nSettings of a new cluster (--setting name=value):\n%s", nodeHelp, o.flags().FlagUsagesWrapped(helpWidth), settingsHelp())
	case len(args) == 1 && args[0] == "local":
		var o localOptions
		m.printf(m.Stdout, "%s%s", localHelp, o.flags().FlagUsagesWrapped(helpWidth))
	default:
		return usagef("there is no help on %q", strings.Join(args, " "))
	}
	return nil
}

func settingsHelp() string {
	var b strings.Builder
	for _, s := range fsm.SettingInfos() {
		unit := " " + s.Unit
		if s.Unit == "count" {
			unit = ""
		}
		fmt.Fprintf(&b, "  %-20s %s; %d to %d%s (default %d)\n", s.Name, s.Description, s.Min, s.Max, unit, s.Default)
	}
	return b.String()
}
