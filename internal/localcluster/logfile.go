package localcluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	// maxLogBytes is how large the log of a node may be when the node is started; a larger one is set aside.
	maxLogBytes = 64 << 20
	// tailBytes and tailLines bound what is shown of the end of a log.
	tailBytes = 8 << 10
	tailLines = 5
)

// openLog opens a log to be appended to. A log that has grown too large becomes log.1, in place of an older one.
func openLog(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(name); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(name, name+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// tail returns the last lines of a log, or why there are none.
func tail(name string) string {
	text, err := readEnd(name, tailBytes)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

func readEnd(name string, n int64) (text string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n))
	return string(b), err
}
