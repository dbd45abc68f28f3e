package registry

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBrokenDuplicateCheckIsNoticed builds the core without its duplicate check and runs the tests of G1 against it.
// They must fail in both packages: a test that can't fail proves nothing.
func TestBrokenDuplicateCheckIsNoticed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	test := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-tags", "broken_noduplicatecheck", "-run", "^TestG1", "./registry", "./fsm",
		"-rapid.nofailfile", "-rapid.shrinktime=1s")
	test.Dir = ".."
	out, err := test.CombinedOutput()
	var failed *exec.ExitError
	require.True(t, errors.As(err, &failed), "the tests of G1 pass without the duplicate check: %s", out)
	require.NoError(t, ctx.Err())
	for _, line := range []string{"--- FAIL: TestG1RequestTakesEffectOnce", "FAIL\tgithub.com/kvonce/kvonce/registry", "FAIL\tgithub.com/kvonce/kvonce/fsm"} {
		require.Contains(t, string(out), line)
	}
	require.NotContains(t, string(out), "[build failed]")
}
