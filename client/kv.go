package client

import (
	"context"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Commands change data. Client has them with the promise that every retry is safe; Unregistered has them without.
//
// Every method takes a context, and nothing else limits its time. A nil error means that the command took effect, once;
// of an error, OutcomeOf tells what is known.
type Commands struct {
	submit func(context.Context, string, *kvoncev1.Command) (Result, error)
}

// Meta tells where an answer comes from. A repeated request gets the same Revision, Index and Term as the first.
type Meta struct {
	// Revision is that of the key space after the command; for a read, of the state that was read.
	Revision uint64
	// Index and Term are those of the log entry that decided; for a read, Index is that of the state that was read.
	Index, Term uint64
	// Replayed tells that the answer was stored when the copy that brought it arrived.
	Replayed bool
	// Node is the node that answered.
	Node string
}

// KeyValue is a key as a command or read saw it.
type KeyValue struct {
	Key   string
	Value []byte
	// CreateRevision and ModRevision are the revisions at which the key was created and last changed.
	CreateRevision, ModRevision uint64
	// Version counts the changes since the key was created, from 1.
	Version uint64
	// TTL is the cluster time left until the key vanishes; 0 for a key that stays.
	TTL time.Duration
}

// OpResult is what one operation answered.
type OpResult struct {
	// Deleted counts the keys that a delete removed.
	Deleted uint64
	// Number is the value after an increment.
	Number int64
	// Length is that of the value after an append, in bytes.
	Length uint64
	// Previous is what a put or delete replaced, if that was asked for, or what a get read; nil if there was no key.
	Previous *KeyValue
	// KeyValues is the page that a range read.
	KeyValues []KeyValue
	// More tells that the range goes on after the page.
	More bool
}

// Result is what a command answered, in the form that all have in common.
type Result struct {
	Meta
	// Succeeded tells whether every comparison of a transaction held; it is true for other commands.
	Succeeded bool
	// Ops has one result for a plain command, and for a transaction one for each operation that ran.
	Ops []OpResult
}

// TxnResult is what a transaction answered.
type TxnResult = Result

// PutResult is what a put answered.
type PutResult struct {
	Meta
	// Previous is what the put replaced, if ReturnPrevious was given and there was something.
	Previous *KeyValue
}

// DeleteResult is what a delete answered.
type DeleteResult struct {
	Meta
	// Deleted counts the keys that were removed.
	Deleted uint64
	// Previous is the key that was removed, if ReturnPrevious was given to Delete and there was one.
	Previous *KeyValue
}

// IncrementResult is what an increment answered.
type IncrementResult struct {
	Meta
	// Value is the number after the increment.
	Value int64
}

// AppendResult is what an append answered.
type AppendResult struct {
	Meta
	// Length is that of the value after the append, in bytes.
	Length uint64
}

// PutOption changes a put.
type PutOption interface{ applyPut(*kvoncev1.Put) }

// DeleteOption changes a delete.
type DeleteOption interface{ applyDelete(*kvoncev1.Delete) }

// PreviousOption is an option of puts and deletes.
type PreviousOption struct{}

func (PreviousOption) applyPut(p *kvoncev1.Put)       { p.ReturnPrevious = true }
func (PreviousOption) applyDelete(d *kvoncev1.Delete) { d.ReturnPrevious = true }

// ReturnPrevious makes a put or delete return the key as it was before.
func ReturnPrevious() PreviousOption { return PreviousOption{} }

type ttlOption time.Duration

func (o ttlOption) applyPut(p *kvoncev1.Put) { p.TtlMs = milliseconds(time.Duration(o)) }

// TTL makes the key vanish after this much cluster time, which never runs faster than real time. The unit on the wire
// is a millisecond; parts of one are rounded up. Without it, or with 0, the key stays.
func TTL(d time.Duration) PutOption { return ttlOption(d) }

// milliseconds rounds up, so that a short time doesn't become none, which means for ever.
func milliseconds(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

// Put sets a key.
func (c Commands) Put(ctx context.Context, key string, value []byte, options ...PutOption) (PutResult, error) {
	r, err := c.one(ctx, "put", key, &kvoncev1.Command{Kind: &kvoncev1.Command_Put{Put: putOf(key, value, options)}})
	return PutResult{r.Meta, r.first().Previous}, err
}

func putOf(key string, value []byte, options []PutOption) *kvoncev1.Put {
	p := &kvoncev1.Put{Key: []byte(key), Value: value}
	for _, o := range options {
		o.applyPut(p)
	}
	return p
}

// Delete removes a key. A missing key is no error: Deleted is 0 then.
func (c Commands) Delete(ctx context.Context, key string, options ...DeleteOption) (DeleteResult, error) {
	r, err := c.one(ctx, "delete", key, &kvoncev1.Command{Kind: &kvoncev1.Command_Delete{Delete: deleteOf(key, options)}})
	return DeleteResult{r.Meta, r.first().Deleted, r.first().Previous}, err
}

func deleteOf(key string, options []DeleteOption) *kvoncev1.Delete {
	d := &kvoncev1.Delete{Key: []byte(key)}
	for _, o := range options {
		o.applyDelete(d)
	}
	return d
}

// DeleteRange removes the keys from start up to but without end, in one step. An empty end is no end.
func (c Commands) DeleteRange(ctx context.Context, start, end string) (DeleteResult, error) {
	d := &kvoncev1.DeleteRange{Start: []byte(start), End: []byte(end)}
	r, err := c.submit(ctx, "delete range", &kvoncev1.Command{Kind: &kvoncev1.Command_DeleteRange{DeleteRange: d}})
	return DeleteResult{Meta: r.Meta, Deleted: r.first().Deleted}, err
}

// DeletePrefix removes the keys that begin with prefix, in one step. An empty prefix is refused: whoever means all keys
// says so with DeleteRange.
func (c Commands) DeletePrefix(ctx context.Context, prefix string) (DeleteResult, error) {
	if prefix == "" {
		return DeleteResult{}, keyEmpty("delete prefix")
	}
	return c.DeleteRange(ctx, prefix, prefixEnd(prefix))
}

// prefixEnd returns the first key after all those that begin with prefix; empty when there is none.
func prefixEnd(prefix string) string {
	end := []byte(prefix)
	for len(end) > 0 {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return string(end)
		}
		end = end[:len(end)-1]
	}
	return ""
}

// Increment adds delta to a decimal number and returns the sum. A missing key counts as 0; a time to live is kept.
func (c Commands) Increment(ctx context.Context, key string, delta int64) (IncrementResult, error) {
	i := &kvoncev1.Increment{Key: []byte(key), Delta: delta}
	r, err := c.one(ctx, "increment", key, &kvoncev1.Command{Kind: &kvoncev1.Command_Increment{Increment: i}})
	return IncrementResult{r.Meta, r.first().Number}, err
}

// Append adds suffix to the end of a value. A missing key counts as empty; a time to live is kept.
func (c Commands) Append(ctx context.Context, key string, suffix []byte) (AppendResult, error) {
	a := &kvoncev1.Append{Key: []byte(key), Suffix: suffix}
	r, err := c.one(ctx, "append", key, &kvoncev1.Command{Kind: &kvoncev1.Command_Append{Append: a}})
	return AppendResult{r.Meta, r.first().Length}, err
}

// CompareAndSwap puts value under the key of the condition if the condition holds, in one step:
//
//	c.CompareAndSwap(ctx, client.Value("k").Equals(old), value)
//	c.CompareAndSwap(ctx, client.Absent("k"), value)
//
// Otherwise the error is ErrCompareFailed, with outcome NotApplied.
func (c Commands) CompareAndSwap(ctx context.Context, condition Cmp, value []byte, options ...PutOption) (PutResult, error) {
	key := string(condition.pb.GetKey())
	r, err := c.Txn().If(condition).Then(OpPut(key, value, options...)).Commit(ctx)
	if err == nil && !r.Succeeded {
		err = &Error{Op: "compare and swap", Code: CodeCompareFailed, Outcome: NotApplied, Meta: r.Meta, Message: "the condition doesn't hold"}
	}
	return PutResult{r.Meta, r.first().Previous}, err
}

// SetSettings changes replicated settings by name: all of them, or none.
func (c Commands) SetSettings(ctx context.Context, settings map[string]uint64) (Meta, error) {
	s := &kvoncev1.SetSettings{}
	for name, value := range settings {
		s.Settings = append(s.Settings, &kvoncev1.SetSettings_Setting{Name: name, Value: value})
	}
	sortSettings(s.Settings) // the same command whatever the order of the map
	r, err := c.submit(ctx, "set settings", &kvoncev1.Command{Kind: &kvoncev1.Command_SetSettings{SetSettings: s}})
	return r.Meta, err
}

// one submits a command on one key.
func (c Commands) one(ctx context.Context, op, key string, cmd *kvoncev1.Command) (Result, error) {
	if key == "" {
		return Result{}, keyEmpty(op)
	}
	return c.submit(ctx, op, cmd)
}

func keyEmpty(op string) error {
	return &Error{Op: op, Code: wireCode(kvoncev1.Code_KEY_EMPTY), Outcome: NotApplied, Message: "the key is empty"}
}

// first returns the result of a plain command's operation.
func (r *Result) first() OpResult {
	if len(r.Ops) == 0 {
		return OpResult{}
	}
	return r.Ops[0]
}
