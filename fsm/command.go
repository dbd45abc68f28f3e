package fsm

import (
	"crypto/sha256"
	"errors"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/registry"
)

// Hard ceilings of the codec. Below them the settings decide.
const (
	// MaxCommandBytes is the size of the largest command that an entry can carry.
	MaxCommandBytes = 8 * mib
	// MaxSaltBytes is the length of the longest salt.
	MaxSaltBytes = 16
	// MaxReceivedRanges is how many ranges of received answers a request can name.
	MaxReceivedRanges = 64
	// MaxKeyTTL is the longest time to live of a key, in milliseconds: a hundred years.
	MaxKeyTTL = 100 * 365 * 24 * hour
	// maxParts bounds the lists of a transaction before the setting is looked at.
	maxParts = 1 << 16
)

// Kind numbers a command or an operation of a transaction. The numbers are part of the log format; 64 to 95 are
// kept for the inbox.
type Kind uint8

// The kinds of commands. Get and ReadRange stand only inside transactions.
const (
	Put         Kind = 1
	Delete      Kind = 2
	DeleteRange Kind = 3
	Increment   Kind = 4
	Append      Kind = 5
	Get         Kind = 6
	ReadRange   Kind = 7
	Transaction Kind = 32
	SetSettings Kind = 33
)

// Op is one operation on the key space. The fields that a kind doesn't use are zero.
type Op struct {
	Kind Kind
	// Key is the key, or the start of a range.
	Key []byte
	// Value is the value of a put or the suffix of an append.
	Value []byte
	// End is where a range ends, exclusive; empty for no end.
	End []byte
	// Delta is what an increment adds.
	Delta int64
	// TTL is the time to live that a put gives, in milliseconds of cluster time; 0 for none.
	TTL uint64
	// Previous asks a put or delete for the value that was there.
	Previous bool
	// Limit bounds the keys of a range read; 0 for a page.
	Limit uint64
	// KeysOnly leaves the values of a range read out.
	KeysOnly bool
}

// Fields of an operation, as bits that tell which follow. Defaults are left out, so that a field that is added later
// changes neither the bytes nor the fingerprint of the commands before it.
const (
	hasValue = 1 << iota
	hasEnd
	hasDelta
	hasTTL
	hasPrevious
	hasLimit
	hasKeysOnly
)

// allowed lists the fields that a kind uses.
func (k Kind) allowed() (fields uint64, ok bool) {
	switch k {
	case Put:
		return hasValue | hasTTL | hasPrevious, true
	case Delete:
		return hasPrevious, true
	case DeleteRange:
		return hasEnd, true
	case Increment:
		return hasDelta, true
	case Append:
		return hasValue, true
	case Get:
		return 0, true
	case ReadRange:
		return hasEnd | hasLimit | hasKeysOnly, true
	}
	return 0, false
}

func (o *Op) fields() (f uint64) {
	for _, x := range [...]struct {
		set bool
		bit uint64
	}{
		{len(o.Value) > 0, hasValue}, {len(o.End) > 0, hasEnd}, {o.Delta != 0, hasDelta}, {o.TTL != 0, hasTTL},
		{o.Previous, hasPrevious}, {o.Limit != 0, hasLimit}, {o.KeysOnly, hasKeysOnly},
	} {
		if x.set {
			f |= x.bit
		}
	}
	return f
}

func (o *Op) append(b []byte) []byte {
	f := o.fields()
	b = append(b, byte(o.Kind))
	b = canon.AppendBytes(b, o.Key)
	b = canon.AppendUint(b, f)
	if f&hasValue != 0 {
		b = canon.AppendBytes(b, o.Value)
	}
	if f&hasEnd != 0 {
		b = canon.AppendBytes(b, o.End)
	}
	if f&hasDelta != 0 {
		b = canon.AppendInt(b, o.Delta)
	}
	if f&hasTTL != 0 {
		b = canon.AppendUint(b, o.TTL)
	}
	if f&hasLimit != 0 {
		b = canon.AppendUint(b, o.Limit)
	}
	return b
}

var (
	errUnknownKind = errors.New("command of an unknown kind")
	errField       = errors.New("command has a field that its kind doesn't use, or a default written out")
)

func decodeOp(r *canon.Reader) (o Op) {
	o.Kind = Kind(r.Byte())
	allowed, ok := o.Kind.allowed()
	if !ok {
		r.Fail(errUnknownKind)
	}
	o.Key = r.Bytes(MaxCommandBytes)
	f := r.Uint()
	if f&hasValue != 0 {
		o.Value = r.Bytes(MaxCommandBytes)
	}
	if f&hasEnd != 0 {
		o.End = r.Bytes(MaxCommandBytes)
	}
	if f&hasDelta != 0 {
		o.Delta = r.Int()
	}
	if f&hasTTL != 0 {
		o.TTL = r.Uint()
	}
	if f&hasLimit != 0 {
		o.Limit = r.Uint()
	}
	o.Previous, o.KeysOnly = f&hasPrevious != 0, f&hasKeysOnly != 0
	if f&^allowed != 0 || o.fields() != f {
		r.Fail(errField)
	}
	return o
}

// Relation is how a comparison compares.
type Relation uint8

// The relations.
const (
	Equal    Relation = 1
	NotEqual Relation = 2
	Less     Relation = 3
	Greater  Relation = 4
)

// Target is what a comparison looks at.
type Target uint8

// The targets. A missing key has the numbers 0; it has no value, so that only NotEqual holds for it.
const (
	TargetValue          Target = 1
	TargetVersion        Target = 2
	TargetModRevision    Target = 3
	TargetCreateRevision Target = 4
	// TargetExists compares existence, with Equal or NotEqual, to a number that is 1 for yes and 0 for no.
	TargetExists Target = 5
)

// Compare is one condition of a transaction.
type Compare struct {
	Key      []byte
	Relation Relation
	Target   Target
	// Value is compared with TargetValue.
	Value []byte
	// Number is compared with all other targets.
	Number uint64
}

func (c *Compare) append(b []byte) []byte {
	b = canon.AppendBytes(b, c.Key)
	b = append(b, byte(c.Relation), byte(c.Target))
	if c.Target == TargetValue {
		return canon.AppendBytes(b, c.Value)
	}
	return canon.AppendUint(b, c.Number)
}

func decodeCompare(r *canon.Reader) (c Compare) {
	c.Key = r.Bytes(MaxCommandBytes)
	c.Relation, c.Target = Relation(r.Byte()), Target(r.Byte())
	if c.Target == TargetValue {
		c.Value = r.Bytes(MaxCommandBytes)
	} else {
		c.Number = r.Uint()
	}
	if c.Relation < Equal || c.Relation > Greater || c.Target < TargetValue || c.Target > TargetExists {
		r.Fail(errField)
	}
	if c.Target == TargetExists && (c.Relation > NotEqual || c.Number > 1) {
		r.Fail(errField)
	}
	return c
}

// Txn runs Then when every comparison holds, and Else otherwise, as one step.
type Txn struct {
	Compares   []Compare
	Then, Else []Op
}

// Command is what a client asks for: an operation, a transaction, or a change of settings, by Kind.
type Command struct {
	Kind Kind
	Op   Op
	Txn  Txn
	// Changes are those of SetSettings.
	Changes []Change
}

// Encode returns the canonical bytes of the command.
func (c *Command) Encode() []byte {
	switch c.Kind {
	case Transaction:
		b := appendList([]byte{byte(c.Kind)}, c.Txn.Compares, (*Compare).append)
		return appendList(appendList(b, c.Txn.Then, (*Op).append), c.Txn.Else, (*Op).append)
	case SetSettings:
		return appendList([]byte{byte(c.Kind)}, c.Changes, func(x *Change, b []byte) []byte {
			return canon.AppendUint(canon.AppendUint(b, uint64(x.Setting)), x.Value)
		})
	}
	return c.Op.append(nil)
}

func appendList[T any](b []byte, list []T, one func(*T, []byte) []byte) []byte {
	b = canon.AppendUint(b, uint64(len(list)))
	for i := range list {
		b = one(&list[i], b)
	}
	return b
}

// decodeList reads a list. Its length is bounded by the bytes that are left before anything is allocated.
func decodeList[T any](r *canon.Reader, limit int, one func(*canon.Reader) T) []T {
	n := r.Count(uint64(min(limit, r.Len())))
	list := make([]T, 0, min(n, 256))
	for range n {
		if r.Err() != nil {
			return nil
		}
		list = append(list, one(r))
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// DecodeCommand reads canonical bytes; nothing else decodes.
func DecodeCommand(b []byte) (c Command, err error) {
	r := canon.NewReader(b)
	if len(b) > 0 {
		c.Kind = Kind(b[0])
	}
	switch c.Kind {
	case Transaction:
		r.Byte()
		c.Txn.Compares = decodeList(r, maxParts, decodeCompare)
		c.Txn.Then = decodeList(r, maxParts, decodeOp)
		c.Txn.Else = decodeList(r, maxParts, decodeOp)
	case SetSettings:
		r.Byte()
		c.Changes = decodeList(r, maxParts, func(r *canon.Reader) Change {
			return Change{Setting(r.Count(maxParts)), r.Uint()}
		})
	case Get, ReadRange:
		return Command{}, errUnknownKind // they change nothing and need no log
	default:
		c.Op = decodeOp(r)
	}
	if err := r.Done(); err != nil {
		return Command{}, err
	}
	return c, nil
}

// fingerprintScheme is the first byte of fingerprints that FingerprintOf makes.
const fingerprintScheme = 1

// FingerprintOf returns the fingerprint of a command's canonical bytes with the salt of its request: the first
// 128 bits of a SHA-256. The bytes are those of this codec, never of a serialisation library, so a fingerprint is
// the same for ever. The salt tells apart two requests that ask for the same thing.
func FingerprintOf(salt, command []byte) (f registry.Fingerprint) {
	h := sha256.New()
	head := canon.AppendBytes([]byte{fingerprintScheme}, salt)
	_, _ = h.Write(head) // a hash never fails
	_, _ = h.Write(command)
	var sum [sha256.Size]byte
	f[0] = fingerprintScheme
	copy(f[1:], h.Sum(sum[:0]))
	return f
}
