package node

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// bridge gives raft a logger that writes to l.
func bridge(l *slog.Logger) hclog.Logger {
	return &hclogBridge{Logger: hclog.NewNullLogger(), to: l.With("component", "raft")}
}

// hclogBridge is raft's logger. What isn't overridden logs nothing.
type hclogBridge struct {
	hclog.Logger
	to *slog.Logger
}

// expected are messages that raft logs as errors though nothing is wrong.
var expected = []string{"nothing new to snapshot"}

// Log implements hclog.Logger.
func (b *hclogBridge) Log(level hclog.Level, msg string, args ...any) {
	for _, e := range expected {
		if strings.Contains(msg, e) {
			level = hclog.Debug
		}
	}
	args = formatted(args)
	switch {
	case level >= hclog.Error:
		b.to.Error(msg, args...)
	case level == hclog.Warn:
		b.to.Warn(msg, args...)
	case level == hclog.Info:
		b.to.Info(msg, args...)
	default:
		b.to.Debug(msg, args...)
	}
}

// formatted puts the arguments that hclog formats late into words.
func formatted(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		out[i] = a
	}
	return out
}

// Trace implements hclog.Logger.
func (b *hclogBridge) Trace(msg string, args ...any) { b.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (b *hclogBridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (b *hclogBridge) Info(msg string, args ...any) { b.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (b *hclogBridge) Warn(msg string, args ...any) { b.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger. Raft reports "nothing new to snapshot" in an argument.
func (b *hclogBridge) Error(msg string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && strings.Contains(err.Error(), expected[0]) {
			b.to.Debug(msg, args...)
			return
		}
	}
	b.Log(hclog.Error, msg, args...)
}

// With implements hclog.Logger.
func (b *hclogBridge) With(args ...any) hclog.Logger {
	return &hclogBridge{Logger: b.Logger, to: b.to.With(args...)}
}

// Named implements hclog.Logger.
func (b *hclogBridge) Named(name string) hclog.Logger {
	return &hclogBridge{Logger: b.Logger, to: b.to.With("logger", name)}
}

// ResetNamed implements hclog.Logger.
func (b *hclogBridge) ResetNamed(name string) hclog.Logger { return b.Named(name) }

// StandardWriter implements hclog.Logger.
func (b *hclogBridge) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return slog.NewLogLogger(b.to.Handler(), slog.LevelInfo).Writer()
}

// StandardLogger implements hclog.Logger.
func (b *hclogBridge) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(b.to.Handler(), slog.LevelInfo)
}
