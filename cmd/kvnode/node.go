package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/internal/httpapi"
	"github.com/kvonce/kvonce/internal/node"
)

const (
	// stopTimeout is how long a node may take to stop before the process ends anyway.
	stopTimeout = 14 * time.Second
	// httpTimeout is how long requests on the HTTP port may take to end.
	httpTimeout = time.Second
)

// errStop means that the node didn't end when it was asked to.
var errStop = errors.New("the node didn't stop in time")

// runNode runs one node.
func (m *Main) runNode(ctx context.Context, args []string) error {
	var o nodeOptions
	fs := o.flags()
	if err := parse(fs, args, m.Env); errors.Is(err, pflag.ErrHelp) {
		return m.help(nil)
	} else if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usagef("%q isn't a flag", fs.Arg(0))
	}
	n, log, err := o.build(m.Stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.parentPipe {
		go watchParent(m.Stdin, n, log, cancel)
	}
	log.Info("starting", "node", o.config.ID, "version", o.config.Version, "data", o.config.DataDir)
	if err := serve(ctx, n, o.config.ListenHTTP); err != nil {
		log.Error("the process ends", "error", err, "exit_code", exitCode(err))
		return &reportedError{err}
	}
	log.Info("stopped")
	return nil
}

// build makes the node and its logger. Nothing is started.
func (o *nodeOptions) build(logs io.Writer) (*node.Node, *slog.Logger, error) {
	if err := o.finish(); err != nil {
		return nil, nil, err
	}
	log, err := o.logger(logs)
	if err != nil {
		return nil, nil, err
	}
	o.config.Logger = log
	n, err := node.New(o.config)
	if err != nil {
		return nil, nil, &usageError{err}
	}
	return n, log, nil
}

// serve runs the node and its HTTP port until ctx ends or the node does.
func serve(ctx context.Context, n *node.Node, address string) error {
	port, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen-http: %w", err)
	}
	server := httpapi.NewServer(n, newMetrics())
	ended, failed := make(chan error, 1), make(chan error, 1)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { failed <- server.Serve(port) }()
	go func() { ended <- n.Run(inner) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = await(ended)
	case err = <-failed:
		cancel()
		return errors.Join(fmt.Errorf("--listen-http: %w", err), await(ended))
	}
	return errors.Join(err, closeHTTP(server))
}

// await bounds the graceful stop of the node.
func await(ended <-chan error) error {
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case err := <-ended:
		return err
	case <-timeout.C:
		return errStop
	}
}

// closeHTTP lets requests end for a moment.
func closeHTTP(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), httpTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return server.Close()
	}
	return nil
}

func newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// watchParent stops the node when its parent says so or is gone. Either way the whole cluster is stopping, so
// leadership stays where it is.
func watchParent(pipe io.Reader, n *node.Node, log *slog.Logger, stop func()) {
	asked := false
	for lines := bufio.NewScanner(pipe); !asked && lines.Scan(); {
		asked = lines.Text() == "stop"
	}
	if !asked {
		log.Warn("the parent process is gone")
	}
	n.KeepLeadership()
	stop()
}
