package registry

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvonce/kvonce/internal/cow"
)

// TestG1G3G4AgainstTheOracle makes random calls to the registry and to an implementation with unbounded history, and
// compares every decision and the states. It also counts how often each request took effect: never twice.
func TestG1G3G4AgainstTheOracle(t *testing.T) {
	seen := map[Code]int{}
	for range 8 { // rapid makes a hundred worlds each time
		rapid.Check(t, func(t *rapid.T) {
			w := &world{r: New(), o: &oracle{}, lim: testLimits(), term: 1, effects: map[answerKey]int{}, seen: seen}
			w.lim.ClientAnswerBytes, w.lim.TotalAnswerBytes, w.lim.TombstoneSpan = 600, 1000, 60
			for range die(t, 300, "calls") {
				w.step(t)
			}
			w.compareCopies(t)
		})
	}
	for code := range codeNames {
		require.NotZero(t, seen[code], "the random calls never led to %q", codeNames[code])
	}
}

// die draws a number from 0 to sides-1, all alike; rapid's ranges prefer low ones.
func die(t *rapid.T, sides int, label string) int {
	return rapid.SampledFrom(faces[:sides]).Draw(t, label)
}

var faces = func() (f [4096]int) {
	for i := range f {
		f[i] = i
	}
	return f
}()

// world is a registry and its oracle, with a clock and a log position.
type world struct {
	r           *Registry
	o           *oracle
	lim         Limits
	time        uint64
	index, term uint64
	effects     map[answerKey]int
	seen        map[Code]int
	copies      []frozen
}

// frozen is a copy with what was in it when it was made.
type frozen struct {
	r       *Registry
	records [][]byte
}

func (w *world) step(t *rapid.T) {
	w.index++
	switch action := die(t, 20, "action"); {
	case action < 8:
		w.request(t)
	case action < 10:
		w.cancel(t)
	case action < 12:
		w.touch(t)
	case action < 14:
		w.register(t)
	case action < 15:
		w.close(t)
	case action < 18:
		w.tick(t)
	default:
		w.disturb(t)
	}
	checkInvariants(t, w.r)
	w.compareStates(t)
}

func (w *world) at() Stamp { return Stamp{w.time, w.index, w.term} }

// who draws a client and a verifier, mostly its own.
func (w *world) who(t *rapid.T) (uint64, Verifier) {
	id := uint64(die(t, len(w.o.clients)+2, "client"))
	if c := w.o.find(id); c != nil && die(t, 10, "right") > 0 {
		return id, c.reg.Verifier
	}
	return id, verifierOf("wrong")
}

// where draws a sequence and progress, mostly near those of the client.
func (w *world) where(t *rapid.T, id uint64) (uint64, Progress) {
	first := uint64(1)
	if c := w.o.find(id); c != nil {
		first = c.first
	}
	if die(t, 20, "odd") == 0 {
		first = rapid.SampledFrom([]uint64{0, 1, first + 20, MaxSequence, MaxSequence + 1}).Draw(t, "far")
	}
	p := Progress{First: first + uint64(die(t, 6, "ahead")/4)}
	seq := p.First + uint64(die(t, int(w.lim.Window)+2, "offset")) - 1
	for range die(t, 7, "ranges") - 4 {
		low := first + uint64(die(t, 11, "low")) - 1
		p.Received = append(p.Received, Range{low, low + uint64(die(t, 6, "length")) - 1})
	}
	return seq, p
}

func (w *world) command(t *rapid.T, seq uint64) *fakeCommand {
	text := fmt.Sprint(seq, die(t, 10, "command") == 0)
	size := rapid.SampledFrom([]int{0, 3, 50, 200, 500, 2000}).Draw(t, "size")
	return &fakeCommand{fingerprint: fingerprintOf(text), answer: make([]byte, size), fails: die(t, 5, "fails") == 0}
}

func (w *world) same(t *rapid.T, got, want Decision) {
	w.seen[got.Code]++
	require.True(t, got.equal(want), "registry says %+v, oracle says %+v", got, want)
}

func (w *world) request(t *rapid.T) {
	id, v := w.who(t)
	seq, p := w.where(t, id)
	cmd := w.command(t, seq)
	got := request(w.r, w.at(), w.lim, id, v, seq, p, cmd)
	w.same(t, got, w.o.request(w.at(), w.lim, id, v, seq, p, cmd))
	cmd.checkSettled(t)
	w.effects[answerKey{id, seq}] += cmd.kept
	require.LessOrEqual(t, w.effects[answerKey{id, seq}], 1, "request (%d, %d) took effect twice (G1)", id, seq)
	ranNow := got.Outcome == Applied && got.Code == Done && !got.Replayed
	require.Equal(t, ranNow, cmd.kept == 1, "effects are kept exactly when the answer says so")
	w.checkStored(t, id, v, seq, cmd.fingerprint)
}

// checkStored compares what a node may say from applied state with what the log would say to the same request.
func (w *world) checkStored(t *rapid.T, id uint64, v Verifier, seq uint64, f Fingerprint) {
	d, ok := w.r.Stored(id, v, seq, func() Fingerprint { return f })
	c := w.o.find(id)
	if c == nil || c.life != alive || c.reg.Verifier != v || seq < c.first || c.decided[seq] == nil ||
		c.decided[seq].received || c.decided[seq].fingerprint != f {
		require.False(t, ok, "only a stored answer may be given without the log: %+v", d)
		return
	}
	require.True(t, ok && d.equal(c.decided[seq].again(f)), "from state %+v, by the log %+v", d, c.decided[seq].again(f))
}

func (w *world) cancel(t *rapid.T) {
	id, v := w.who(t)
	seq, p := w.where(t, id)
	f := w.command(t, seq).fingerprint
	w.same(t, cancel(w.r, w.at(), id, v, seq, p, f), w.o.cancel(w.at(), id, v, seq, p, f))
}

func (w *world) touch(t *rapid.T) {
	id, v := w.who(t)
	_, p := w.where(t, id)
	w.same(t, touch(w.r, w.at(), id, v, p), w.o.touch(w.at(), id, v, p))
}

func (w *world) register(t *rapid.T) {
	reg := Registration{
		Verifier: verifierOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "verifier")),
		TTL:      rapid.SampledFrom([]uint64{0, 0, 20, 40, 5, 2000}).Draw(t, "ttl"),
		Ordered:  die(t, 2, "ordered") == 1,
	}
	w.same(t, w.r.Register(w.at(), w.lim, reg), w.o.register(w.at(), w.lim, reg))
}

func (w *world) close(t *rapid.T) {
	id, v := w.who(t)
	_, p := w.where(t, id)
	unresolved := die(t, 4, "unresolved") == 0
	w.same(t, w.r.Close(w.at(), id, v, p.First, unresolved), w.o.close(w.at(), id, v, p.First, unresolved))
}

func (w *world) tick(t *rapid.T) {
	w.time += uint64(rapid.SampledFrom([]int{0, 1, 5, 10, 30}).Draw(t, "time"))
	budget := uint64(die(t, 5, "budget"))
	removeDue(w.r, w.lim, w.time, budget, func(Due) {})
	w.o.tick(w.lim, w.time, budget)
}

// disturb does what must change nothing, or what changes decisions to come for both.
func (w *world) disturb(t *rapid.T) {
	switch die(t, 4, "disturbance") {
	case 0:
		w.r = reload(t, w.r)
	case 1:
		w.copies = append(w.copies, frozen{w.r.Copy(), records(w.r)})
	case 2:
		w.term++
	case 3:
		w.lim.Window = uint64(die(t, 12, "window") + 1)
		w.lim.MaxTombstones = uint64(die(t, 4, "tombstones"))
		w.lim.MaxClients = uint64(die(t, 5, "clients") + 1)
		w.lim.ClientAnswerBytes = uint64(200 + die(t, 1300, "client bytes"))
		w.lim.TotalAnswerBytes = uint64(200 + die(t, 2800, "total bytes"))
	}
}

func records(r *Registry) (out [][]byte) {
	r.Records(func(kind byte, rec cow.Record) bool {
		out = append(out, rec.Append([]byte{kind}))
		return true
	})
	return out
}

func (w *world) compareStates(t *rapid.T) {
	require.EqualValues(t, w.o.count(alive), w.r.Clients())
	require.EqualValues(t, w.o.count(buried), w.r.Tombstones())
	require.Equal(t, w.o.bytes(), w.r.AnswerBytes())
	for _, want := range w.o.clients {
		got, ok := w.r.Client(want.id)
		require.Equal(t, want.life == alive, ok)
		d, dead := w.r.tombs.Get(want.id)
		require.Equal(t, want.life == buried, dead)
		if ok {
			n, size := want.bytes()
			require.Equal(t, []uint64{want.first, want.active, want.ttl, want.window, n, size},
				[]uint64{got.First, got.LastActive, got.TTL, got.Window, got.Answers(), got.AnswerBytes()})
		}
		if dead {
			require.Equal(t, []uint64{want.first, want.since, uint64(want.why)}, []uint64{d.First, d.Since, uint64(d.Reason)})
		}
	}
}

// compareCopies looks at all copies again: nothing that happened since has reached them.
func (w *world) compareCopies(t *rapid.T) {
	for _, f := range w.copies {
		require.Equal(t, f.records, records(f.r))
		checkInvariants(t, f.r)
	}
}
