package transport

import (
	"net"
	"sync"
	"time"
)

const (
	// noisePeriod is how long a remote host stays quiet in the log after a line about it.
	noisePeriod = time.Minute
	// maxNoisyHosts bounds the hosts that are remembered. When there are more, they share one line per period.
	maxNoisyHosts = 1024
)

// noise decides which rejected connections are worth a line in the log: one for each remote host and period.
type noise struct {
	mu    sync.Mutex
	lines map[string]time.Time
}

// worthALine reports whether to log about addr now.
func (n *noise) worthALine(addr net.Addr, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	host := n.slot(hostOf(addr), now)
	if last, ok := n.lines[host]; ok && now.Sub(last) < noisePeriod {
		return false
	}
	if n.lines == nil {
		n.lines = make(map[string]time.Time)
	}
	n.lines[host] = now
	return true
}

// slot is the host itself while there is room, and else the name that all further hosts share.
func (n *noise) slot(host string, now time.Time) string {
	if _, ok := n.lines[host]; ok || len(n.lines) < maxNoisyHosts {
		return host
	}
	for h, last := range n.lines {
		if now.Sub(last) >= noisePeriod {
			delete(n.lines, h)
		}
	}
	if len(n.lines) < maxNoisyHosts {
		return host
	}
	return ""
}

func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}
