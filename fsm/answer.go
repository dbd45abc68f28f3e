package fsm

import (
	"errors"
	"fmt"

	"github.com/kvonce/kvonce/internal/canon"
)

// Failure is why a command had no effect. The numbers are part of the log and snapshot format.
type Failure uint8

// The failures.
const (
	NoFailure       Failure = 0
	NotANumber      Failure = 1
	Overflow        Failure = 2
	KeyEmpty        Failure = 3
	KeyTooLong      Failure = 4
	ValueTooLarge   Failure = 5
	TxnTooLarge     Failure = 6
	CommandTooLarge Failure = 7
	KeySpaceFull    Failure = 8
	UnknownCommand  Failure = 9
	InvalidSetting  Failure = 10
	InvalidCommand  Failure = 11
	// NotReady is the only failure that is refused rather than not applied: the cluster has no genesis yet.
	NotReady    Failure = 12
	numFailures Failure = 13
)

// Answer is what a command answered.
type Answer struct {
	Failure Failure
	// Limit is the limit that was passed, where the failure has one.
	Limit uint64
	// Detail names the field or setting at fault.
	Detail string
	// Revision is the revision of the key space after the command.
	Revision uint64
	// Succeeded tells whether every comparison of a transaction held; true for other commands.
	Succeeded bool
	// Ops has one result for a plain command, and one for each operation that ran for a transaction.
	Ops []OpResult
}

// OpResult is what one operation answered.
type OpResult struct {
	// Deleted counts the keys that a delete removed.
	Deleted uint64
	// Number is the value after an increment.
	Number int64
	// Length is that of the value after an append.
	Length uint64
	// Keys holds the previous value of a put or delete, the key of a get, or the page of a range.
	Keys []KeyValue
	// Page tells that Keys is the page of a range.
	Page bool
	// More tells that the range goes on after the page.
	More bool
}

// KeyValue is a key as a read sees it.
type KeyValue struct {
	Key, Value                           []byte
	CreateRevision, ModRevision, Version uint64
	// TTL is the cluster time left in milliseconds, 0 for a key that stays.
	TTL uint64
}

func failed(f Failure, limit uint64, detail string) *Answer {
	return &Answer{Failure: f, Limit: limit, Detail: detail}
}

const maxDetail = 4096

// Encode returns the canonical bytes of the answer, as they are stored with the request.
func (a *Answer) Encode() []byte {
	b := []byte{byte(a.Failure)}
	if a.Failure != NoFailure {
		b = canon.AppendUint(b, a.Limit)
		return canon.AppendBytes(b, a.Detail[:min(len(a.Detail), maxDetail)])
	}
	b = canon.AppendUint(b, a.Revision)
	b = canon.AppendBool(b, a.Succeeded)
	return appendList(b, a.Ops, (*OpResult).append)
}

func (o *OpResult) append(b []byte) []byte {
	b = canon.AppendUint(b, o.Deleted)
	b = canon.AppendInt(b, o.Number)
	b = canon.AppendUint(b, o.Length)
	b = canon.AppendBool(b, o.Page)
	b = canon.AppendBool(b, o.More)
	return appendList(b, o.Keys, (*KeyValue).append)
}

func (k *KeyValue) append(b []byte) []byte {
	b = canon.AppendBytes(b, k.Key)
	b = canon.AppendBytes(b, k.Value)
	for _, n := range [...]uint64{k.CreateRevision, k.ModRevision, k.Version, k.TTL} {
		b = canon.AppendUint(b, n)
	}
	return b
}

// DecodeAnswer reads an answer. Its byte strings alias b.
func DecodeAnswer(b []byte) (*Answer, error) {
	r := canon.NewReader(b)
	a := &Answer{Failure: Failure(r.Byte())}
	switch {
	case a.Failure >= numFailures:
		r.Fail(errors.New("answer with an unknown failure"))
	case a.Failure != NoFailure:
		a.Limit = r.Uint()
		a.Detail = string(r.Bytes(maxDetail))
	default:
		a.Revision, a.Succeeded = r.Uint(), r.Bool()
		a.Ops = decodeList(r, r.Len(), decodeOpResult)
	}
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("stored answer: %w", err)
	}
	return a, nil
}

func decodeOpResult(r *canon.Reader) (o OpResult) {
	o.Deleted, o.Number, o.Length, o.Page, o.More = r.Uint(), r.Int(), r.Uint(), r.Bool(), r.Bool()
	o.Keys = decodeList(r, r.Len(), decodeKeyValue)
	return o
}

func decodeKeyValue(r *canon.Reader) (k KeyValue) {
	k.Key, k.Value = r.Bytes(MaxCommandBytes), r.Bytes(MaxCommandBytes)
	for _, n := range [...]*uint64{&k.CreateRevision, &k.ModRevision, &k.Version, &k.TTL} {
		*n = r.Uint()
	}
	return k
}
