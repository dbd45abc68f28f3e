package client

import (
	"context"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Txn is a transaction under construction: if every comparison holds, the operations of Then run, otherwise those of
// Else, all in one step. It is used by one goroutine and committed once.
type Txn struct {
	commands Commands
	txn      kvoncev1.Txn
}

// Txn begins a transaction.
func (c Commands) Txn() *Txn { return &Txn{commands: c} }

// If adds comparisons. Without any, Then runs.
func (t *Txn) If(compares ...Cmp) *Txn {
	for _, c := range compares {
		t.txn.Compares = append(t.txn.Compares, c.pb)
	}
	return t
}

// Then adds operations for when every comparison holds.
func (t *Txn) Then(ops ...Op) *Txn {
	t.txn.ThenOps = appendOps(t.txn.ThenOps, ops)
	return t
}

// Else adds operations for when one doesn't.
func (t *Txn) Else(ops ...Op) *Txn {
	t.txn.ElseOps = appendOps(t.txn.ElseOps, ops)
	return t
}

func appendOps(list []*kvoncev1.Op, ops []Op) []*kvoncev1.Op {
	for _, o := range ops {
		list = append(list, o.pb)
	}
	return list
}

// Commit runs the transaction. Which branch ran is said by Succeeded; both are no error. When an operation fails, none
// has any effect.
func (t *Txn) Commit(ctx context.Context) (TxnResult, error) {
	return t.commands.submit(ctx, "txn", &kvoncev1.Command{Kind: &kvoncev1.Command_Txn{Txn: &t.txn}})
}

// Op is one operation of a transaction.
type Op struct{ pb *kvoncev1.Op }

// OpPut sets a key.
func OpPut(key string, value []byte, options ...PutOption) Op {
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_Put{Put: putOf(key, value, options)}}}
}

// OpDelete removes a key.
func OpDelete(key string, options ...DeleteOption) Op {
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_Delete{Delete: deleteOf(key, options)}}}
}

// OpDeleteRange removes the keys from start up to but without end. An empty end is no end.
func OpDeleteRange(start, end string) Op {
	d := &kvoncev1.DeleteRange{Start: []byte(start), End: []byte(end)}
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_DeleteRange{DeleteRange: d}}}
}

// OpIncrement adds delta to a decimal number.
func OpIncrement(key string, delta int64) Op {
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_Increment{Increment: &kvoncev1.Increment{Key: []byte(key), Delta: delta}}}}
}

// OpAppend adds suffix to the end of a value.
func OpAppend(key string, suffix []byte) Op {
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_Append{Append: &kvoncev1.Append{Key: []byte(key), Suffix: suffix}}}}
}

// OpGet reads a key, as Previous of its result.
func OpGet(key string) Op {
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_Get{Get: &kvoncev1.Get{Key: []byte(key)}}}}
}

// OpRange reads at most limit keys from start up to but without end, as KeyValues of its result. An empty end is no end,
// and a limit of 0 is a page of the cluster's.
func OpRange(start, end string, limit uint64) Op {
	r := &kvoncev1.Range{Start: []byte(start), End: []byte(end), Limit: limit}
	return Op{&kvoncev1.Op{Kind: &kvoncev1.Op_Range{Range: r}}}
}

// Cmp is a comparison.
type Cmp struct{ pb *kvoncev1.Compare }

// Exists demands that a key exists.
func Exists(key string) Cmp { return existence(key, true) }

// Absent demands that a key doesn't exist.
func Absent(key string) Cmp { return existence(key, false) }

func existence(key string, exists bool) Cmp {
	return Cmp{&kvoncev1.Compare{Key: []byte(key), Relation: kvoncev1.Compare_EQUAL, Target: &kvoncev1.Compare_Exists{Exists: exists}}}
}

// ValueCmp compares the value of a key, in byte order. A missing key has no value, and satisfies NotEquals alone.
type ValueCmp struct{ key string }

// Value begins a comparison of the value of a key.
func Value(key string) ValueCmp { return ValueCmp{key} }

// Equals demands that the value is v.
func (c ValueCmp) Equals(v []byte) Cmp { return c.is(kvoncev1.Compare_EQUAL, v) }

// NotEquals demands that the value isn't v.
func (c ValueCmp) NotEquals(v []byte) Cmp { return c.is(kvoncev1.Compare_NOT_EQUAL, v) }

// Less demands that the value comes before v.
func (c ValueCmp) Less(v []byte) Cmp { return c.is(kvoncev1.Compare_LESS, v) }

// Greater demands that the value comes after v.
func (c ValueCmp) Greater(v []byte) Cmp { return c.is(kvoncev1.Compare_GREATER, v) }

func (c ValueCmp) is(r kvoncev1.Compare_Relation, v []byte) Cmp {
	return Cmp{&kvoncev1.Compare{Key: []byte(c.key), Relation: r, Target: &kvoncev1.Compare_Value{Value: v}}}
}

// NumberCmp compares the version of a key or one of its revisions. They are 0 for a missing key.
type NumberCmp struct {
	key string
	set func(*kvoncev1.Compare, uint64)
}

// Version begins a comparison of the number of changes since a key was created.
func Version(key string) NumberCmp {
	return NumberCmp{key, func(c *kvoncev1.Compare, n uint64) { c.Target = &kvoncev1.Compare_Version{Version: n} }}
}

// ModRevision begins a comparison of the revision at which a key last changed.
func ModRevision(key string) NumberCmp {
	return NumberCmp{key, func(c *kvoncev1.Compare, n uint64) { c.Target = &kvoncev1.Compare_ModRevision{ModRevision: n} }}
}

// CreateRevision begins a comparison of the revision at which a key was created.
func CreateRevision(key string) NumberCmp {
	return NumberCmp{key, func(c *kvoncev1.Compare, n uint64) { c.Target = &kvoncev1.Compare_CreateRevision{CreateRevision: n} }}
}

// Equals demands that the number is n.
func (c NumberCmp) Equals(n uint64) Cmp { return c.is(kvoncev1.Compare_EQUAL, n) }

// NotEquals demands that the number isn't n.
func (c NumberCmp) NotEquals(n uint64) Cmp { return c.is(kvoncev1.Compare_NOT_EQUAL, n) }

// Less demands that the number is less than n.
func (c NumberCmp) Less(n uint64) Cmp { return c.is(kvoncev1.Compare_LESS, n) }

// Greater demands that the number is greater than n.
func (c NumberCmp) Greater(n uint64) Cmp { return c.is(kvoncev1.Compare_GREATER, n) }

func (c NumberCmp) is(r kvoncev1.Compare_Relation, n uint64) Cmp {
	pb := &kvoncev1.Compare{Key: []byte(c.key), Relation: r}
	c.set(pb, n)
	return Cmp{pb}
}
