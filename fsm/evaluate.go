package fsm

import (
	"bytes"
	"math"
	"strconv"

	"github.com/kvonce/kvonce/registry"
)

// evaluation runs one command tentatively. It is the registry.Command of a request.
type evaluation struct {
	s             *State
	salt, command []byte
	fingerprint   registry.Fingerprint
	known         bool
}

// Fingerprint implements registry.Command.
func (e *evaluation) Fingerprint() registry.Fingerprint {
	if !e.known {
		e.fingerprint, e.known = FingerprintOf(e.salt, e.command), true
	}
	return e.fingerprint
}

// Evaluate implements registry.Command. A command that fails has changed nothing when it returns.
func (e *evaluation) Evaluate() (registry.Outcome, []byte) {
	a := e.s.evaluate(e.command)
	if a.Failure != NoFailure {
		e.Discard()
		return registry.NotApplied, a.Encode()
	}
	return registry.Applied, a.Encode()
}

// Keep implements registry.Command.
func (e *evaluation) Keep() {
	e.s.keys.keep()
	e.s.oldSettings = nil
}

// Discard implements registry.Command.
func (e *evaluation) Discard() {
	e.s.keys.discard()
	if e.s.oldSettings != nil {
		e.s.settings, e.s.oldSettings = *e.s.oldSettings, nil
	}
}

// evaluate runs a command. Effects stand in the state, to be kept or discarded.
func (s *State) evaluate(command []byte) *Answer {
	if limit := s.settings[MaxRequestBytes]; uint64(len(command)) > limit {
		return failed(CommandTooLarge, limit, "command")
	}
	c, err := DecodeCommand(command)
	if err == errUnknownKind {
		return failed(UnknownCommand, 0, "command")
	} else if err != nil {
		return failed(InvalidCommand, 0, "command")
	}
	before := s.keys.bytes
	a := s.dispatch(&c)
	if a.Failure != NoFailure {
		return a
	}
	if limit := s.settings[KeySpaceBytes]; s.keys.bytes > limit && s.keys.bytes > before {
		return failed(KeySpaceFull, limit, "key space")
	}
	a.Revision = s.keys.revision
	if len(s.keys.undo) > 0 {
		a.Revision++
	}
	return a
}

func (s *State) dispatch(c *Command) *Answer {
	switch c.Kind {
	case Transaction:
		return s.txn(&c.Txn)
	case SetSettings:
		return s.setSettings(c.Changes)
	}
	a := &Answer{Succeeded: true, Ops: make([]OpResult, 1)}
	if f := s.op(&c.Op, &a.Ops[0]); f != nil {
		return f
	}
	return a
}

func (s *State) setSettings(changes []Change) *Answer {
	next, err := s.settings.With(changes...)
	if err != nil {
		return failed(InvalidSetting, 0, err.Name) // the text of the error is no part of the state
	}
	old := s.settings
	s.oldSettings, s.settings = &old, next
	return &Answer{Succeeded: true}
}

func (s *State) txn(t *Txn) *Answer {
	limit := s.settings[MaxTxnOps]
	if uint64(max(len(t.Compares), len(t.Then), len(t.Else))) > limit {
		return failed(TxnTooLarge, limit, "transaction")
	}
	a := &Answer{Succeeded: true}
	for i := range t.Compares {
		if f := s.checkKey(t.Compares[i].Key); f != nil {
			return f
		}
		a.Succeeded = a.Succeeded && s.holds(&t.Compares[i])
	}
	ops := t.Then
	if !a.Succeeded {
		ops = t.Else
	}
	a.Ops = make([]OpResult, len(ops))
	for i := range ops {
		if f := s.op(&ops[i], &a.Ops[i]); f != nil {
			return f
		}
	}
	return a
}

func (s *State) holds(c *Compare) bool {
	r, ok := s.keys.get(string(c.Key), s.time)
	if !ok {
		r = &record{}
	}
	switch c.Target {
	case TargetValue:
		return ok && c.Relation.holds(bytes.Compare(r.value, c.Value)) || !ok && c.Relation == NotEqual
	case TargetVersion:
		return c.Relation.compare(r.version, c.Number)
	case TargetModRevision:
		return c.Relation.compare(r.mod, c.Number)
	case TargetCreateRevision:
		return c.Relation.compare(r.create, c.Number)
	case TargetExists:
		return (ok == (c.Number == 1)) == (c.Relation == Equal)
	}
	return false
}

func (r Relation) compare(a, b uint64) bool {
	switch {
	case a < b:
		return r.holds(-1)
	case a > b:
		return r.holds(+1)
	}
	return r.holds(0)
}

func (r Relation) holds(order int) bool {
	switch r {
	case Equal:
		return order == 0
	case NotEqual:
		return order != 0
	case Less:
		return order < 0
	case Greater:
		return order > 0
	}
	return false
}

func (s *State) checkKey(key []byte) *Answer {
	if len(key) == 0 {
		return failed(KeyEmpty, 0, "key")
	}
	if limit := s.settings[MaxKeyBytes]; uint64(len(key)) > limit {
		return failed(KeyTooLong, limit, "key")
	}
	return nil
}

// op runs one operation; a failure is returned and leaves what ran before it to be discarded.
func (s *State) op(o *Op, out *OpResult) *Answer {
	switch o.Kind {
	case DeleteRange:
		s.deleteRange(o, out)
		return nil
	case ReadRange:
		s.readRange(o, out)
		return nil
	}
	if f := s.checkKey(o.Key); f != nil {
		return f
	}
	key := string(o.Key)
	was, found := s.keys.get(key, s.time)
	switch o.Kind {
	case Put:
		return s.put(o, key, was, out)
	case Delete:
		if found {
			out.Deleted = 1
			out.previous(o.Previous, was, s.time)
			s.keys.remove(key)
		}
	case Increment:
		return s.increment(o, key, was, out)
	case Append:
		return s.append(o, key, was, out)
	case Get:
		out.previous(found, was, s.time)
	}
	return nil
}

func (out *OpResult) previous(wanted bool, was *record, now uint64) {
	if wanted && was != nil {
		out.Keys = []KeyValue{was.keyValue(now)}
	}
}

func (s *State) put(o *Op, key string, was *record, out *OpResult) *Answer {
	var deadline uint64
	if o.TTL > MaxKeyTTL {
		return failed(InvalidCommand, MaxKeyTTL, "ttl_ms")
	} else if o.TTL > 0 {
		deadline = s.time + o.TTL
	}
	out.previous(o.Previous, was, s.time)
	return s.write(key, was, clone(o.Value), deadline)
}

func (s *State) increment(o *Op, key string, was *record, out *OpResult) *Answer {
	var n int64
	if was != nil {
		var ok bool
		if n, ok = parseDecimal(was.value); !ok {
			return failed(NotANumber, 0, "value")
		}
	}
	if o.Delta > 0 && n > math.MaxInt64-o.Delta || o.Delta < 0 && n < math.MinInt64-o.Delta {
		return failed(Overflow, 0, "value")
	}
	out.Number = n + o.Delta
	return s.write(key, was, strconv.AppendInt(nil, out.Number, 10), was.keptDeadline())
}

// parseDecimal accepts what an increment writes and nothing else: no sign for positive numbers, no leading zeros.
func parseDecimal(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0, false
	}
	var canonical [20]byte
	return n, bytes.Equal(strconv.AppendInt(canonical[:0], n, 10), b)
}

func (s *State) append(o *Op, key string, was *record, out *OpResult) *Answer {
	var old []byte
	if was != nil {
		old = was.value
	}
	value := make([]byte, 0, len(old)+len(o.Value))
	value = append(append(value, old...), o.Value...)
	out.Length = uint64(len(value))
	return s.write(key, was, value, was.keptDeadline())
}

func (r *record) keptDeadline() uint64 {
	if r == nil {
		return 0
	}
	return r.deadline
}

// write puts a new record in the place of was, which is nil when the key is absent.
func (s *State) write(key string, was *record, value []byte, deadline uint64) *Answer {
	if limit := s.settings[MaxValueBytes]; uint64(len(value)) > limit {
		return failed(ValueTooLarge, limit, "value")
	}
	next := s.keys.revision + 1
	r := &record{key: key, value: value, create: next, mod: next, version: 1, deadline: deadline}
	if was != nil {
		r.create, r.version = was.create, was.version+1
	}
	s.keys.set(r)
	return nil
}

func (s *State) deleteRange(o *Op, out *OpResult) {
	var doomed []string
	s.keys.keys.Ascend(string(o.Key), func(r *record) bool {
		if len(o.End) > 0 && r.key >= string(o.End) {
			return false
		}
		if !r.expired(s.time) {
			doomed = append(doomed, r.key)
		}
		return true
	})
	for _, key := range doomed {
		s.keys.remove(key)
	}
	out.Deleted = uint64(len(doomed))
}

func (s *State) readRange(o *Op, out *OpResult) {
	out.Page = true
	out.Keys, out.More = s.page(o.Key, o.End, o.Limit, o.KeysOnly)
}

func (s *State) page(start, end []byte, limit uint64, keysOnly bool) ([]KeyValue, bool) {
	if most := s.settings[PageKeys]; limit == 0 || limit > most {
		limit = most
	}
	return s.keys.page(string(start), string(end), limit, s.settings[PageBytes], keysOnly, s.time)
}
