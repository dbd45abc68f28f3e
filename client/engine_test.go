package client

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// history is an engine in front of a registry, with a network between them that does its worst: copies are held back,
// overtaken, lost, delivered long after their stream is gone; answers are lost; nodes refuse or don't know.
type history struct {
	t        *rapid.T
	registry *fakeRegistry
	engine   *engine
	now      time.Time
	link     *link
	transit  []copyInTransit
	answers  []answerInTransit
	calls    []*storied
}

type copyInTransit struct {
	link    *link
	secret  []byte
	id      uint64
	request *kvoncev1.Request
}

type answerInTransit struct {
	link     *link
	response *kvoncev1.Response
}

// storied is a call with what its caller was told.
type storied struct {
	call *call
	key  string
	told Outcome
}

func newHistory(t *rapid.T, ordered bool) *history {
	config := &config{endpoints: []string{"a"}, ordered: ordered, timing: defaultTiming(), log: slog.New(slog.DiscardHandler)}
	h := &history{t: t, registry: newFakeRegistry(), engine: newEngine(config), now: time.Unix(1, 0)}
	h.registry.window = rapid.Uint64Range(1, 4).Draw(t, "window")
	h.registry.answerCap = rapid.SampledFrom([]int{1, 400, 1 << 20}).Draw(t, "answerCap")
	return h
}

func (h *history) add() {
	key := fmt.Sprintf("key %d", len(h.calls))
	cmd := &kvoncev1.Command{Kind: &kvoncev1.Command_Put{Put: &kvoncev1.Put{Key: []byte(key)}}}
	s := &storied{call: newCommand(kindWrite, "put", cmd), key: cmd.String()}
	require.Nil(h.t, h.engine.add(s.call))
	h.calls = append(h.calls, s)
}

// connect gives the engine a link, as its hello says.
func (h *history) connect() {
	id, _ := h.engine.hello()
	h.link = newLink("a", "n", id)
	h.engine.install(h.link, h.registry.incarnation)
}

func (h *history) send() {
	if h.link == nil {
		return
	}
	for _, r := range h.engine.collect(h.link, h.now) {
		c := copyInTransit{link: h.link, request: proto.CloneOf(r)}
		if id := h.link.identity; id != nil {
			c.id, c.secret = id.id, id.secret
		}
		h.transit = append(h.transit, c)
	}
	if h.link.retired && len(h.link.pending) == 0 {
		h.drop()
	}
}

func (h *history) drop() {
	if h.link != nil {
		h.engine.drop(h.link, h.now)
		h.link = nil
	}
}

// takeCopy removes and returns any copy in transit.
func (h *history) takeCopy() (copyInTransit, bool) {
	if len(h.transit) == 0 {
		return copyInTransit{}, false
	}
	i := rapid.IntRange(0, len(h.transit)-1).Draw(h.t, "copy")
	c := h.transit[i]
	h.transit = append(h.transit[:i:i], h.transit[i+1:]...)
	return c, true
}

// deliver puts a copy into the log.
func (h *history) deliver() {
	if c, ok := h.takeCopy(); ok {
		h.answers = append(h.answers, answerInTransit{c.link, h.registry.apply(c.id, c.secret, c.request)})
	}
}

func (h *history) refuse() {
	if c, ok := h.takeCopy(); ok {
		r := refusal(rapid.SampledFrom([]kvoncev1.Code{kvoncev1.Code_NOT_LEADER, kvoncev1.Code_BUSY, kvoncev1.Code_TRANSFERRING,
			kvoncev1.Code_INVALID_ARGUMENT}).Draw(h.t, "code"))
		r.Tag = c.request.GetTag()
		h.answers = append(h.answers, answerInTransit{c.link, r})
	}
}

// doubt answers that nobody knows, and leaves the copy in transit or not.
func (h *history) doubt() {
	if c, ok := h.takeCopy(); ok {
		r := &kvoncev1.Response{Tag: c.request.GetTag(), Code: kvoncev1.Code_LEADERSHIP_LOST, Outcome: kvoncev1.Outcome_UNKNOWN}
		h.answers = append(h.answers, answerInTransit{c.link, r})
		if rapid.Bool().Draw(h.t, "still on its way") {
			c.link = &link{}
			h.transit = append(h.transit, c)
		}
	}
}

// receive lets an answer arrive, on a stream that is still there.
func (h *history) receive() {
	if len(h.answers) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.answers)-1).Draw(h.t, "answer")
	a := h.answers[i]
	h.answers = append(h.answers[:i:i], h.answers[i+1:]...)
	if a.link == h.link {
		h.engine.answer(a.link, a.response, h.now)
	}
}

// giveUp ends the context of a caller.
func (h *history) giveUp() {
	for _, s := range h.pick() {
		if s.told == 0 && !s.call.finished {
			s.told = h.engine.giveUp(s.call, context.DeadlineExceeded).Outcome
		}
	}
}

func (h *history) cancel() {
	for _, s := range h.pick() {
		if s.call.abandoned {
			h.engine.cancel(s.call, h.now)
		}
	}
}

func (h *history) pick() []*storied {
	if len(h.calls) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(h.calls)-1).Draw(h.t, "call")
	return h.calls[i : i+1]
}

// check compares what was told with what happened.
func (h *history) check() {
	for _, s := range h.calls {
		ran := h.registry.effects[s.key]
		require.LessOrEqual(h.t, ran, 1, "G1, G10: %s took effect twice", s.key)
		told := s.told
		if s.call.finished {
			told = Applied
			if s.call.err != nil {
				told = s.call.err.Outcome
			}
			if s.told != Unknown && s.told != 0 {
				require.Equal(h.t, s.told, told, "an outcome that was final has changed")
			}
		}
		switch told {
		case Applied:
			require.Equal(h.t, 1, ran, "G4: applied was told of %s", s.key)
		case NotApplied:
			require.Zero(h.t, ran, "G4: not applied was told of %s", s.key)
		}
	}
	require.Equal(h.t, h.open(), h.engine.open)
}

func (h *history) open() (n int) {
	for _, s := range h.calls {
		if !s.call.finished {
			n++
		}
	}
	return n
}

// settle lets everything through and requires that every call ends.
func (h *history) settle() {
	for len(h.answers) > 0 {
		h.receive()
	}
	for round := 0; h.open() > 0; round++ {
		require.Less(h.t, round, 1000, "stuck: %d calls are never resolved", h.open())
		h.now = h.now.Add(time.Second)
		if h.link == nil {
			h.connect()
		}
		h.send()
		for len(h.transit) > 0 {
			c := h.transit[0]
			h.transit = h.transit[1:]
			r := h.registry.apply(c.id, c.secret, c.request)
			if c.link == h.link {
				h.engine.answer(h.link, r, h.now)
			}
		}
		h.check()
		if h.link != nil && h.link.retired {
			h.drop()
		}
	}
	for ; len(h.transit) > 0; h.transit = h.transit[1:] { // the last late copies
		c := h.transit[0]
		h.registry.apply(c.id, c.secret, c.request)
	}
	h.check()
}

// Whatever the network, the nodes and the callers do: a request takes effect at most once (G1) and under one identity
// (G10), what a caller is told holds (G4), and once the cluster is healthy every request is resolved.
func TestEngineHistories(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h := newHistory(t, ordered)
				actions := map[string]func(*rapid.T){
					"call":       func(*rapid.T) { h.add() },
					"connect":    func(*rapid.T) { h.drop(); h.connect() },
					"send":       func(*rapid.T) { h.send() },
					"send again": func(*rapid.T) { h.send() },
					"deliver":    func(*rapid.T) { h.deliver() },
					"deliver 2":  func(*rapid.T) { h.deliver() },
					"deliver 3":  func(*rapid.T) { h.deliver() },
					"refuse":     func(*rapid.T) { h.refuse() },
					"doubt":      func(*rapid.T) { h.doubt() },
					"receive":    func(*rapid.T) { h.receive() },
					"receive 2":  func(*rapid.T) { h.receive() },
					"receive 3":  func(*rapid.T) { h.receive() },
					"give up":    func(*rapid.T) { h.giveUp() },
					"cancel":     func(*rapid.T) { h.cancel() },
					"wait":       func(*rapid.T) { h.now = h.now.Add(100 * time.Millisecond) },
					"expire": func(t *rapid.T) {
						switch rapid.IntRange(0, 9).Draw(t, "what") {
						case 0, 1, 2:
							h.registry.expire()
						case 3:
							h.registry.wipe()
						}
					},
					"": func(*rapid.T) { h.check() },
				}
				t.Repeat(actions)
				h.settle()
			})
		})
	}
}
