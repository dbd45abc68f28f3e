package fsm

import (
	"fmt"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/internal/cow"
)

// Kinds of records besides the registry's, as numbered in snapshots and digests; see registry.KindClient. 4 to 8
// are kept for what expires in the inbox, 20 to 31 for its other records.
const (
	kindKey  = 3
	kindNode = 17
	kindHead = 18
)

// keyOverhead is what a key counts against the key space besides its own bytes and its value's.
const keyOverhead = 96

// record is a key with its value. A record in a table never changes.
type record struct {
	key                  string
	value                []byte
	create, mod, version uint64
	// deadline is the cluster time from which the key is absent, 0 for never.
	deadline uint64
}

// Append appends the canonical bytes of the record.
func (r *record) Append(b []byte) []byte {
	b = canon.AppendBytes(b, r.key)
	b = canon.AppendBytes(b, r.value)
	for _, n := range [...]uint64{r.create, r.mod, r.version, r.deadline} {
		b = canon.AppendUint(b, n)
	}
	return b
}

func decodeRecord(in *canon.Reader) *record {
	r := &record{key: string(in.Bytes(MaxCommandBytes)), value: clone(in.Bytes(MaxCommandBytes))}
	for _, n := range [...]*uint64{&r.create, &r.mod, &r.version, &r.deadline} {
		*n = in.Uint()
	}
	return r
}

func (r *record) size() uint64 { return keyOverhead + uint64(len(r.key)) + uint64(len(r.value)) }

// keyspace is the ordered map with what is derived from it. Its changes can be undone until they are kept.
type keyspace struct {
	keys     *cow.Table[string, *record]
	due      *cow.Index[dueKey]
	bytes    uint64
	revision uint64
	undo     []undo
}

// dueKey orders keys by their deadline.
type dueKey struct {
	deadline uint64
	key      string
}

// undo restores what stood at a key before a change.
type undo struct {
	key string
	was *record // nil for none
}

func newKeyspace() keyspace {
	return keyspace{
		keys: cow.NewTable[string, *record](kindKey, func(a, b string) bool { return a < b }),
		due: cow.NewIndex(func(a, b dueKey) bool {
			return a.deadline < b.deadline || a.deadline == b.deadline && a.key < b.key
		}),
	}
}

func (k *keyspace) copy() keyspace {
	return keyspace{keys: k.keys.Copy(), due: k.due.Copy(), bytes: k.bytes, revision: k.revision}
}

// get returns the record at key unless its deadline has passed.
func (k *keyspace) get(key string, now uint64) (*record, bool) {
	r, ok := k.keys.Get(key)
	if !ok || r.expired(now) {
		return nil, false
	}
	return r, true
}

func (r *record) expired(now uint64) bool { return r.deadline != 0 && r.deadline <= now }

// set and remove are the only ways in which keys change.
func (k *keyspace) set(r *record) {
	was, _ := k.keys.Set(r.key, r)
	k.undo = append(k.undo, undo{r.key, was})
	k.forget(was)
	k.added(r)
}

// added and forget keep what is derived from the records.
func (k *keyspace) added(r *record) {
	k.bytes += r.size()
	if r.deadline != 0 {
		k.due.Add(dueKey{r.deadline, r.key})
	}
}

func (k *keyspace) remove(key string) {
	was, ok := k.keys.Delete(key)
	if !ok {
		return
	}
	k.undo = append(k.undo, undo{key, was})
	k.forget(was)
}

func (k *keyspace) forget(was *record) {
	if was == nil {
		return
	}
	k.bytes -= was.size()
	if was.deadline != 0 {
		k.due.Remove(dueKey{was.deadline, was.key})
	}
}

// keep makes the changes since the last keep or discard last.
func (k *keyspace) keep() {
	if len(k.undo) > 0 {
		k.revision++
	}
	k.forgetUndo()
}

// discard undoes them.
func (k *keyspace) discard() {
	changes := k.undo
	k.undo = nil
	for i := len(changes) - 1; i >= 0; i-- {
		if u := changes[i]; u.was != nil {
			k.set(u.was)
		} else {
			k.remove(u.key)
		}
	}
	k.undo = changes
	k.forgetUndo()
}

// forgetUndo empties the list without letting go of its memory, and lets go of the records in it.
func (k *keyspace) forgetUndo() {
	clear(k.undo)
	k.undo = k.undo[:0]
}

// page reads keys in [start, end), at most limit of them, until they hold maxBytes. It gives at least one.
func (k *keyspace) page(start, end string, limit, maxBytes uint64, keysOnly bool, now uint64) (page []KeyValue, more bool) {
	var size uint64
	k.keys.Ascend(start, func(r *record) bool {
		if end != "" && r.key >= end {
			return false
		}
		if r.expired(now) {
			return true
		}
		kv := r.keyValue(now)
		if keysOnly {
			kv.Value = nil
		}
		size += uint64(len(kv.Key) + len(kv.Value))
		if more = len(page) > 0 && (uint64(len(page)) >= limit || size > maxBytes); more {
			return false
		}
		page = append(page, kv)
		return true
	})
	return page, more
}

func (r *record) keyValue(now uint64) KeyValue {
	kv := KeyValue{Key: []byte(r.key), Value: r.value, CreateRevision: r.create, ModRevision: r.mod, Version: r.version}
	if r.deadline != 0 {
		kv.TTL = r.deadline - now
	}
	return kv
}

func (k *keyspace) load(record []byte) error {
	in := canon.NewReader(record)
	r := decodeRecord(in)
	if err := in.Done(); err != nil {
		return fmt.Errorf("key record: %w", err)
	}
	if r.create == 0 || r.create > r.mod || r.mod > k.revision || r.version == 0 {
		return fmt.Errorf("key %q has impossible revisions %d to %d of %d", r.key, r.create, r.mod, k.revision)
	}
	if !k.keys.Push(r.key, r) {
		return fmt.Errorf("key %q stands twice or out of order", r.key)
	}
	k.added(r)
	return nil
}
