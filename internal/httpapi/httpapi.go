package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvonce/kvonce/internal/node"
)

// Node is what is served.
type Node interface {
	Checks() []node.Check
	Stats() node.Stats
}

// readHeaderTimeout sheds connections that send nothing.
const readHeaderTimeout = 5 * time.Second

// NewServer makes a server for the HTTP port. Metrics holds what else is published, such as raft's own numbers.
//
//   - /livez says that the process answers.
//   - /readyz says whether requests can be served, with 503 if not; ?verbose lists the checks.
//   - /metrics is in the Prometheus text format.
func NewServer(n Node, metrics *prometheus.Registry) *http.Server {
	metrics.MustRegister(collector{n})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, n.Checks(), r.URL.Query().Has("verbose")) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: time.Minute}
}

// ready writes the checks. What can't be written any more has no reader.
func ready(w http.ResponseWriter, checks []node.Check, verbose bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	all := true
	for _, c := range checks {
		all = all && c.OK
	}
	if !all {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, c := range checks {
		if verbose || !c.OK {
			_, _ = fmt.Fprintf(w, "[%s] %s: %s\n", mark(c.OK), c.Name, c.Detail)
		}
	}
	if all {
		_, _ = fmt.Fprintln(w, "ok")
	}
}

func mark(ok bool) string {
	if ok {
		return "+"
	}
	return "-"
}
