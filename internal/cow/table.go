// Package cow holds ordered tables that are copied in O(1) and know a digest of what they hold.
//
// A table is a copy-on-write B-tree. Its records are never changed once they are in a table, so that a copy can
// be read by one goroutine while another changes the original.
package cow

import (
	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// Record is what a Table holds: a value, or a pointer to one that never changes.
type Record interface {
	// Append appends the canonical bytes of the record, all of its fields, as they stand in a snapshot.
	Append([]byte) []byte
}

// Table is an ordered map with a digest. Use NewTable.
type Table[K any, R Record] struct {
	tree    *btree.BTreeG[entry[K, R]]
	kind    byte
	sum     uint64
	scratch []byte
}

type entry[K any, R Record] struct {
	key  K
	rec  R
	hash uint64
}

// NewTable returns an empty table. Kind tells its records from those of other tables in a digest, so that moving
// a record from one table to another changes the sum.
func NewTable[K any, R Record](kind byte, less func(a, b K) bool) *Table[K, R] {
	byKey := func(a, b entry[K, R]) bool { return less(a.key, b.key) }
	return &Table[K, R]{tree: btree.NewBTreeGOptions(byKey, btree.Options{NoLocks: true}), kind: kind}
}

// Hash returns the digest of one record's bytes in tables of this kind. It is XXH64 with the kind as its first
// byte.
func Hash(kind byte, record []byte) uint64 {
	var h xxhash.Digest
	h.Reset()
	_, _ = h.Write([]byte{kind}) // a hash never fails
	_, _ = h.Write(record)
	return h.Sum64()
}

// Copy returns a table with the same records, in O(1). Either can be changed without the other seeing it.
func (t *Table[K, R]) Copy() *Table[K, R] {
	return &Table[K, R]{tree: t.tree.Copy(), kind: t.kind, sum: t.sum}
}

// Set puts a record into the table, in the place of one with the same key, which is returned.
func (t *Table[K, R]) Set(key K, rec R) (old R, replaced bool) {
	e := t.entry(key, rec)
	was, replaced := t.tree.Set(e)
	t.sum += e.hash - was.hash
	return was.rec, replaced
}

// Push puts a record behind all others. It returns false, and changes nothing, when the key isn't above the last.
func (t *Table[K, R]) Push(key K, rec R) bool {
	e := t.entry(key, rec)
	if last, ok := t.tree.Max(); ok && !t.tree.Less(last, e) {
		return false
	}
	t.tree.Load(e)
	t.sum += e.hash
	return true
}

func (t *Table[K, R]) entry(key K, rec R) entry[K, R] {
	t.scratch = rec.Append(t.scratch[:0])
	return entry[K, R]{key, rec, Hash(t.kind, t.scratch)}
}

// Delete takes a record out of the table and returns it.
func (t *Table[K, R]) Delete(key K) (old R, found bool) {
	was, found := t.tree.Delete(entry[K, R]{key: key})
	t.sum -= was.hash
	return was.rec, found
}

// Get returns the record at key.
func (t *Table[K, R]) Get(key K) (R, bool) {
	e, ok := t.tree.Get(entry[K, R]{key: key})
	return e.rec, ok
}

// Min returns the first record.
func (t *Table[K, R]) Min() (R, bool) {
	e, ok := t.tree.Min()
	return e.rec, ok
}

// Ascend calls f for the records from key on, in order, until f returns false. F must not change the table.
func (t *Table[K, R]) Ascend(from K, f func(R) bool) {
	t.tree.Ascend(entry[K, R]{key: from}, func(e entry[K, R]) bool { return f(e.rec) })
}

// Scan calls f for all records in order until f returns false. F must not change the table.
func (t *Table[K, R]) Scan(f func(R) bool) {
	t.tree.Scan(func(e entry[K, R]) bool { return f(e.rec) })
}

// Len returns the number of records.
func (t *Table[K, R]) Len() int { return t.tree.Len() }

// Kind returns the number given to NewTable.
func (t *Table[K, R]) Kind() byte { return t.kind }

// Sum returns the digest: the sum of the hashes of all records, modulo 2^64. It depends on the records alone,
// not on the order of the changes that led to them.
func (t *Table[K, R]) Sum() uint64 { return t.sum }
