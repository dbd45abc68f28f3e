//go:build unix

package localcluster

import (
	"os"
	"os/exec"
	"syscall"
)

// Signals that other systems don't have.
var (
	pauseSignal    os.Signal = syscall.SIGSTOP
	continueSignal os.Signal = syscall.SIGCONT
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
