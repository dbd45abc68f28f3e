package fsm

import (
	"fmt"

	"github.com/kvonce/kvonce/registry"
)

// Result is the answer to one touch, item or request of an entry.
type Result struct {
	registry.Decision
	// Time is cluster time after the entry, in milliseconds.
	Time uint64
	// Claim is set for a claim about an earlier digest, for the node to compare.
	Claim *Claim
}

// PoisonError says that an entry couldn't be read. Every node gets it for the same entry, and none changes its state.
type PoisonError struct {
	Index uint64
	Err   error
}

func (e *PoisonError) Error() string {
	return fmt.Sprintf("entry %d can't be read: %v", e.Index, e.Err)
}

// Unwrap returns what the decoder said.
func (e *PoisonError) Unwrap() error { return e.Err }

// Apply applies the log entry at index. Results stand in the order touches, items, the requests of a group in its
// place. The error is a *PoisonError: the entry changed nothing and has no results.
func (s *State) Apply(index, term uint64, data []byte) ([]Result, error) {
	s.index, s.term = index, term
	e, err := DecodeEntry(data)
	if err != nil {
		return nil, &PoisonError{index, err}
	}
	s.advance(e)
	a := applier{s: s, at: registry.Stamp{Time: s.time, Index: index, Term: term}, lim: s.settings.limits()}
	a.results = make([]Result, 0, e.Results())
	for i := range e.Touches {
		a.touch(&e.Touches[i])
	}
	for i := range e.Items {
		a.item(&e.Items[i])
	}
	s.removeDue()
	return a.results, nil
}

// advance moves cluster time forward, by at most a step: whatever a leader stamps, time can't jump.
func (s *State) advance(e *Entry) {
	s.time = max(s.time, min(e.Time, s.time+maxStep))
	s.wall = max(s.wall, e.Wall)
}

// applier applies the parts of one entry.
type applier struct {
	s       *State
	at      registry.Stamp
	lim     registry.Limits
	results []Result
}

// add appends a result. A decision of a refusal carries the position of the entry that refused.
func (a *applier) add(d registry.Decision) {
	if d.Index == 0 {
		d.Index, d.Term = a.at.Index, a.at.Term
	}
	a.results = append(a.results, Result{Decision: d, Time: a.s.time})
}

func (a *applier) touch(t *Touch) {
	session, d := a.s.clients.Open(t.Client, t.Verifier)
	if session != nil {
		d = session.Touch(a.at, t.Progress)
		session.End()
	}
	a.add(d)
}

func (a *applier) item(it *Item) {
	switch {
	case it.Kind == ItemGenesis:
		a.genesis(&it.Genesis)
	case !a.s.born:
		a.refuseAll(it)
	case it.Kind == ItemGroup:
		a.group(&it.Group)
	case it.Kind == ItemRegister:
		a.add(a.s.clients.Register(a.at, a.lim, it.Register))
	case it.Kind == ItemClose:
		c := &it.Close
		a.add(a.s.clients.Close(a.at, c.Client, c.Verifier, c.First, c.Unresolved))
	case it.Kind == ItemUnregistered:
		a.unregistered(it.Command)
	case it.Kind == ItemNode:
		a.node(&it.Node)
	case it.Kind == ItemClaim:
		a.add(registry.Decision{Code: registry.Done, Outcome: registry.Applied})
		a.results[len(a.results)-1].Claim = &it.Claim
	default:
		a.add(failure(UnknownCommand))
	}
}

// failure is the decision on something that wasn't asked by a registered client.
func failure(f Failure) registry.Decision {
	outcome := registry.NotApplied
	if f == NotReady {
		outcome = registry.Refused
	}
	return registry.Decision{Code: registry.Done, Outcome: outcome, Bytes: failed(f, 0, "").Encode()}
}

// refuseAll answers everything that comes before the genesis.
func (a *applier) refuseAll(it *Item) {
	n := 1
	if it.Kind == ItemGroup {
		n = len(it.Group.Requests)
	}
	for range n {
		a.add(failure(NotReady))
	}
}

// genesis begins the cluster. On a state that has begun it changes nothing.
func (a *applier) genesis(g *Genesis) {
	s := a.s
	if g.Settings.check() != nil {
		a.add(failure(InvalidSetting))
		return
	}
	if s.born {
		a.add(registry.Decision{Code: registry.Done, Outcome: registry.NotApplied})
		return
	}
	s.born, s.clusterName, s.incarnation, s.settings = true, g.ClusterName, g.Incarnation, g.Settings
	a.lim = s.settings.limits()
	a.add(registry.Decision{Code: registry.Done, Outcome: registry.Applied})
}

// node stores a node record. The folder of an id never changes: a node that lost its folder lost its vote with it.
func (a *applier) node(n *Node) {
	if was, ok := a.s.nodes.Get(n.ID); ok && was.Folder != n.Folder || n.ID == "" {
		a.add(failure(InvalidCommand))
		return
	}
	kept := *n // n is a part of the entry, which must not be held in memory by it
	a.s.nodes.Set(n.ID, &kept)
	a.add(registry.Decision{Code: registry.Done, Outcome: registry.Applied})
}

func (a *applier) unregistered(command []byte) {
	e := &evaluation{s: a.s, command: command}
	outcome, bytes := e.Evaluate()
	if most := a.lim.MaxAnswer(); registry.AnswerOverhead+uint64(len(bytes)) > most { // as for a registered client
		e.Discard()
		a.add(registry.Decision{Code: registry.AnswerTooLarge, Outcome: registry.NotApplied, Limit: most})
		return
	}
	if outcome == registry.Applied {
		e.Keep()
	}
	a.lim = a.s.settings.limits()
	a.add(registry.Decision{Code: registry.Done, Outcome: outcome, Bytes: bytes})
}

func (a *applier) group(g *Group) {
	session, gone := a.s.clients.Open(g.Client, g.Verifier)
	for i := range g.Requests {
		q := &g.Requests[i]
		if session == nil {
			a.add(a.s.clients.Verdict(a.at, gone, g.Client, q.Seq, q.Progress.First))
			continue
		}
		a.add(a.request(session, q))
	}
	if session != nil {
		session.End()
	}
}

func (a *applier) request(session *registry.Session, q *Request) registry.Decision {
	if q.Cancel {
		return session.Cancel(a.at, q.Seq, q.Progress, q.Fingerprint)
	}
	e := &evaluation{s: a.s, salt: q.Salt, command: q.Command}
	d := session.Request(a.at, a.lim, q.Seq, q.Progress, e)
	a.lim = a.s.settings.limits()
	return d
}
