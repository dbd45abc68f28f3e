package fsm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/registry"
)

// world is a state with the position in the log that it has reached.
type world struct {
	t    testing.TB
	s    *State
	time uint64
}

func newWorld(t testing.TB, changes ...Change) *world { return &world{t: t, s: born(t, 0, changes...)} }

// apply applies an entry stamped with the world's time.
func (w *world) apply(e *Entry) []Result {
	e.Time = w.time
	return mustApply(w.t, w.s, e)
}

// run runs an unregistered command.
func (w *world) run(c *Command) *Answer {
	w.t.Helper()
	r := w.apply(&Entry{Items: []Item{{Kind: ItemUnregistered, Command: c.Encode()}}})
	return answerOf(w.t, r[0])
}

func answerOf(t testing.TB, r Result) *Answer {
	t.Helper()
	a, err := DecodeAnswer(r.Bytes)
	require.NoError(t, err)
	return a
}

func plain(o Op) *Command { return &Command{Kind: o.Kind, Op: o} }

func put(key, value string) Op { return Op{Kind: Put, Key: []byte(key), Value: []byte(value)} }

func increment(key string, delta int64) Op {
	return Op{Kind: Increment, Key: []byte(key), Delta: delta}
}

// value returns what a reader sees, "-" for nothing.
func (w *world) value(key string) string {
	kv, ok := w.s.Read([]byte(key))
	if !ok {
		return "-"
	}
	return string(kv.Value)
}

// register registers a client with a verifier of its own.
func (w *world) register(n uint64) uint64 {
	w.t.Helper()
	r := w.apply(&Entry{Items: []Item{{Kind: ItemRegister, Register: registry.Registration{Verifier: verifierOf(n)}}}})
	require.NotNil(w.t, r[0].Client, "%+v", r[0])
	return r[0].Client.ID
}

// request sends one request of a client that was registered with verifier n.
func (w *world) request(n, id, seq, first uint64, c *Command) Result {
	w.t.Helper()
	return w.apply(&Entry{Items: []Item{{Kind: ItemGroup, Group: Group{Client: id, Verifier: verifierOf(n), Requests: []Request{{
		Seq: seq, Progress: registry.Progress{First: first}, Salt: []byte("saltsalt"), Command: c.Encode()}}}}}})[0]
}

// snapshotOf returns the bytes of a snapshot.
func snapshotOf(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.WriteSnapshot(&b))
	return b.Bytes()
}

func restored(t testing.TB, snapshot []byte) *State {
	t.Helper()
	s, err := ReadSnapshot(bytes.NewReader(snapshot))
	require.NoError(t, err)
	return s
}
