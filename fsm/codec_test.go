package fsm

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/internal/cow"
	"github.com/kvonce/kvonce/registry"
)

var update = flag.Bool("update", false, "write the golden files anew; formats that were released must not change")

// everything is an entry with all that an entry can hold.
func everything() *Entry {
	v := verifierOf(1)
	p := registry.Progress{First: 2, Received: []registry.Range{{Low: 3, High: 4}, {Low: 6, High: 6}}}
	txn := &Command{Kind: Transaction, Txn: Txn{
		Compares: []Compare{{Key: []byte("k"), Relation: NotEqual, Target: TargetValue, Value: []byte("v")}, {Key: []byte("k"), Relation: Equal, Target: TargetExists, Number: 1}},
		Then: []Op{{Kind: Put, Key: []byte("k"), Value: []byte("v"), TTL: 5, Previous: true}, {Kind: Delete, Key: []byte("k"), Previous: true}, {Kind: DeleteRange, Key: []byte("a"), End: []byte("b")},
			{Kind: Increment, Key: []byte("k"), Delta: -1}, {Kind: Append, Key: []byte("k"), Value: []byte("v")}},
		Else: []Op{{Kind: Get, Key: []byte("k")}, {Kind: ReadRange, Key: []byte("a"), End: []byte("b"), Limit: 3, KeysOnly: true}}}}
	return &Entry{Time: 1, Wall: 2, Touches: []Touch{{Client: 7, Verifier: v, Progress: p}}, Items: []Item{
		{Kind: ItemGroup, Group: Group{Client: 7, Verifier: v, Requests: []Request{
			{Seq: 9, Progress: p, Salt: []byte("saltsalt"), Command: txn.Encode()},
			{Seq: 10, Progress: p, Cancel: true, Fingerprint: FingerprintOf([]byte("saltsalt"), txn.Encode())}}}},
		{Kind: ItemRegister, Register: registry.Registration{Verifier: v, Name: "name", TTL: 5000, Ordered: true}},
		{Kind: ItemClose, Close: Close{Client: 7, Verifier: v, First: 3, Unresolved: true}},
		{Kind: ItemUnregistered, Command: (&Command{Kind: SetSettings, Changes: []Change{{Window, 5}}}).Encode()},
		{Kind: ItemGenesis, Genesis: Genesis{ClusterName: "c", Incarnation: Incarnation{1}, Settings: DefaultSettings()}},
		{Kind: ItemNode, Node: Node{ID: "n1", Folder: Incarnation{2}, RaftAddress: "r", ClientAddress: "c", HTTPAddress: "h", Version: "v", FeatureLevel: 1}},
		{Kind: ItemClaim, Claim: Claim{Index: 4, Sum: 5, Scheme: DigestScheme}},
		{Kind: 40, Command: []byte("of a later version")},
	}}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, got, "the bytes of %s differ from those that were written before", name)
}

func TestFormatsStayWhatTheyAre(t *testing.T) {
	golden(t, "entry.v1", everything().Encode(nil))
	golden(t, "snapshot.v1", snapshotOf(t, full(t)))
	f := FingerprintOf([]byte("saltsalt"), plain(increment("k", 1)).Encode())
	golden(t, "fingerprint.v1", f[:])
}

func TestEntryIsReadAsItWasWritten(t *testing.T) {
	e := everything()
	got, err := DecodeEntry(e.Encode(nil))
	require.NoError(t, err)
	require.Equal(t, e, got)
	require.Equal(t, e.Results(), 10)
	_, err = DecodeEntry(append([]byte{entryVersion + 1}, e.Encode(nil)[1:]...))
	require.ErrorIs(t, err, errVersion)
}

// A fingerprint is that of the command and its salt, and of nothing else.
func TestFingerprintTellsRequestsApart(t *testing.T) {
	seen := map[registry.Fingerprint]bool{}
	for _, salt := range []string{"", "a", "b"} {
		for _, c := range []*Command{plain(increment("k", 1)), plain(increment("k", 2)), plain(put("k", "1")), plain(put("k", "")), plain(Op{Kind: Delete, Key: []byte("k")})} {
			f := FingerprintOf([]byte(salt), c.Encode())
			require.False(t, seen[f])
			seen[f] = true
			require.Equal(t, f, FingerprintOf([]byte(salt), c.Encode()))
		}
	}
}

// change gives a field of any kind that records have another value.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.SetBytes(append(bytes.Clone(v.Bytes()), 'x'))
	case reflect.Array:
		change(t, v.Index(v.Len()-1))
	default:
		t.Fatalf("a field of kind %v: say here how it changes", v.Kind())
	}
}

func eachField[T any](t *testing.T, sample func() *T, check func(name string, changed *T)) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		x := sample()
		f := reflect.ValueOf(x).Elem().Field(i)
		change(t, reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
		check(typ.Name()+"."+typ.Field(i).Name, x)
	}
}

func TestG6DigestCoversEveryField(t *testing.T) {
	key := func() *record {
		return &record{key: "k", value: []byte("v"), create: 1, mod: 2, version: 2, deadline: 9}
	}
	eachField(t, key, func(name string, x *record) {
		require.NotEqual(t, cow.Hash(kindKey, key().Append(nil)), cow.Hash(kindKey, x.Append(nil)), name)
	})
	node := func() *Node { return &Node{ID: "n", FeatureLevel: 1} }
	eachField(t, node, func(name string, x *Node) {
		require.NotEqual(t, cow.Hash(kindNode, node().Append(nil)), cow.Hash(kindNode, x.Append(nil)), name)
	})
	genesis := func() *Genesis { return &Genesis{ClusterName: "c", Settings: DefaultSettings()} }
	eachField(t, genesis, func(name string, x *Genesis) {
		require.NotEqual(t, genesis().append(nil), x.append(nil), name)
	})
}

// Every field of the state is in the digest, or is the position in the log, or doesn't outlive a command.
func TestG6DigestCoversTheState(t *testing.T) {
	tables := map[string]bool{"nodes": true, "keys": true, "clients": true}
	outside := map[string]bool{"index": true, "term": true, "oldSettings": true}
	s := full(t)
	typ := reflect.TypeFor[State]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if tables[name] || outside[name] {
			continue
		}
		x := s.Copy()
		f := reflect.ValueOf(x).Elem().Field(i)
		change(t, reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
		require.NotEqual(t, s.Digest(), x.Digest(), name)
	}
	x := s.Copy()
	x.keys.revision++
	require.NotEqual(t, s.Digest(), x.Digest(), "revision")
	x = s.Copy()
	x.clients.SetLastID(99)
	require.NotEqual(t, s.Digest(), x.Digest(), "counter of client ids")
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(everything().Encode(nil))
	f.Add([]byte{entryVersion, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err == nil {
			require.Equal(t, b, e.Encode(nil), "what decodes has one encoding")
		}
		s := small(t)
		results, err := s.Apply(s.index+1, 1, b)
		if err == nil {
			require.Len(t, results, e.Results())
			require.Equal(t, s.Digest(), restored(t, snapshotOf(t, s)).Digest())
		}
	})
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range []*Command{plain(put("k", "v")), plain(increment("k", -1)), {Kind: SetSettings, Changes: []Change{{Window, 5}}}} {
		f.Add(c.Encode())
	}
	f.Add(everything().Items[0].Group.Requests[0].Command)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := DecodeCommand(b); err == nil {
			require.Equal(t, b, c.Encode())
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add((&Answer{Revision: 1, Succeeded: true, Ops: []OpResult{{Keys: []KeyValue{{Key: []byte("k")}}, Page: true}}}).Encode())
	f.Add(failed(KeyTooLong, 5, "key").Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := DecodeAnswer(b); err == nil {
			require.Equal(t, b, a.Encode())
		}
	})
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add(snapshotOf(f, full(f)))
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ReadSnapshot(bytes.NewReader(b)); err == nil {
			require.Equal(t, b, snapshotOf(t, s))
		}
	})
}
