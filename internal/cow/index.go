package cow

import "github.com/tidwall/btree"

// Index is an ordered set without a digest, for what is derived from the records of a Table. Use NewIndex.
type Index[E any] struct{ tree *btree.BTreeG[E] }

// NewIndex returns an empty index.
func NewIndex[E any](less func(a, b E) bool) *Index[E] {
	return &Index[E]{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// Copy returns an index with the same elements, in O(1).
func (x *Index[E]) Copy() *Index[E] { return &Index[E]{x.tree.Copy()} }

// Add puts e into the index.
func (x *Index[E]) Add(e E) { x.tree.Set(e) }

// Remove takes e out of the index.
func (x *Index[E]) Remove(e E) { x.tree.Delete(e) }

// Get returns the element that equals e in the index's order.
func (x *Index[E]) Get(e E) (E, bool) { return x.tree.Get(e) }

// Min returns the first element.
func (x *Index[E]) Min() (E, bool) { return x.tree.Min() }

// Len returns the number of elements.
func (x *Index[E]) Len() int { return x.tree.Len() }
