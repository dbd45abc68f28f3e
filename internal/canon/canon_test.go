package canon

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBytesNeverChange holds the encoding of every kind of value to the bytes of the first version: logs, snapshots,
// digests and fingerprints are built from it.
func TestBytesNeverChange(t *testing.T) {
	for _, test := range []struct {
		got  []byte
		want string
	}{
		{AppendUint(nil, 0), "00"},
		{AppendUint(nil, 127), "7f"},
		{AppendUint(nil, 128), "8001"},
		{AppendUint(nil, math.MaxUint64), "ffffffffffffffffff01"},
		{AppendInt(nil, 0), "00"},
		{AppendInt(nil, -1), "01"},
		{AppendInt(nil, 1), "02"},
		{AppendInt(nil, math.MinInt64), "ffffffffffffffffff01"},
		{AppendInt(nil, math.MaxInt64), "feffffffffffffffff01"},
		{AppendBytes(nil, ""), "00"},
		{AppendBytes(nil, []byte("abc")), "03616263"},
		{AppendBool(nil, false), "00"},
		{AppendBool(nil, true), "01"},
	} {
		require.Equal(t, test.want, hex.EncodeToString(test.got))
	}
}

func TestReadsWhatWasAppended(t *testing.T) {
	b := AppendUint([]byte{7}, 300)
	b = AppendInt(b, -300)
	b = AppendBytes(b, "text")
	b = AppendBytes(b, "")
	b = AppendBool(b, true)
	b = append(b, 1, 2, 3)
	r := NewReader(b)
	require.Equal(t, byte(7), r.Byte())
	require.Equal(t, uint64(300), r.Uint())
	require.Equal(t, int64(-300), r.Int())
	require.Equal(t, []byte("text"), r.Bytes(4))
	require.Nil(t, r.Bytes(0))
	require.True(t, r.Bool())
	require.Equal(t, 3, r.Len())
	require.Equal(t, []byte{1, 2, 3}, r.Rest())
	require.Equal(t, []byte{1, 2, 3}, r.Fixed(3))
	require.NoError(t, r.Err())
	require.NoError(t, r.Done())
}

func TestRefusesWhatIsNotCanonical(t *testing.T) {
	read := map[string]func(*Reader){
		"uint":  func(r *Reader) { r.Uint() },
		"int":   func(r *Reader) { r.Int() },
		"bytes": func(r *Reader) { r.Bytes(4) },
		"count": func(r *Reader) { r.Count(4) },
		"fixed": func(r *Reader) { r.Fixed(2) },
		"byte":  func(r *Reader) { r.Byte() },
		"bool":  func(r *Reader) { r.Bool() },
	}
	for _, test := range []struct {
		what, input string
		want        error
	}{
		{"uint", "", ErrShort},
		{"uint", "80", ErrShort},
		{"uint", "8000", ErrNotCanonical},
		{"uint", "ff00", ErrNotCanonical},
		{"uint", "ffffffffffffffffff02", ErrNotCanonical},
		{"uint", "ffffffffffffffffffff01", ErrNotCanonical},
		{"int", "8000", ErrNotCanonical},
		{"int", "80", ErrShort},
		{"bytes", "05" + strings.Repeat("61", 5), ErrTooLong},
		{"bytes", "0461", ErrShort},
		{"bytes", "8000", ErrNotCanonical},
		{"count", "05", ErrTooLong},
		{"count", "ffffffffffffffffff01", ErrTooLong},
		{"fixed", "61", ErrShort},
		{"byte", "", ErrShort},
		{"bool", "02", ErrNotCanonical},
		{"bool", "", ErrShort},
		{"byte", "0000", ErrTrailing},
	} {
		input, err := hex.DecodeString(test.input)
		require.NoError(t, err)
		r := NewReader(input)
		read[test.what](r)
		require.ErrorIs(t, r.Done(), test.want, "%s of %s", test.what, test.input)
	}
}

// TestErrorsAreSticky: after the first error nothing is read any more, so that a decoder may look once, at the end.
func TestErrorsAreSticky(t *testing.T) {
	r := NewReader([]byte{0x80, 0x00, 5, 5, 5, 5})
	require.Zero(t, r.Uint())
	require.Zero(t, r.Uint())
	require.Zero(t, r.Int())
	require.Zero(t, r.Byte())
	require.False(t, r.Bool())
	require.Nil(t, r.Bytes(10))
	require.Zero(t, r.Len())
	r.Fail(ErrTooLong)
	require.ErrorIs(t, r.Err(), ErrNotCanonical)
	require.ErrorIs(t, r.Done(), ErrNotCanonical)
}

// TestByteStringsCannotGrowIntoTheInput: what was read has no room behind it.
func TestByteStringsCannotGrowIntoTheInput(t *testing.T) {
	input := []byte{1, 'a', 'b'}
	got := NewReader(input).Bytes(1)
	_ = append(got, 'x')
	require.Equal(t, []byte{1, 'a', 'b'}, input)
}

// FuzzReader reads values of any kinds from any bytes: what is read without an error appends to the same bytes.
func FuzzReader(f *testing.F) {
	f.Add([]byte("uisbf"), AppendBool(AppendBytes(AppendInt(AppendUint(nil, 300), -300), "text"), true))
	f.Add([]byte("uuu"), []byte{0x80, 0x00, 1})
	f.Add([]byte("s"), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, kinds, input []byte) {
		r := NewReader(input)
		var again []byte
		for _, kind := range kinds {
			switch kind {
			case 'u':
				again = AppendUint(again, r.Uint())
			case 'i':
				again = AppendInt(again, r.Int())
			case 's':
				again = AppendBytes(again, r.Bytes(uint64(len(input))))
			case 'b':
				again = AppendBool(again, r.Bool())
			default:
				again = append(again, r.Byte())
			}
		}
		if r.Done() == nil && !bytes.Equal(input, again) {
			t.Fatalf("%x reads as %q and appends to %x", input, kinds, again)
		}
	})
}
