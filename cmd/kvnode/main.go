// Command kvnode runs a node of kvonce, or with "kvnode local" a whole cluster on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/kvonce/kvonce/internal/localcluster"
	"github.com/kvonce/kvonce/internal/node"
)

func main() {
	ctx := stopOnSignal(context.Background(), func() { os.Exit(node.ExitOther) })
	m := &Main{Args: os.Args[1:], Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(m.Run(ctx))
}

// stopOnSignal returns a context that ends at the first SIGINT or SIGTERM. The second one calls exit.
func stopOnSignal(parent context.Context, exit func()) context.Context {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		signal.Stop(signals)
		exit()
	}()
	return ctx
}

// Main is the program without the process around it.
type Main struct {
	// Args are the arguments without the name of the program.
	Args []string
	// Env is the environment as NAME=value.
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// usageError is for arguments that can't be.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// reportedError is one that the log of the node holds already.
type reportedError struct{ err error }

func (e *reportedError) Error() string { return e.err.Error() }

func (e *reportedError) Unwrap() error { return e.err }

// Run does what the arguments ask for until it is done or ctx ends, and returns the exit code.
func (m *Main) Run(ctx context.Context) int {
	err := m.run(ctx)
	code := exitCode(err)
	var reported *reportedError
	if err != nil && !errors.As(err, &reported) {
		m.printf(m.Stderr, "kvnode: %v\n", err)
	}
	if code == node.ExitUsage {
		m.printf(m.Stderr, "See 'kvnode help'.\n")
	}
	return code
}

func (m *Main) run(ctx context.Context) error {
	command, rest := "", m.Args
	if len(rest) > 0 && rest[0] != "" && rest[0][0] != '-' {
		command, rest = rest[0], rest[1:]
	}
	switch command {
	case "":
		return m.runNode(ctx, rest)
	case "local":
		return m.runLocal(ctx, rest)
	case "version":
		m.printf(m.Stdout, "%s\n", versionText())
		return nil
	case "help":
		return m.help(rest)
	}
	return usagef("there is no command %q", command)
}

// exitCode maps what a command returned.
func exitCode(err error) int {
	var usage *usageError
	switch {
	case errors.As(err, &usage), errors.Is(err, localcluster.ErrDiffers):
		return node.ExitUsage
	case errors.Is(err, localcluster.ErrLayout):
		return node.ExitDoNotRestart
	}
	return node.ExitCode(err)
}

// printf writes for a person. What can't be written has no reader.
func (m *Main) printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
