package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteFileReplaces(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"a longer first content", "second"} {
		require.NoError(t, WriteFile(name, []byte(content)))
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, content, string(got))
	}
	left, err := filepath.Glob(name + "*")
	require.NoError(t, err)
	require.Equal(t, []string{name}, left)
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Error(t, WriteFile(filepath.Join(name, "below a file"), nil))
}
