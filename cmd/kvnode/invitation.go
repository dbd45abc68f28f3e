package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// defaultEndpoints are those that kvclient dials unless it is told otherwise.
const defaultEndpoints = "127.0.0.1:4101,127.0.0.1:4102,127.0.0.1:4103"

// invitation returns commands that can be pasted into another terminal.
func (o *localOptions) invitation(endpoints []string) string {
	command := clientCommand()
	if list := strings.Join(endpoints, ","); list != defaultEndpoints {
		command += " --endpoints " + list
	}
	return fmt.Sprintf(`In another terminal:
  %[1]s put greeting olá
  %[1]s get greeting
  %[1]s status
Ctrl-C stops all nodes.
`, command)
}

// clientCommand returns how to call kvclient: the binary beside this one, by name where that finds it, or the source.
func clientCommand() string {
	self, err := os.Executable()
	if err != nil {
		return "go run ./cmd/kvclient"
	}
	beside := filepath.Join(filepath.Dir(self), "kvclient"+filepath.Ext(self))
	info, err := os.Stat(beside)
	if err != nil || !info.Mode().IsRegular() {
		return "go run ./cmd/kvclient"
	}
	if found, err := exec.LookPath("kvclient"); err == nil {
		if other, err := os.Stat(found); err == nil && os.SameFile(info, other) {
			return "kvclient"
		}
	}
	return beside
}
