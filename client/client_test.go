package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within returns a context for what should be quick.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func soon(t testing.TB) context.Context { return within(t, 10*time.Second) }

func TestPutGetDelete(t *testing.T) {
	f := newFakeCluster(t, 3)
	c := f.open(WithName("shop"))
	ctx := soon(t)

	p, err := c.Put(ctx, "k", []byte("v"))
	require.NoError(t, err)
	require.Equal(t, "n1", p.Node)
	require.NotZero(t, p.Index)
	require.EqualValues(t, 1, p.Revision)

	g, err := c.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(g.Value))
	require.True(t, g.AgeKnown)

	d, err := c.Delete(ctx, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Deleted)
	_, err = c.Get(ctx, "k")
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, c.Close(ctx))
}
