package raftguard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// TestNotifyFolds: what comes while the callback is busy is folded, but a leadership that was told is always told as
// lost before the next one.
func TestNotifyFolds(t *testing.T) {
	for name, c := range map[string]struct {
		first  bool
		during []bool
		want   []bool
	}{
		"lost":                            {true, []bool{false}, []bool{true, false}},
		"lost and gained":                 {true, []bool{false, true}, []bool{true, false, true}},
		"lost, gained, lost":              {true, []bool{false, true, false}, []bool{true, false}},
		"lost and gained twice":           {true, []bool{false, true, false, true}, []bool{true, false, true}},
		"gained again, the loss unheard":  {true, []bool{true}, []bool{true, false, true}},
		"more than the buffer":            {true, append(make([]bool, 3*notifyBuffer), true), []bool{true, false, true}},
		"lost what was never told gained": {false, []bool{true, false}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, gate := NewNotify(), make(chan struct{})
				var told []bool
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() {
					n.Run(ctx, func(leader bool) {
						told = append(told, leader)
						<-gate
					})
					close(done)
				}()
				n.Chan() <- c.first
				synctest.Wait() // the callback is busy with the first, or there is nothing to tell
				if !c.first {
					n.Chan() <- true
					n.Chan() <- false
					synctest.Wait()
				}
				for _, leader := range c.during {
					n.Chan() <- leader // never blocks for good
				}
				close(gate)
				synctest.Wait()
				cancel()
				<-done
				if !c.first && len(told) > 0 { // a gain may be heard before the loss that follows it
					require.False(t, told[len(told)-1])
					return
				}
				require.Equal(t, c.want, told)
			})
		})
	}
}

// TestUnreadNotifyChannel: bare raft stands still at a change of leadership until somebody reads its channel.
func TestUnreadNotifyChannel(t *testing.T) {
	halves(t, func(t *testing.T, guarded bool) {
		n := newNode("a", inmem("a")[0])
		n.config = testConfig("a", 50*time.Millisecond)
		unread, notify := make(chan bool), NewNotify()
		n.config.NotifyCh = unread
		gained := make(chan bool, 1)
		if guarded {
			n.config.NotifyCh = notify.Chan()
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			go notify.Run(ctx, func(leader bool) { gained <- leader })
		}
		n.bootstrap(t, voters("a"))
		r := n.start(t)
		require.Eventually(t, func() bool { return r.State() == raft.Leader }, patience, moment)
		if guarded {
			require.NoError(t, Await(within(t, patience), r.Apply([]byte("x"), time.Second)))
			require.True(t, <-gained)
			return
		}
		err := Await(within(t, patience), r.Apply([]byte("x"), 200*time.Millisecond))
		require.ErrorIs(t, err, raft.ErrEnqueueTimeout, "the fault shows")
	})
}
