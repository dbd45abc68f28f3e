package raftguard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// The snapshot of these tests: at (snapIndex, snapTerm), with the commands 2..snapIndex of the leader.
const (
	snapIndex = 30
	snapTerm  = 3
)

func snapshotData() string {
	var b strings.Builder
	for i := 2; i <= snapIndex; i++ {
		fmt.Fprintf(&b, "good%d ", i)
	}
	return strings.TrimSpace(b.String())
}

// staleLog is the log of a node that was cut off: entries of a leader of term 2 that nobody committed.
func staleLog(t *testing.T, last uint64) *raft.InmemStore {
	t.Helper()
	s := raft.NewInmemStore()
	fill(t, s, voters("l", "f"), 1, 1, 5, "good")
	fill(t, s, voters("l", "f"), 2, 6, last, "stale")
	return s
}

// follower is a node that a test leads.
type follower struct {
	*node
	r      *raft.Raft
	leader *raft.InmemTransport
}

// follow starts a node on what is on disk.
func follow(t *testing.T, guarded bool, logs raft.LogStore, snapshots raft.SnapshotStore) *follower {
	t.Helper()
	trs := inmem("l", "f")
	n := newNode("f", trs[1])
	n.logs, n.snapshots = logs, snapshots
	if guarded {
		guard, err := NewSnapshotGuard(logs, snapshots)
		require.NoError(t, err)
		tr := NewTransport(trs[1], "f")
		tr.SetSnapshotGuard(guard)
		n.logs, n.snapshots, n.transport = guard.Logs(), guard.Snapshots(), tr
	}
	return &follower{n, n.start(t), trs[0]}
}

func (f *follower) install(t *testing.T) {
	t.Helper()
	data := snapshotData()
	req := &raft.InstallSnapshotRequest{RPCHeader: header("l"), SnapshotVersion: 1, Term: snapTerm,
		LastLogIndex: snapIndex, LastLogTerm: snapTerm, Size: int64(len(data)),
		Configuration: raft.EncodeConfiguration(voters("l", "f")), ConfigurationIndex: 1}
	var resp raft.InstallSnapshotResponse
	require.NoError(t, f.leader.InstallSnapshot("f", "f", req, &resp, strings.NewReader(data)))
	require.True(t, resp.Success)
}

// appendAfter sends the entry that follows (index, term), and tells whether it was accepted.
func (f *follower) appendAfter(t *testing.T, index, term uint64) bool {
	t.Helper()
	next := &raft.Log{Index: index + 1, Term: snapTerm, Type: raft.LogCommand, Data: fmt.Appendf(nil, "new%d", index+1)}
	var resp raft.AppendEntriesResponse
	require.NoError(t, f.leader.AppendEntries("f", "f", &raft.AppendEntriesRequest{RPCHeader: header("l"), Term: snapTerm,
		PrevLogEntry: index, PrevLogTerm: term, Entries: []*raft.Log{next}, LeaderCommitIndex: index + 1}, &resp))
	return resp.Success
}

func (f *follower) requireState(t *testing.T, more ...string) {
	t.Helper()
	want := append(strings.Fields(snapshotData()), more...)
	require.Eventually(t, func() bool { return len(f.machine.get()) >= len(want) }, patience, moment)
	require.Equal(t, want, f.machine.get())
}

// shapes are the ways in which a stale log can end: before the snapshot, exactly there, and after it.
var shapes = map[string]uint64{"before": snapIndex - 3, "at": snapIndex, "after": snapIndex + 8}

// TestSnapshotConflict is hashicorp/raft #697. Without the guard a follower whose stale log reaches to the snapshot
// rejects what follows it, so that the leader sends the same snapshot again for ever; and one whose log ends earlier
// keeps entries that were never committed, and gives them to others when it leads (G6).
func TestSnapshotConflict(t *testing.T) {
	for name, last := range shapes {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s cached=%v", name, cached), func(t *testing.T) {
				halves(t, func(t *testing.T, guarded bool) {
					var logs raft.LogStore = staleLog(t, last)
					if cached {
						logs = throughCache(t, logs)
					}
					f := follow(t, guarded, logs, raft.NewInmemSnapshotStore())
					f.install(t)
					f.install(t) // the leader may have missed the first answer
					var l raft.Log
					stale := f.logs.GetLog(20, &l)
					accepted := f.appendAfter(t, snapIndex, snapTerm)
					if !guarded {
						require.Equal(t, last < snapIndex, accepted, "the fault shows: a livelock")
						require.NoError(t, stale, "the fault shows")
						require.Equal(t, "stale20", string(l.Data))
						return
					}
					require.True(t, accepted)
					require.ErrorIs(t, stale, raft.ErrLogNotFound)
					require.True(t, f.appendAfter(t, snapIndex+1, snapTerm))
					f.requireState(t, "new31", "new32")
					at, err := f.logs.LastIndex()
					require.NoError(t, err)
					require.Equal(t, uint64(snapIndex+2), at, "what was above the snapshot is cut off")
				})
			})
		}
	}
}

// throughCache reads all of a log into a cache, as the last stores do.
func throughCache(t *testing.T, logs raft.LogStore) raft.LogStore {
	t.Helper()
	cache, err := raft.NewLogCache(64, logs)
	require.NoError(t, err)
	last, err := logs.LastIndex()
	require.NoError(t, err)
	for i := uint64(1); i <= last; i++ {
		l := new(raft.Log)
		require.NoError(t, logs.GetLog(i, l))
		require.NoError(t, cache.StoreLog(l))
	}
	return cache
}

// TestCrashBetweenSnapshotAndLog: the snapshot is on disk and the process ends before the log was mended.
func TestCrashBetweenSnapshotAndLog(t *testing.T) {
	for name, last := range shapes {
		t.Run(name, func(t *testing.T) {
			halves(t, func(t *testing.T, guarded bool) {
				logs, snapshots := staleLog(t, last), raft.NewInmemSnapshotStore()
				persist(t, snapshots, snapIndex, snapTerm)
				f := follow(t, guarded, logs, snapshots)
				accepted := f.appendAfter(t, snapIndex, snapTerm)
				if !guarded {
					require.Equal(t, last < snapIndex, accepted, "the fault shows")
					return
				}
				require.True(t, accepted)
				f.requireState(t, "new31")
				var l raft.Log
				require.ErrorIs(t, f.logs.GetLog(20, &l), raft.ErrLogNotFound)

				stop(f.r)
				again := follow(t, true, logs, snapshots)
				require.True(t, again.appendAfter(t, snapIndex+1, snapTerm), "and after one more restart")
				again.requireState(t, "new31", "new32")
			})
		})
	}
}

// persist makes a snapshot and completes it.
func persist(t *testing.T, s raft.SnapshotStore, index, term uint64) {
	t.Helper()
	require.NoError(t, sink(t, s, index, term).Close())
}

func sink(t *testing.T, s raft.SnapshotStore, index, term uint64) raft.SnapshotSink {
	t.Helper()
	k, err := s.Create(1, index, term, voters("l", "f"), 1, inmem("f")[0])
	require.NoError(t, err)
	_, err = k.Write([]byte(snapshotData()))
	require.NoError(t, err)
	return k
}

func newGuard(t *testing.T, logs raft.LogStore) *SnapshotGuard {
	t.Helper()
	g, err := NewSnapshotGuard(logs, raft.NewInmemSnapshotStore())
	require.NoError(t, err)
	return g
}

// TestOwnSnapshotDeletesNothing: the log of a node that takes a snapshot itself holds what the snapshot holds.
func TestOwnSnapshotDeletesNothing(t *testing.T) {
	logs := raft.NewInmemStore()
	fill(t, logs, voters("l", "f"), snapTerm, 1, snapIndex+5, "good")
	g := newGuard(t, logs)
	persist(t, g.Snapshots(), snapIndex, snapTerm)
	first, err := logs.FirstIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(1), first)

	require.NoError(t, g.Logs().DeleteRange(1, snapIndex), "the compaction")
	persist(t, g.Snapshots(), snapIndex, snapTerm)
	last, err := logs.LastIndex()
	require.NoError(t, err)
	require.Equal(t, uint64(snapIndex+5), last)
	var l raft.Log
	require.NoError(t, g.Logs().GetLog(snapIndex, &l))
	require.Equal(t, raft.Log{Index: snapIndex, Term: snapTerm, Type: placeholder}, l)
	require.ErrorIs(t, g.Logs().GetLog(snapIndex-1, &l), raft.ErrLogNotFound)
}

// TestOlderSnapshotThatIsLate: a snapshot of this node is complete after a newer one was installed.
func TestOlderSnapshotThatIsLate(t *testing.T) {
	g := newGuard(t, staleLog(t, 40))
	own := sink(t, g.Snapshots(), 5, 1)
	persist(t, g.Snapshots(), snapIndex, snapTerm)
	require.NoError(t, own.Close())
	var l raft.Log
	require.NoError(t, g.Logs().GetLog(snapIndex, &l))
	require.Equal(t, uint64(snapTerm), l.Term)
}

func TestCancelledSnapshotChangesNothing(t *testing.T) {
	logs := staleLog(t, 40)
	g := newGuard(t, logs)
	require.NoError(t, sink(t, g.Snapshots(), snapIndex, snapTerm).Cancel())
	var l raft.Log
	require.NoError(t, g.Logs().GetLog(snapIndex, &l))
	require.Equal(t, "stale30", string(l.Data))
}

// TestFirstEntryIsNeverMadeUp: raft sends the first entry without comparing one before it, so that an entry that only
// stands for another would reach followers.
func TestFirstEntryIsNeverMadeUp(t *testing.T) {
	g := newGuard(t, raft.NewInmemStore())
	persist(t, g.Snapshots(), 1, 1)
	require.ErrorIs(t, g.Logs().GetLog(1, new(raft.Log)), raft.ErrLogNotFound)
}

// unreadable is a log whose entries can't be read, and that must not be touched.
type unreadable struct {
	*raft.InmemStore
	t *testing.T
}

var errRead = errors.New("read error")

func (unreadable) GetLog(uint64, *raft.Log) error { return errRead }
func (u unreadable) DeleteRange(low, high uint64) error {
	require.Failf(u.t, "deleted", "%d..%d", low, high)
	return nil
}

// TestUnreadableEntryIsNotAMissingOne: a log that can't be read is kept, and the error reaches raft and the operator.
func TestUnreadableEntryIsNotAMissingOne(t *testing.T) {
	logs, snapshots := staleLog(t, 40), raft.NewInmemSnapshotStore()
	persist(t, snapshots, snapIndex, snapTerm)
	_, err := NewSnapshotGuard(unreadable{logs, t}, snapshots)
	require.ErrorIs(t, err, errRead)

	g := newGuard(t, raft.NewInmemStore())
	g.LogStore = unreadable{logs, t}
	require.ErrorIs(t, sink(t, g.Snapshots(), snapIndex, snapTerm).Close(), errRead)
	require.ErrorIs(t, g.Logs().GetLog(snapIndex, new(raft.Log)), errRead)
}

// monotonic is a store that can't have gaps.
type monotonic struct{ *raft.InmemStore }

func (monotonic) IsMonotonic() bool { return true }

// TestMonotonicIsHidden: raft throws the whole log of such a store away after a restore.
func TestMonotonicIsHidden(t *testing.T) {
	m, ok := newGuard(t, monotonic{raft.NewInmemStore()}).Logs().(raft.MonotonicLogStore)
	require.True(t, !ok || !m.IsMonotonic())
}
