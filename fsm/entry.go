package fsm

import (
	"bytes"
	"errors"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/registry"
)

// entryVersion is the first byte of every entry.
const entryVersion = 1

// Entry is a log entry: a batch of touches and items under one time stamp. In an entry the order is: time,
// touches, items, removals of what is due.
type Entry struct {
	// Time is the leader's stamp of cluster time, in milliseconds.
	Time uint64
	// Wall is the leader's wall time, in milliseconds since 1970. It never decides expiry.
	Wall    uint64
	Touches []Touch
	Items   []Item
}

// Touch keeps a client alive.
type Touch struct {
	Client   uint64
	Verifier registry.Verifier
	Progress registry.Progress
}

// ItemKind numbers what an entry can carry. The numbers are part of the log format.
type ItemKind uint8

// The kinds of items. 32 to 63 are kept for the inbox.
const (
	ItemGroup        ItemKind = 1
	ItemRegister     ItemKind = 2
	ItemClose        ItemKind = 3
	ItemUnregistered ItemKind = 4
	ItemGenesis      ItemKind = 5
	ItemNode         ItemKind = 6
	ItemClaim        ItemKind = 64
)

// Item is one thing an entry asks for; the field that belongs to Kind is set.
type Item struct {
	Kind     ItemKind
	Group    Group
	Register registry.Registration
	Close    Close
	// Command holds the canonical bytes of an unregistered command, or the body of a kind that isn't known here.
	Command []byte
	Genesis Genesis
	Node    Node
	Claim   Claim
}

// DigestScheme tells how State.Digest is made. Digests of different schemes can't be compared.
const DigestScheme = 1

// Claim says what the digest of the state was after an earlier entry, as a majority of the voters has reported it. It
// changes nothing; a node whose own digest differs must stop.
type Claim struct {
	Index, Sum uint64
	Scheme     byte
}

// Group is a run of requests of one client.
type Group struct {
	Client   uint64
	Verifier registry.Verifier
	Requests []Request
}

// Request is one request of a registered client.
type Request struct {
	Seq      uint64
	Progress registry.Progress
	// Salt and Command are those of a request that is to run.
	Salt, Command []byte
	// Cancel makes the request a cancellation of the one with this fingerprint.
	Cancel      bool
	Fingerprint registry.Fingerprint
}

// Close ends a client.
type Close struct {
	Client     uint64
	Verifier   registry.Verifier
	First      uint64
	Unresolved bool
}

// Incarnation is 128 random bits that tell one cluster, or one data folder, from another.
type Incarnation [16]byte

// Genesis is the first command of a cluster.
type Genesis struct {
	ClusterName string
	Incarnation Incarnation
	Settings    Settings
}

// Node is the record of a node: how to reach it, and which data folder it has.
type Node struct {
	ID string
	// Folder is the incarnation of its data folder; it never changes for an id.
	Folder                                  Incarnation
	RaftAddress, ClientAddress, HTTPAddress string
	Version                                 string
	FeatureLevel                            uint64
}

const maxLabel = 1024 // bytes of a name, address or version

// Results returns how many results an entry has: one for each touch, item and request of a group.
func (e *Entry) Results() int {
	n := len(e.Touches)
	for i := range e.Items {
		if e.Items[i].Kind == ItemGroup {
			n += len(e.Items[i].Group.Requests)
		} else {
			n++
		}
	}
	return n
}

// Encode appends the canonical bytes of the entry.
func (e *Entry) Encode(b []byte) []byte {
	b = append(b, entryVersion)
	b = canon.AppendUint(b, e.Time)
	b = canon.AppendUint(b, e.Wall)
	b = appendList(b, e.Touches, (*Touch).append)
	return appendList(b, e.Items, (*Item).append)
}

func (t *Touch) append(b []byte) []byte {
	b = canon.AppendUint(b, t.Client)
	b = append(b, t.Verifier[:]...)
	return appendProgress(b, t.Progress)
}

func appendProgress(b []byte, p registry.Progress) []byte {
	b = canon.AppendUint(b, p.First)
	return appendList(b, p.Received, func(g *registry.Range, b []byte) []byte {
		return canon.AppendUint(canon.AppendUint(b, g.Low), g.High)
	})
}

// append writes the kind, the length of the body and the body, so that a node that doesn't know a kind can skip it.
func (it *Item) append(b []byte) []byte {
	return canon.AppendBytes(append(b, byte(it.Kind)), it.body(nil))
}

func (it *Item) body(b []byte) []byte {
	switch it.Kind {
	case ItemGroup:
		b = canon.AppendUint(b, it.Group.Client)
		b = append(b, it.Group.Verifier[:]...)
		return appendList(b, it.Group.Requests, (*Request).append)
	case ItemRegister:
		b = append(b, it.Register.Verifier[:]...)
		b = canon.AppendBytes(b, it.Register.Name)
		b = canon.AppendUint(b, it.Register.TTL)
		return canon.AppendBool(b, it.Register.Ordered)
	case ItemClose:
		b = canon.AppendUint(b, it.Close.Client)
		b = append(b, it.Close.Verifier[:]...)
		b = canon.AppendUint(b, it.Close.First)
		return canon.AppendBool(b, it.Close.Unresolved)
	case ItemGenesis:
		return it.Genesis.append(b)
	case ItemNode:
		return it.Node.Append(b)
	case ItemClaim:
		b = append(b, it.Claim.Scheme)
		return canon.AppendUint(canon.AppendUint(b, it.Claim.Index), it.Claim.Sum)
	}
	return append(b, it.Command...)
}

// Append appends the canonical bytes of the record.
func (n *Node) Append(b []byte) []byte {
	b = canon.AppendBytes(b, n.ID)
	b = append(b, n.Folder[:]...)
	for _, s := range [...]string{n.RaftAddress, n.ClientAddress, n.HTTPAddress, n.Version} {
		b = canon.AppendBytes(b, s)
	}
	return canon.AppendUint(b, n.FeatureLevel)
}

func (g *Genesis) append(b []byte) []byte {
	b = canon.AppendBytes(b, g.ClusterName)
	b = append(b, g.Incarnation[:]...)
	return g.Settings.append(b)
}

func (q *Request) append(b []byte) []byte {
	b = canon.AppendBool(b, q.Cancel)
	b = canon.AppendUint(b, q.Seq)
	b = appendProgress(b, q.Progress)
	if q.Cancel {
		return append(b, q.Fingerprint[:]...)
	}
	b = canon.AppendBytes(b, q.Salt)
	return canon.AppendBytes(b, q.Command)
}

var errVersion = errors.New("entry of an unknown version")

// DecodeEntry reads the canonical bytes of an entry. Byte strings of the entry alias b.
func DecodeEntry(b []byte) (*Entry, error) {
	r := canon.NewReader(b)
	if r.Byte() != entryVersion {
		r.Fail(errVersion)
	}
	e := &Entry{Time: r.Uint(), Wall: r.Uint()}
	e.Touches = decodeList(r, r.Len(), decodeTouch)
	e.Items = decodeList(r, r.Len(), decodeItem)
	if err := r.Done(); err != nil {
		return nil, err
	}
	return e, nil
}

func decodeTouch(r *canon.Reader) (t Touch) {
	t.Client = r.Uint()
	copy(t.Verifier[:], r.Fixed(len(t.Verifier)))
	t.Progress = decodeProgress(r)
	return t
}

func decodeProgress(r *canon.Reader) (p registry.Progress) {
	p.First = r.Uint()
	p.Received = decodeList(r, MaxReceivedRanges, func(r *canon.Reader) registry.Range {
		return registry.Range{Low: r.Uint(), High: r.Uint()}
	})
	return p
}

func decodeItem(r *canon.Reader) (it Item) {
	it.Kind = ItemKind(r.Byte())
	body := canon.NewReader(r.Bytes(uint64(r.Len())))
	switch it.Kind {
	case ItemGroup:
		it.Group.Client = body.Uint()
		copy(it.Group.Verifier[:], body.Fixed(len(it.Group.Verifier)))
		it.Group.Requests = decodeList(body, body.Len(), decodeRequest)
	case ItemRegister:
		copy(it.Register.Verifier[:], body.Fixed(len(it.Register.Verifier)))
		it.Register.Name = string(body.Bytes(registry.MaxNameBytes))
		it.Register.TTL, it.Register.Ordered = body.Uint(), body.Bool()
	case ItemClose:
		it.Close.Client = body.Uint()
		copy(it.Close.Verifier[:], body.Fixed(len(it.Close.Verifier)))
		it.Close.First, it.Close.Unresolved = body.Uint(), body.Bool()
	case ItemGenesis:
		it.Genesis = decodeGenesis(body)
	case ItemNode:
		it.Node = *decodeNode(body)
	case ItemClaim:
		it.Claim.Scheme = body.Byte()
		it.Claim.Index, it.Claim.Sum = body.Uint(), body.Uint()
	default: // an unregistered command, or a kind of a later version, of which only the bytes are known
		it.Command = body.Fixed(body.Len())
	}
	if err := body.Done(); err != nil {
		r.Fail(err)
	}
	return it
}

func decodeRequest(r *canon.Reader) (q Request) {
	q.Cancel, q.Seq = r.Bool(), r.Uint()
	q.Progress = decodeProgress(r)
	if q.Cancel {
		copy(q.Fingerprint[:], r.Fixed(len(q.Fingerprint)))
		return q
	}
	q.Salt = r.Bytes(MaxSaltBytes)
	q.Command = r.Bytes(MaxCommandBytes)
	return q
}

func decodeGenesis(r *canon.Reader) (g Genesis) {
	g.ClusterName = string(r.Bytes(maxLabel))
	copy(g.Incarnation[:], r.Fixed(len(g.Incarnation)))
	g.Settings = decodeSettings(r)
	return g
}

func decodeNode(r *canon.Reader) *Node {
	n := &Node{ID: string(r.Bytes(maxLabel))}
	copy(n.Folder[:], r.Fixed(len(n.Folder)))
	for _, s := range [...]*string{&n.RaftAddress, &n.ClientAddress, &n.HTTPAddress, &n.Version} {
		*s = string(r.Bytes(maxLabel))
	}
	n.FeatureLevel = r.Uint()
	return n
}

// clone copies what a command keeps in the state: the entry's bytes belong to the log.
func clone(b []byte) []byte { return bytes.Clone(b) }
