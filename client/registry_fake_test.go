package client

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// fakeRegistry is the cluster's side in small: the rules that the log decides by, over a map of keys. It is no kinder
// than the real one.
type fakeRegistry struct {
	mu          sync.Mutex
	incarnation []byte
	window      uint64
	answerCap   int
	ttlMs       uint64
	maxClients  int

	index, revision, lastID uint64
	keys                    map[string][]byte
	clients                 map[uint64]*fakeClient
	tombs                   map[uint64]*fakeClient
	// ran counts how often each request took effect.
	ran map[fakeRequest]int
	// effects counts how often each command took effect, whatever it ran under.
	effects map[string]int
	touches int
	closes  []*kvoncev1.Close
}

type fakeRequest struct{ client, seq uint64 }

type fakeClient struct {
	id, first uint64
	verifier  string
	name      string
	ordered   bool
	sent      bool
	answers   map[uint64]*fakeAnswer
}

type fakeAnswer struct {
	fingerprint string
	response    *kvoncev1.Response
	had         bool
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{
		incarnation: []byte("0123456789abcdef"), window: 1024, answerCap: 8 << 20, ttlMs: 300_000, maxClients: 1000,
		keys: map[string][]byte{}, clients: map[uint64]*fakeClient{}, tombs: map[uint64]*fakeClient{},
		ran: map[fakeRequest]int{}, effects: map[string]int{},
	}
}

func refusal(code kvoncev1.Code) *kvoncev1.Response {
	return &kvoncev1.Response{Code: code, Outcome: kvoncev1.Outcome_REFUSED, Message: "refused by the script"}
}

// apply decides on a request as the log does.
func (g *fakeRegistry) apply(id uint64, secret []byte, r *kvoncev1.Request) *kvoncev1.Response {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.decide(id, string(verifierOf(secret)), r)
	out.Tag = r.GetTag()
	return out
}

func (g *fakeRegistry) decide(id uint64, verifier string, r *kvoncev1.Request) *kvoncev1.Response {
	g.index++
	switch k := r.GetKind().(type) {
	case *kvoncev1.Request_Write:
		return g.request(id, verifier, k.Write.GetSequence(), k.Write.GetProgress(), k.Write.GetSalt(), k.Write.GetCommand(), false)
	case *kvoncev1.Request_Cancel:
		return g.request(id, verifier, k.Cancel.GetSequence(), k.Cancel.GetProgress(), k.Cancel.GetSalt(), k.Cancel.GetCommand(), true)
	case *kvoncev1.Request_Touch:
		g.touches++
		return g.touch(id, verifier, k.Touch.GetProgress())
	case *kvoncev1.Request_Register:
		return g.register(k.Register)
	case *kvoncev1.Request_Close:
		return g.close(id, verifier, k.Close)
	case *kvoncev1.Request_Unregistered:
		return g.run(k.Unregistered)
	case *kvoncev1.Request_Read:
		return g.read(k.Read)
	}
	return refusal(kvoncev1.Code_INVALID_ARGUMENT)
}

func (g *fakeRegistry) decided(code kvoncev1.Code, o kvoncev1.Outcome) *kvoncev1.Response {
	return &kvoncev1.Response{Code: code, Outcome: o, Index: g.index, Term: 1}
}

// find returns a client, or the decision on a request of one that isn't there.
func (g *fakeRegistry) find(id uint64, verifier string, seq uint64) (*fakeClient, *kvoncev1.Response) {
	if c, ok := g.clients[id]; ok {
		if c.verifier != verifier {
			return nil, refusal(kvoncev1.Code_WRONG_SECRET)
		}
		return c, nil
	}
	t, ok := g.tombs[id]
	switch {
	case !ok:
		return nil, g.decided(kvoncev1.Code_UNKNOWN_CLIENT, kvoncev1.Outcome_UNKNOWN)
	case t.verifier != verifier:
		return nil, refusal(kvoncev1.Code_WRONG_SECRET)
	case seq < t.first:
		return nil, g.decided(kvoncev1.Code_CLIENT_EXPIRED, kvoncev1.Outcome_UNKNOWN)
	}
	if a := t.answers[seq]; a != nil && a.response.Outcome == kvoncev1.Outcome_APPLIED {
		return nil, g.decided(kvoncev1.Code_CLIENT_EXPIRED, kvoncev1.Outcome_APPLIED)
	}
	return nil, g.decided(kvoncev1.Code_CLIENT_EXPIRED, kvoncev1.Outcome_NOT_APPLIED)
}

func (g *fakeRegistry) request(id uint64, verifier string, seq uint64, p *kvoncev1.Progress, salt []byte, cmd *kvoncev1.Command, cancel bool) *kvoncev1.Response {
	if seq == 0 || p.GetFirstOutstanding() == 0 || p.GetFirstOutstanding() > seq {
		return refusal(kvoncev1.Code_INVALID)
	}
	c, gone := g.find(id, verifier, seq)
	if gone != nil {
		return gone
	}
	c.sent = true
	c.advance(p)
	fingerprint := fingerprintOf(salt, cmd)
	switch a := c.answers[seq]; {
	case seq < c.first:
		return g.decided(kvoncev1.Code_STALE_SEQUENCE, kvoncev1.Outcome_UNKNOWN)
	case a != nil:
		return a.replay(fingerprint)
	case seq-c.first >= g.window:
		return refusal(kvoncev1.Code_WINDOW_EXCEEDED)
	case cancel:
		out := g.decided(kvoncev1.Code_CANCELLED, kvoncev1.Outcome_NOT_APPLIED)
		c.answers[seq] = &fakeAnswer{fingerprint, out, false}
		return proto.CloneOf(out)
	case c.ordered && seq != c.next():
		out := refusal(kvoncev1.Code_OUT_OF_ORDER)
		out.ExpectedSequence = c.next()
		return out
	case seq != c.first && c.bytes()+answerOverhead > g.answerCap:
		return refusal(kvoncev1.Code_ANSWERS_FULL)
	}
	g.ran[fakeRequest{id, seq}]++
	out := g.run(cmd)
	c.answers[seq] = &fakeAnswer{fingerprint, out, false}
	return proto.CloneOf(out)
}

func fingerprintOf(salt []byte, cmd *kvoncev1.Command) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(cmd)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(append(slices.Clone(salt), b...)))
}

func (a *fakeAnswer) replay(fingerprint string) *kvoncev1.Response {
	out := proto.CloneOf(a.response)
	out.Replayed = true
	switch {
	case fingerprint != a.fingerprint:
		return &kvoncev1.Response{Code: kvoncev1.Code_SEQUENCE_REUSED, Outcome: kvoncev1.Outcome_UNKNOWN}
	case a.had:
		out.Code, out.Result = kvoncev1.Code_ANSWER_GONE, nil
	}
	return out
}

func (c *fakeClient) advance(p *kvoncev1.Progress) {
	c.first = max(c.first, p.GetFirstOutstanding())
	for seq, a := range c.answers {
		if seq < c.first {
			delete(c.answers, seq)
		}
		for _, r := range p.GetReceived() {
			a.had = a.had || seq >= r.GetLow() && seq <= r.GetHigh()
		}
	}
}

func (c *fakeClient) next() uint64 {
	next := c.first
	for c.answers[next] != nil {
		next++
	}
	return next
}

func (c *fakeClient) bytes() (n int) {
	for _, a := range c.answers {
		n += answerOverhead
		if !a.had {
			n += proto.Size(a.response)
		}
	}
	return n
}

func (g *fakeRegistry) touch(id uint64, verifier string, p *kvoncev1.Progress) *kvoncev1.Response {
	c, gone := g.find(id, verifier, 1)
	if gone != nil {
		return gone
	}
	c.advance(p)
	return g.decided(kvoncev1.Code_OK, kvoncev1.Outcome_APPLIED)
}

func (g *fakeRegistry) register(r *kvoncev1.Register) *kvoncev1.Response {
	for _, c := range g.clients {
		if c.verifier == string(r.GetVerifier()) {
			if c.sent {
				return refusal(kvoncev1.Code_VERIFIER_USED)
			}
			return g.registration(c)
		}
	}
	if len(g.clients) >= g.maxClients {
		out := refusal(kvoncev1.Code_CLIENTS_FULL)
		out.RetryAfterMs = 20
		return out
	}
	g.lastID++
	c := &fakeClient{id: g.lastID, first: 1, verifier: string(r.GetVerifier()), name: r.GetName(), ordered: r.GetOrdered(),
		answers: map[uint64]*fakeAnswer{}}
	g.clients[c.id] = c
	return g.registration(c)
}

func (g *fakeRegistry) registration(c *fakeClient) *kvoncev1.Response {
	out := g.decided(kvoncev1.Code_OK, kvoncev1.Outcome_APPLIED)
	out.Result = &kvoncev1.Response_Registered{Registered: &kvoncev1.Registered{ClientId: c.id, TtlMs: g.ttlMs,
		Window: g.window, Ordered: c.ordered, Incarnation: g.incarnation}}
	return out
}

func (g *fakeRegistry) close(id uint64, verifier string, r *kvoncev1.Close) *kvoncev1.Response {
	c, gone := g.find(id, verifier, r.GetFirstOutstanding())
	if gone != nil {
		return gone
	}
	g.closes = append(g.closes, r)
	c.advance(&kvoncev1.Progress{FirstOutstanding: r.GetFirstOutstanding()})
	delete(g.clients, id)
	if len(c.answers) > 0 || r.GetUnresolved() {
		g.tombs[id] = c
	}
	return g.decided(kvoncev1.Code_OK, kvoncev1.Outcome_APPLIED)
}

// expire makes tombstones of all clients.
func (g *fakeRegistry) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, c := range g.clients {
		g.tombs[id] = c
	}
	clear(g.clients)
}

// wipe makes the registry forget that there ever were clients.
func (g *fakeRegistry) wipe() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.clients)
	clear(g.tombs)
}

// view returns a copy of what tests look at, while nodes go on.
func (g *fakeRegistry) view() *fakeRegistry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &fakeRegistry{keys: maps.Clone(g.keys), clients: maps.Clone(g.clients), tombs: maps.Clone(g.tombs),
		effects: maps.Clone(g.effects), closes: slices.Clone(g.closes)}
}

func (g *fakeRegistry) set(key, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys[key] = []byte(value)
}

// run runs a command.
func (g *fakeRegistry) run(cmd *kvoncev1.Command) *kvoncev1.Response {
	g.effects[cmd.String()]++
	op := &kvoncev1.OpResult{}
	switch k := cmd.GetKind().(type) {
	case *kvoncev1.Command_Put:
		g.keys[string(k.Put.GetKey())] = k.Put.GetValue()
	case *kvoncev1.Command_Append:
		key := string(k.Append.GetKey())
		g.keys[key] = append(slices.Clone(g.keys[key]), k.Append.GetSuffix()...)
		op.Length = uint64(len(g.keys[key]))
	case *kvoncev1.Command_Increment:
		key := string(k.Increment.GetKey())
		n, err := strconv.ParseInt(string(g.keys[key]), 10, 64)
		if err != nil && g.keys[key] != nil {
			return g.decided(kvoncev1.Code_NOT_A_NUMBER, kvoncev1.Outcome_NOT_APPLIED)
		}
		op.Number = n + k.Increment.GetDelta()
		g.keys[key] = strconv.AppendInt(nil, op.Number, 10)
	case *kvoncev1.Command_Delete:
		key := string(k.Delete.GetKey())
		if _, ok := g.keys[key]; ok {
			op.Deleted = 1
		}
		delete(g.keys, key)
	case *kvoncev1.Command_Txn:
		return g.txn(k.Txn)
	}
	g.revision++
	return g.commandResult(true, op)
}

func (g *fakeRegistry) commandResult(succeeded bool, ops ...*kvoncev1.OpResult) *kvoncev1.Response {
	out := g.decided(kvoncev1.Code_OK, kvoncev1.Outcome_APPLIED)
	out.Result = &kvoncev1.Response_Command{Command: &kvoncev1.CommandResult{Revision: g.revision, Succeeded: succeeded, Ops: ops}}
	return out
}

// txn knows comparisons of values and of existence, and puts.
func (g *fakeRegistry) txn(t *kvoncev1.Txn) *kvoncev1.Response {
	ok := true
	for _, c := range t.GetCompares() {
		value, found := g.keys[string(c.GetKey())]
		switch k := c.GetTarget().(type) {
		case *kvoncev1.Compare_Value:
			ok = ok && found && string(value) == string(k.Value)
		case *kvoncev1.Compare_Exists:
			ok = ok && found == k.Exists
		}
	}
	if !ok {
		return g.commandResult(false)
	}
	g.revision++
	for _, o := range t.GetThenOps() {
		g.keys[string(o.GetPut().GetKey())] = o.GetPut().GetValue()
	}
	return g.commandResult(true, &kvoncev1.OpResult{})
}

func (g *fakeRegistry) read(r *kvoncev1.Read) *kvoncev1.Response {
	out := g.decided(kvoncev1.Code_OK, kvoncev1.Outcome_APPLIED)
	result := &kvoncev1.ReadResult{Revision: g.revision}
	out.Result = &kvoncev1.Response_Read{Read: result}
	if k := r.GetGet(); k != nil {
		if v, ok := g.keys[string(k.GetKey())]; ok {
			result.Kvs = []*kvoncev1.KeyValue{{Key: k.GetKey(), Value: v}}
		}
		return out
	}
	var found []string
	for key := range g.keys {
		if key >= string(r.GetRange().GetStart()) && (len(r.GetRange().GetEnd()) == 0 || key < string(r.GetRange().GetEnd())) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	const page = 2
	if len(found) > page {
		found, result.More = found[:page], true
	}
	for _, key := range found {
		result.Kvs = append(result.Kvs, &kvoncev1.KeyValue{Key: []byte(key), Value: g.keys[key]})
	}
	return out
}
