// Package canon writes and reads canonical bytes: one value has one encoding, and nothing else decodes to it.
//
// Integers are minimal base-128 varints, byte strings carry their length. The log, the snapshots, the digests
// and the fingerprints are built from it, so it must never change; it depends on no serialisation library.
package canon

import (
	"encoding/binary"
	"errors"
)

// Errors of a Reader. They are sticky: after the first one every read returns zero values.
var (
	// ErrShort means that the input ended inside a value.
	ErrShort = errors.New("canonical bytes end too early")
	// ErrNotCanonical means that a value could have been written shorter.
	ErrNotCanonical = errors.New("bytes are not canonical")
	// ErrTooLong means that a byte string or count is above the limit its reader gave.
	ErrTooLong = errors.New("canonical value is too long")
	// ErrTrailing means that bytes were left after the last value.
	ErrTrailing = errors.New("bytes after the last canonical value")
)

// AppendUint appends an unsigned integer.
func AppendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendInt appends a signed integer in zigzag form.
func AppendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// AppendBytes appends a byte string with its length.
func AppendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendBool appends a truth value as one byte.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Reader reads values in the order in which they were appended. Byte strings alias the input.
type Reader struct {
	rest []byte
	err  error
}

// NewReader reads from b, which must not change while anything that was read from it is in use.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.rest) }

// Rest returns the bytes that are left, without consuming them.
func (r *Reader) Rest() []byte { return r.rest }

// Done returns the first error, or ErrTrailing when bytes are left.
func (r *Reader) Done() error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = ErrTrailing
	}
	return r.err
}

// Fail makes err the reader's error unless it has one.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
		r.rest = nil
	}
}

// Uint reads an unsigned integer.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	return consume(r, v, n)
}

// Int reads a signed integer.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.rest)
	return consume(r, v, n)
}

// consume takes an n byte varint off the input. A varint of several bytes is minimal when its last one isn't 0.
func consume[T any](r *Reader, v T, n int) T {
	var zero T
	switch {
	case r.err != nil:
		return zero
	case n == 0:
		r.Fail(ErrShort)
		return zero
	case n < 0 || n > 1 && r.rest[n-1] == 0:
		r.Fail(ErrNotCanonical)
		return zero
	}
	r.rest = r.rest[n:]
	return v
}

// Count reads an unsigned integer of at most limit.
func (r *Reader) Count(limit uint64) int {
	v := r.Uint()
	if v > limit {
		r.Fail(ErrTooLong)
		return 0
	}
	return int(v)
}

// Bytes reads a byte string of at most limit bytes. An empty one is nil.
func (r *Reader) Bytes(limit uint64) []byte {
	return r.Fixed(r.Count(limit))
}

// Fixed reads n bytes that carry no length.
func (r *Reader) Fixed(n int) []byte {
	if r.err == nil && n > len(r.rest) {
		r.Fail(ErrShort)
	}
	if r.err != nil || n == 0 {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.Fixed(1); b != nil {
		return b[0]
	}
	return 0
}

// Bool reads a truth value.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail(ErrNotCanonical)
	}
	return v == 1
}
