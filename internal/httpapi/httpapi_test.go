package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/node"
)

type fixed struct {
	checks []node.Check
	stats  node.Stats
}

func (f fixed) Checks() []node.Check { return f.checks }
func (f fixed) Stats() node.Stats    { return f.stats }

func ask(t *testing.T, n Node, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	NewServer(n, prometheus.NewRegistry()).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestReadyzSaysWhatIsMissing(t *testing.T) {
	bad := fixed{checks: []node.Check{{Name: "started", OK: true}, {Name: "leader", Detail: "none"}}}
	code, body := ask(t, bad, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "[-] leader: none\n", body)
	good := fixed{checks: []node.Check{{Name: "started", OK: true}}}
	code, body = ask(t, good, "/readyz?verbose")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "[+] started: \nok\n", body)
	code, _ = ask(t, bad, "/livez")
	require.Equal(t, http.StatusOK, code)
}

func TestMetricsShowTheNumbersOfTheNode(t *testing.T) {
	code, body := ask(t, fixed{stats: node.Stats{Started: true, Leader: true, Replayed: 7}}, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "kvonce_replayed_total 7\n")
	require.Contains(t, body, "kvonce_leader 1\n")
	code, _ = ask(t, fixed{}, "/other")
	require.Equal(t, http.StatusNotFound, code)
}
