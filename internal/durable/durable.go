// Package durable replaces files so that a crash leaves the old or the new content, never a part.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces the file name, readable by its owner alone, and returns when that is on disk.
func WriteFile(name string, content []byte) error {
	tmp, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// SyncDir returns when what was created, renamed and removed in a folder is on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
