package localcluster

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Exit tells how a process ended.
type Exit struct {
	// Code is the exit code, -1 when a signal ended the process.
	Code int
	// Text is the same for people, such as "exit status 10" or "signal: killed".
	Text string
}

// process is a running kvnode.
type process struct {
	cmd     *exec.Cmd
	pipe    io.WriteCloser // standard input of the node: "stop", or the end
	started time.Time
	killed  bool          // Kill was asked for; owned by the supervisor
	done    chan struct{} // closed when the process has ended and exit is set
	exit    Exit
}

// startProcess starts a node in a process group of its own, so that the Ctrl-C of a terminal reaches only its parent.
func startProcess(c *Config, n *Node) (*process, error) {
	logs, err := openLog(n.LogPath())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Binary, n.args()...)
	cmd.Env = environment(os.Environ(), c.Env)
	cmd.Stdout, cmd.Stderr = logs, logs
	ownGroup(cmd)
	p := &process{cmd: cmd, started: time.Now(), done: make(chan struct{})}
	if p.pipe, err = cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	if err := errors.Join(cmd.Start(), logs.Close()); err != nil {
		return nil, errors.Join(err, p.pipe.Close())
	}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	err := p.cmd.Wait()
	p.exit = Exit{Code: p.cmd.ProcessState.ExitCode(), Text: p.cmd.ProcessState.String()}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		p.exit.Text += ": " + err.Error()
	}
	close(p.done)
}

// stop asks for a graceful end without handing leadership over. A node that has just ended needs no asking.
func (p *process) stop() {
	_, _ = io.WriteString(p.pipe, "stop\n")
}

// environment returns base without the variables that configure kvnode, and with what is added.
func environment(base, added []string) (list []string) {
	for _, v := range base {
		if !strings.HasPrefix(v, "KVNODE_") {
			list = append(list, v)
		}
	}
	return append(list, added...)
}
