package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock is a lower bound of the time that has passed, whatever happens to the machine.
func TestG9ClockNeverRunsAhead(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fresh := func() *clock {
		c := &clock{}
		c.reset(time.Minute, at)
		return c
	}
	const base = uint64(60_000)

	c := fresh()
	c.pass(at.Add(50*time.Millisecond), time.Time{})
	require.Equal(t, base+50, c.stamp(at), "real time passes")

	c = fresh()
	c.pass(at.Add(time.Hour), time.Time{})
	require.Equal(t, base+200, c.stamp(at), "a suspended process doesn't catch up")

	c = fresh()
	c.pass(at.Add(-time.Hour), time.Time{})
	require.Equal(t, base, c.stamp(at), "a clock that goes back takes nothing away")

	c = fresh()
	for i := range 100 {
		now := at.Add(time.Duration(i+1) * 100 * time.Millisecond)
		c.pass(now, at)
	}
	require.Equal(t, base+1000, c.stamp(at), "time stands still while a proposal waits for over a second")

	c = fresh()
	for i := range 1000 {
		c.pass(at.Add(time.Duration(i+1)*100*time.Millisecond), time.Time{})
	}
	require.Equal(t, base+2000, c.stamp(at), "idle time isn't saved up")
	c.pass(at.Add(100*time.Second+100*time.Millisecond), time.Time{})
	require.Equal(t, base+2100, c.stamp(at), "and goes on from the last stamp")
}
