package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kvonce/kvonce/client"
)

// Exit codes, for scripts.
const (
	exitDone        = 0 // it took effect, or was found
	exitOther       = 1 // anything else
	exitUsage       = 2 // usage or invalid input; nothing was sent
	exitNotFound    = 3 // the key doesn't exist
	exitDecidedNo   = 4 // decided, and the answer is no
	exitUnavailable = 5 // not available, surely not applied
	exitUnknown     = 6 // it may or may not have taken effect
	exitLimit       = 7 // over a limit
	exitDegraded    = 9 // status: a node is down, but the cluster serves
)

// usageError is for arguments that can't be.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError is an error with its own exit code.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// conditions maps what calls fail with to exit codes. The first that matches counts.
var conditions = []struct {
	err  error
	code int
}{
	{client.ErrNotFound, exitNotFound},
	{client.ErrCompareFailed, exitDecidedNo},
	{client.ErrNotANumber, exitDecidedNo},
	{client.ErrOverflow, exitDecidedNo},
	{client.ErrKeyEmpty, exitUsage},
	{client.ErrInvalid, exitUsage},
	{client.ErrKeyTooLong, exitLimit},
	{client.ErrValueTooLarge, exitLimit},
	{client.ErrTxnTooLarge, exitLimit},
	{client.ErrTooLarge, exitLimit},
	{client.ErrAnswerTooLarge, exitLimit},
	{client.ErrKeySpaceFull, exitLimit},
	{client.ErrAnswersFull, exitLimit},
	{client.ErrClientsFull, exitLimit},
	{client.ErrUnavailable, exitUnavailable},
	{client.ErrTooOld, exitUnavailable},
}

// exitCode maps what a command returned.
func exitCode(err error) int {
	var usage *usageError
	var coded *exitError
	var failed *client.Error
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &coded):
		return coded.code
	case !errors.As(err, &failed):
		return exitOther
	case failed.Outcome == client.Unknown:
		return exitUnknown
	}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if failed.Outcome == client.NotApplied && failed.Cause != nil {
		return exitUnavailable // the time was over, and every copy was refused or none was sent
	}
	return exitOther
}

// report writes an error to standard error, in the form that --output asks for.
func (a *app) report(err error) {
	code, outcome := "ERROR", "not_applied"
	var failed *client.Error
	var usage *usageError
	switch {
	case errors.As(err, &failed):
		code, outcome = string(failed.Code), outcomeName(failed.Outcome)
	case errors.As(err, &usage):
		code = "USAGE"
	}
	if a.output != "json" {
		_, _ = fmt.Fprintf(a.stderr, "kvclient: %v\n", err)
		return
	}
	b, _ := json.Marshal(map[string]any{"error": map[string]string{"code": code, "outcome": outcome, "message": err.Error()}})
	_, _ = fmt.Fprintf(a.stderr, "%s\n", b)
}

// outcomeName is the outcome as scripts see it.
func outcomeName(o client.Outcome) string {
	switch o {
	case client.Applied:
		return "applied"
	case client.NotApplied:
		return "not_applied"
	}
	return "unknown"
}
