//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing where the option doesn't exist; deadlines and keepalive remain.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
