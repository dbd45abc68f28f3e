package registry

import (
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/internal/cow"
)

// derived names the fields that are computed from records when a snapshot is read, so that they need no bytes.
var derived = map[string]bool{"Client.next": true, "Client.answers": true, "Client.answerBytes": true}

func sampleClient() *Client {
	return &Client{ID: 3, Verifier: verifierOf("a"), Name: "worker", TTL: 50, LastActive: 9, First: 2, Window: 8, Ordered: true, next: 2}
}

func sampleAnswer() *answer {
	return &answer{client: 3, seq: 4, fingerprint: fingerprintOf("x"), kind: executed, outcome: Applied, index: 7, term: 2, bytes: []byte("one")}
}

func sampleTombstone() *Tombstone {
	return &Tombstone{ID: 4, Verifier: verifierOf("b"), First: 2, Applied: []byte{5, 1}, Reason: ReasonIdle, Since: 8}
}

// TestG6DigestCoversEveryField changes each field of each kind of record by reflection. A field that is added without
// being encoded fails here.
func TestG6DigestCoversEveryField(t *testing.T) {
	checkFields(t, sampleClient, (*Client).Append)
	checkFields(t, sampleAnswer, (*answer).Append)
	checkFields(t, sampleTombstone, (*Tombstone).Append)
}

func checkFields[T any](t *testing.T, sample func() *T, encode func(*T, []byte) []byte) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		name := typ.Name() + "." + typ.Field(i).Name
		changed := sample()
		f := reflect.ValueOf(changed).Elem().Field(i)
		change(t, reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()) // unexported ones too
		same := cow.Hash(1, encode(sample(), nil)) == cow.Hash(1, encode(changed, nil))
		require.Equal(t, derived[name], same, "field %s and the digest", name)
	}
}

// change gives a value of any kind that records have another value.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Array:
		change(t, v.Index(v.Len()-1))
	case reflect.Slice:
		grown := reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1)
		reflect.Copy(grown, v)
		change(t, grown.Index(v.Len()))
		v.Set(grown)
	default:
		t.Fatalf("fields of kind %s need a case here", v.Kind())
	}
}

// TestG6RecordsSurviveASnapshot decodes what was encoded: every field comes back.
func TestG6RecordsSurviveASnapshot(t *testing.T) {
	r := canon.NewReader(sampleClient().Append(nil))
	require.Equal(t, sampleClient(), decodeClient(r))
	require.NoError(t, r.Done())
	r = canon.NewReader(sampleAnswer().Append(nil))
	require.Equal(t, sampleAnswer(), decodeAnswer(r))
	require.NoError(t, r.Done())
	r = canon.NewReader(sampleTombstone().Append(nil))
	require.Equal(t, sampleTombstone(), decodeTombstone(r))
	require.NoError(t, r.Done())
}

// TestKindsAreDistinct: the digest tells tables apart by the kind, and the kind decides order among what is due.
func TestKindsAreDistinct(t *testing.T) {
	require.Less(t, KindClient, KindTombstone)
	record := sampleClient().Append(nil)
	seen := map[uint64]int{}
	for _, kind := range []int{KindClient, KindTombstone, KindAnswer} {
		seen[cow.Hash(byte(kind), record)]++
	}
	require.Len(t, seen, 3)
}

// loaded is a registry to load records into: client 3, with room for more.
func loaded(t testing.TB) *Registry {
	r := New()
	r.SetLastID(1000)
	require.NoError(t, r.Load(KindClient, sampleClient().Append(nil)))
	return r
}

// TestLoadRefuses what no registry could have held.
func TestLoadRefuses(t *testing.T) {
	client := func(f func(*Client)) (byte, []byte) {
		c := sampleClient()
		c.ID, c.Verifier = 5, verifierOf("c")
		f(c)
		return KindClient, c.Append(nil)
	}
	stored := func(f func(*answer)) (byte, []byte) {
		a := sampleAnswer()
		f(a)
		return KindAnswer, a.Append(nil)
	}
	tomb := func(f func(*Tombstone)) (byte, []byte) {
		d := sampleTombstone()
		f(d)
		return KindTombstone, d.Append(nil)
	}
	type record struct {
		kind  byte
		bytes []byte
	}
	of := func(kind byte, bytes []byte) record { return record{kind, bytes} }
	for name, rec := range map[string]record{
		"client 0":               of(client(func(c *Client) { c.ID = 0 })),
		"client twice":           of(client(func(c *Client) { c.ID = 3 })),
		"client out of order":    of(client(func(c *Client) { c.ID = 2 })),
		"client beyond counter":  of(client(func(c *Client) { c.ID = 1001 })),
		"client's verifier used": of(client(func(c *Client) { c.Verifier = verifierOf("a") })),
		"client with F 0":        of(client(func(c *Client) { c.First = 0 })),
		"client with F 2^63":     of(client(func(c *Client) { c.First = MaxSequence + 1 })),
		"client without window":  of(client(func(c *Client) { c.Window = 0 })),
		"client's window":        of(client(func(c *Client) { c.Window = MaxWindow + 1 })),
		"client without ttl":     of(client(func(c *Client) { c.TTL = 0 })),
		"client's deadline":      of(client(func(c *Client) { c.TTL = 1<<64 - 2 })),
		"client's name":          of(client(func(c *Client) { c.Name = string(make([]byte, MaxNameBytes+1)) })),
		"answer of nobody":       of(stored(func(a *answer) { a.client = 4 })),
		"answer below F":         of(stored(func(a *answer) { a.seq = 1 })),
		"answer beyond window":   of(stored(func(a *answer) { a.seq = 10 })),
		"answer of kind 0":       of(stored(func(a *answer) { a.kind = 0 })),
		"answer of kind 4":       of(stored(func(a *answer) { a.kind = 4 })),
		"answer refused":         of(stored(func(a *answer) { a.outcome = Refused })),
		"answer without outcome": of(stored(func(a *answer) { a.outcome = 0 })),
		"answer gone and here":   of(stored(func(a *answer) { a.gone = true })),
		"cancelled and applied":  of(stored(func(a *answer) { a.kind, a.bytes = cancelled, nil })),
		"cancelled with bytes":   of(stored(func(a *answer) { a.kind, a.outcome = cancelled, NotApplied })),
		"too large, no limit":    of(stored(func(a *answer) { a.kind, a.outcome, a.bytes = tooLarge, NotApplied, nil })),
		"tombstone of a client":  of(tomb(func(d *Tombstone) { d.ID = 3 })),
		"tombstone 0":            of(tomb(func(d *Tombstone) { d.ID = 0 })),
		"tombstone 1001":         of(tomb(func(d *Tombstone) { d.ID = 1001 })),
		"tombstone's verifier":   of(tomb(func(d *Tombstone) { d.Verifier = verifierOf("a") })),
		"tombstone with F 0":     of(tomb(func(d *Tombstone) { d.First = 0 })),
		"tombstone's reason":     of(tomb(func(d *Tombstone) { d.Reason = 3 })),
		"tombstone with zeros":   of(tomb(func(d *Tombstone) { d.Applied = []byte{1, 0} })),
		"tombstone too wide":     of(tomb(func(d *Tombstone) { d.Applied = append(make([]byte, MaxWindow/8+1), 1) })),
		"unknown kind":           {99, nil},
		"nothing":                {KindClient, nil},
	} {
		require.Error(t, loaded(t).Load(rec.kind, rec.bytes), name)
	}
	for kind, rec := range map[byte][]byte{KindAnswer: sampleAnswer().Append(nil), KindTombstone: sampleTombstone().Append(nil)} {
		r := loaded(t)
		require.NoError(t, r.Load(kind, rec))
		require.Error(t, r.Load(kind, rec), "a record of kind %d twice", kind)
		require.Error(t, r.Load(kind, append(rec, 0)), fmt.Sprintf("bytes after a record of kind %d", kind))
	}
}
