package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// command is one thing kvclient can do.
type command struct {
	name, args, summary string
	// examples are shown in the help, one a line.
	examples         string
	minArgs, maxArgs int // maxArgs -1 for any number
	// prepare defines the flags and returns what runs once they are read.
	prepare func(*pflag.FlagSet) runner
}

type runner func(ctx context.Context, a *app, args []string) error

// commands in the order of the help. It is filled by init, because help reads it.
var commands []*command

func init() {
	commands = []*command{
		putCommand, getCommand, deleteCommand, listCommand, incrCommand, appendCommand, casCommand, txnCommand,
		statusCommand, clientsCommand, memberCommand, settingsCommand, drillCommand, versionCommand,
	}
}

func commandNamed(name string) *command {
	for _, c := range commands {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (c *command) usage() string {
	if c.args == "" {
		return "no arguments"
	}
	return "the arguments " + c.args
}

func (c *command) help(fs *pflag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage: kvclient %s\n", c.summary, strings.TrimSpace(c.name+" [flags] "+c.args))
	if c.examples != "" {
		fmt.Fprintf(&b, "\nExamples:\n")
		for line := range strings.Lines(c.examples) {
			fmt.Fprintf(&b, "  %s", line)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nFlags:\n%s\nA flag can be set by the environment: KVCLIENT_ENDPOINTS for --endpoints.\nAfter -- everything is an argument, values that begin with - too.\n", fs.FlagUsages())
	return b.String()
}

const exitHelp = `
Exit codes:
  0  done
  1  anything else (applied, but the answer is gone: see the message)
  2  usage or invalid input
  3  not found
  4  decided, and the answer is no: compare failed, not a number, overflow
  5  not available, surely not applied
  6  outcome unknown
  7  over a limit
  9  degraded: status found a node down, but the cluster serves
`

func (a *app) help(args []string) error {
	if len(args) > 0 {
		c := commandNamed(args[0])
		if c == nil {
			return usagef("there is no command %q", args[0])
		}
		fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		a.globalFlags(fs)
		c.prepare(fs)
		a.print(c.help(fs))
		return nil
	}
	a.print("kvclient talks to a kvonce cluster.\n\nUsage: kvclient COMMAND [flags] [arguments]\n\nCommands:\n")
	for _, c := range commands {
		a.printf("  %-10s %s\n", c.name, c.summary)
	}
	a.print(exitHelp)
	return nil
}

// noFlags is for commands without flags of their own.
func noFlags(run runner) func(*pflag.FlagSet) runner {
	return func(*pflag.FlagSet) runner { return run }
}
