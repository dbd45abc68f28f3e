package fsm

import (
	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/internal/cow"
	"github.com/kvonce/kvonce/registry"
)

// maxStep is the most by which one entry moves cluster time, in milliseconds.
const maxStep = 2 * second

// State is the replicated state. Use New. A State is changed by Apply alone; what Copy returns may be read by any
// number of goroutines while the original is changed by one.
type State struct {
	index, term uint64 // of the last entry applied
	time, wall  uint64 // milliseconds: cluster time, highest wall time of a leader
	born        bool   // the genesis was applied
	clusterName string
	incarnation Incarnation
	settings    Settings
	oldSettings *Settings // while a command that changes them is evaluated
	nodes       *cow.Table[string, *Node]
	keys        keyspace
	clients     *registry.Registry
}

// New returns the empty state that a cluster starts from.
func New() *State {
	return &State{
		nodes:   cow.NewTable[string, *Node](kindNode, func(a, b string) bool { return a < b }),
		keys:    newKeyspace(),
		clients: registry.New(),
	}
}

// Copy returns an equal state in O(1). Either can be changed without the other seeing it. To copy counts as a change
// of s: only its owner may.
func (s *State) Copy() *State {
	c := *s
	c.nodes, c.keys, c.clients = s.nodes.Copy(), s.keys.copy(), s.clients.Copy()
	return &c
}

// Index and Term are those of the last entry that was applied.
func (s *State) Index() uint64 { return s.index }

// Term returns the term of the last entry that was applied.
func (s *State) Term() uint64 { return s.term }

// Time returns cluster time in milliseconds.
func (s *State) Time() uint64 { return s.time }

// Wall returns the highest wall time of a leader, in milliseconds since 1970; for display.
func (s *State) Wall() uint64 { return s.wall }

// Born tells whether the cluster has its genesis; before it every other command is refused as NotReady.
func (s *State) Born() bool { return s.born }

// ClusterName returns the name given at genesis.
func (s *State) ClusterName() string { return s.clusterName }

// Incarnation returns the id of the cluster.
func (s *State) Incarnation() Incarnation { return s.incarnation }

// Settings returns the settings.
func (s *State) Settings() Settings { return s.settings }

// Revision returns the number of changes to the key space.
func (s *State) Revision() uint64 { return s.keys.revision }

// Keys returns how many keys are stored, those that have expired but aren't removed yet included.
func (s *State) Keys() int { return s.keys.keys.Len() }

// KeySpaceBytes returns the size of the key space as it counts against its limit.
func (s *State) KeySpaceBytes() uint64 { return s.keys.bytes }

// Registry returns the client registry, for reading.
func (s *State) Registry() *registry.Registry { return s.clients }

// Node returns the record of a node.
func (s *State) Node(id string) (*Node, bool) { return s.nodes.Get(id) }

// EachNode calls f for the node records in order of their ids until f returns false.
func (s *State) EachNode(f func(*Node) bool) { s.nodes.Scan(f) }

// Read returns the key that a reader sees, if any.
func (s *State) Read(key []byte) (KeyValue, bool) {
	r, ok := s.keys.get(string(key), s.time)
	if !ok {
		return KeyValue{}, false
	}
	return r.keyValue(s.time), true
}

// ReadRange returns a page of the keys in [start, end); an empty end is no end, limit 0 a full page.
func (s *State) ReadRange(start, end []byte, limit uint64, keysOnly bool) (page []KeyValue, more bool) {
	return s.page(start, end, limit, keysOnly)
}

// Expirable tells whether anything in the state can expire, so that time must go on.
func (s *State) Expirable() bool {
	_, due := s.nextDue()
	return due || s.clients.Excess(s.settings.limits())
}

// Digest returns the sum of the hashes of everything in the state but the log position.
func (s *State) Digest() uint64 {
	return s.clients.Digest() + s.keys.keys.Sum() + s.nodes.Sum() + cow.Hash(kindHead, s.appendHead(nil))
}

// appendHead appends what isn't in a table: clock, counters, genesis and settings.
func (s *State) appendHead(b []byte) []byte {
	for _, n := range [...]uint64{s.time, s.wall, s.keys.revision, s.clients.LastID()} {
		b = canon.AppendUint(b, n)
	}
	b = canon.AppendBool(b, s.born)
	g := Genesis{s.clusterName, s.incarnation, s.settings}
	return g.append(b)
}
