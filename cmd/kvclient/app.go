package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kvonce/kvonce/client"
)

// oneShotTTL is the time to live of the client of a single command, in case it can't close itself.
const oneShotTTL = 30 * time.Second

// app is the program without the process around it.
type app struct {
	args           []string
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer

	endpoints []string
	timeout   time.Duration
	output    string
}

// run does what the arguments ask for and returns the exit code.
func (a *app) run(ctx context.Context) int {
	a.output = "plain"
	err := a.dispatch(ctx)
	if errors.Is(err, pflag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		a.report(err)
	}
	return exitCode(err)
}

func (a *app) dispatch(ctx context.Context) error {
	if len(a.args) == 0 {
		return usagef("a command is missing; see 'kvclient help'")
	}
	name, rest := a.args[0], a.args[1:]
	if name == "help" || name == "--help" || name == "-h" {
		return a.help(rest)
	}
	c := commandNamed(name)
	if c == nil {
		return usagef("there is no command %q; see 'kvclient help'", name)
	}
	fs := pflag.NewFlagSet("kvclient "+name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() { a.print(c.help(fs)) }
	a.globalFlags(fs)
	run := c.prepare(fs)
	if err := a.parse(fs, rest); err != nil {
		return err
	}
	if n := fs.NArg(); n < c.minArgs || c.maxArgs >= 0 && n > c.maxArgs {
		return usagef("kvclient %s takes %s", name, c.usage())
	}
	return run(ctx, a, fs.Args())
}

func (a *app) globalFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&a.endpoints, "endpoints", client.DefaultEndpoints, "client addresses of nodes, host:port")
	fs.DurationVar(&a.timeout, "timeout", 5*time.Second, "time for the whole command")
	fs.StringVarP(&a.output, "output", "o", "plain", "plain, json or table")
}

// parse reads flags, then the environment for those that weren't given.
func (a *app) parse(fs *pflag.FlagSet, args []string) error {
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return err
	} else if err != nil {
		return &usageError{err}
	}
	for _, v := range a.env {
		name, value, _ := strings.Cut(v, "=")
		flag, ok := strings.CutPrefix(name, "KVCLIENT_")
		f := fs.Lookup(strings.ToLower(strings.ReplaceAll(flag, "_", "-")))
		if !ok || f == nil || f.Changed {
			continue
		}
		if err := fs.Set(f.Name, value); err != nil {
			return usagef("%s: %v", name, err)
		}
	}
	return a.check()
}

func (a *app) check() error {
	switch a.output {
	case "plain", "json", "table":
	default:
		given := a.output
		a.output = "plain"
		return usagef("--output is %q, must be plain, json or table", given)
	}
	if a.timeout <= 0 {
		return usagef("--timeout is %v, must be positive", a.timeout)
	}
	if len(a.endpoints) == 0 {
		return usagef("--endpoints is empty")
	}
	for _, e := range a.endpoints {
		_, port, err := net.SplitHostPort(e)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil || strings.Contains(e, "://") {
			return usagef("--endpoints: %q isn't host:port", e)
		}
	}
	return nil
}

// with runs f with a client, until --timeout is over, and closes the client within what is left of it.
func (a *app) with(ctx context.Context, f func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	c, err := client.Open(ctx, client.WithEndpoints(a.endpoints...), client.WithTTL(oneShotTTL),
		client.WithName("kvclient"), client.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	err = f(ctx, c)
	_ = c.Close(ctx) // what is unresolved was reported with its own call; the client expires by itself
	return err
}

func (a *app) print(text string) { _, _ = io.WriteString(a.stdout, text) } // what can't be written has no reader

func (a *app) printf(format string, args ...any) { a.print(fmt.Sprintf(format, args...)) }

// isTerminal tells whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
