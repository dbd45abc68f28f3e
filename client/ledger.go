package client

import (
	"cmp"
	"slices"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

const (
	// receivedPays is the size of answers held by the cluster above the first outstanding sequence from which on it
	// pays to name them as received.
	receivedPays = 256 << 10
	// maxReceived is how many ranges one message may name.
	maxReceived = 64
	// answerOverhead is what the cluster charges for an answer beside its bytes.
	answerOverhead = 128
)

// ledger numbers requests and knows which of them are resolved. A sequence is resolved when it has been answered or
// cancelled in the log, when the library can learn no more about it, or when all its copies were refused and no more
// will be sent.
type ledger struct {
	// window is how far a sequence may lie ahead of first.
	window uint64
	// first is the first outstanding sequence: all below it are resolved.
	first uint64
	// entries are the sequences from first on, up to the last that was assigned.
	entries    []entry
	unresolved int
	// held is about how much the cluster holds of resolved answers that haven't been named as received, in bytes.
	held int
}

type entry struct {
	resolved bool
	// named tells that the cluster has been told that it may drop the answer.
	named bool
	// held is about how much the cluster holds, in bytes; keep for an answer that isn't this client's to drop.
	held int
}

// keep marks a sequence whose stored answer, if there is one, must not be dropped before its turn.
const keep = -1

func newLedger(window uint64) *ledger { return &ledger{window: max(window, 1), first: 1} }

// next returns the sequence that is assigned next.
func (l *ledger) next() uint64 { return l.first + uint64(len(l.entries)) }

// room reports whether another sequence fits into the window.
func (l *ledger) room() bool { return uint64(len(l.entries)) < l.window }

// assign returns a new sequence.
func (l *ledger) assign() uint64 {
	seq := l.next()
	l.entries = append(l.entries, entry{})
	l.unresolved++
	return seq
}

// resolve marks a sequence and moves the first outstanding one. Held is about what the cluster holds of its answer, in
// bytes, or keep.
func (l *ledger) resolve(seq uint64, held int) {
	if seq < l.first || seq >= l.next() || l.entries[seq-l.first].resolved {
		return
	}
	l.entries[seq-l.first] = entry{resolved: true, held: held}
	l.unresolved--
	l.held += max(held, 0)
	for len(l.entries) > 0 && l.entries[0].resolved {
		l.held -= l.entries[0].unnamed()
		l.entries = l.entries[1:]
		l.first++
	}
}

// unnamed is what the cluster holds of an answer without having been told that it may drop it.
func (e *entry) unnamed() int {
	if e.named {
		return 0
	}
	return max(e.held, 0)
}

// received returns the ranges of sequences whose answers may be dropped, when it pays to say so, and takes them for
// said. The ranges are in order and don't touch.
func (l *ledger) received() []*kvoncev1.SequenceRange {
	if l.held < receivedPays {
		return nil
	}
	ranges := l.ranges()
	if len(ranges) > maxReceived {
		slices.SortFunc(ranges, func(a, b span) int { return cmp.Compare(b.held, a.held) })
		ranges = ranges[:maxReceived]
		slices.SortFunc(ranges, func(a, b span) int { return cmp.Compare(a.low, b.low) })
	}
	out := make([]*kvoncev1.SequenceRange, len(ranges))
	for i, r := range ranges {
		l.name(r)
		out[i] = &kvoncev1.SequenceRange{Low: r.low, High: r.high}
	}
	return out
}

// span is a range of sequences and what the cluster holds of their answers.
type span struct {
	low, high uint64
	held      int
}

func (l *ledger) ranges() (found []span) {
	for i := range l.entries {
		e, seq := &l.entries[i], l.first+uint64(i)
		if !e.resolved || e.held == keep {
			continue
		}
		if n := len(found); n > 0 && found[n-1].high+1 == seq {
			found[n-1].high = seq
			found[n-1].held += e.unnamed()
		} else {
			found = append(found, span{seq, seq, e.unnamed()})
		}
	}
	return found
}

func (l *ledger) name(r span) {
	for seq := r.low; seq <= r.high; seq++ {
		e := &l.entries[seq-l.first]
		l.held -= e.unnamed()
		e.named = true
	}
}

// forget takes back that anything was named, after a stream broke or the cluster found no room for an answer.
func (l *ledger) forget() {
	l.held = 0
	for i := range l.entries {
		l.entries[i].named = false
		l.held += l.entries[i].unnamed()
	}
}

// copies counts the copies of one request, and folds what became of them.
type copies struct {
	// flying were sent and have neither been answered nor lost.
	flying int
	// lost tells that some copy's fate is unknown, for ever.
	lost bool
}

func (c *copies) send() { c.flying++ }

// refuse notes that the cluster said of a copy that it did nothing.
func (c *copies) refuse() { c.flying-- }

// lose notes that a copy's fate is unknown: the stream it was on is gone, or the node couldn't tell.
func (c *copies) lose() { c.flying, c.lost = c.flying-1, true }

// harmless reports whether no copy has run and, if no more are sent, none ever will: all were refused one by one, or
// none was sent.
func (c *copies) harmless() bool { return c.flying == 0 && !c.lost }
