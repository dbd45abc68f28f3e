package node

import (
	"errors"
	"fmt"
)

// Exit codes of a node process.
const (
	// ExitOther is for errors without a code of their own.
	ExitOther = 1
	// ExitUsage is for flags that can't be.
	ExitUsage = 2
	// ExitDoNotRestart is for a node that must not come back as it is: its data are damaged, or aren't this cluster's.
	ExitDoNotRestart = 10
	// ExitRestart is for a node that a restart may cure.
	ExitRestart = 11
)

// FatalError ends a node. Only main exits; everybody else hands the error up.
type FatalError struct {
	// ExitCode is one of the Exit constants.
	ExitCode int
	Err      error
}

func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FatalError) Unwrap() error { return e.Err }

// ExitCode returns the exit code for what Run returned.
func ExitCode(err error) int {
	var f *FatalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		return f.ExitCode
	}
	return ExitOther
}

func doNotRestart(format string, args ...any) error {
	return &FatalError{ExitDoNotRestart, fmt.Errorf(format, args...)}
}
