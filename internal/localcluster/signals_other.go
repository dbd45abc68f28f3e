//go:build !unix

package localcluster

import (
	"os"
	"os/exec"
	"syscall"
)

// Processes can't be paused here: the system refuses these signals.
var (
	pauseSignal    os.Signal = syscall.Signal(-1)
	continueSignal os.Signal = syscall.Signal(-1)
)

func ownGroup(*exec.Cmd) {}
