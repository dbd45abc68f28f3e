package fsm

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/registry"
)

func TestCommandsAndTheirAnswers(t *testing.T) {
	w := newWorld(t)
	a := w.run(plain(put("k", "one")))
	require.Equal(t, &Answer{Revision: 1, Succeeded: true, Ops: []OpResult{{}}}, a)
	a = w.run(plain(Op{Kind: Put, Key: []byte("k"), Value: []byte("two"), Previous: true}))
	require.Equal(t, []KeyValue{{Key: []byte("k"), Value: []byte("one"), CreateRevision: 1, ModRevision: 1, Version: 1}}, a.Ops[0].Keys)
	kv, _ := w.s.Read([]byte("k"))
	require.Equal(t, KeyValue{Key: []byte("k"), Value: []byte("two"), CreateRevision: 1, ModRevision: 2, Version: 2}, kv)
	require.Equal(t, int64(-5), w.run(plain(increment("n", -5))).Ops[0].Number, "a missing key counts as 0")
	require.Equal(t, uint64(5), w.run(plain(Op{Kind: Append, Key: []byte("k"), Value: []byte("!!")})).Ops[0].Length)
	require.Equal(t, uint64(1), w.run(plain(Op{Kind: Delete, Key: []byte("k")})).Ops[0].Deleted)
	before := w.s.Revision()
	require.Zero(t, w.run(plain(Op{Kind: Delete, Key: []byte("k")})).Ops[0].Deleted)
	require.Equal(t, before, w.s.Revision(), "a command that changes no key makes no revision")
	w.run(plain(put("k", "again")))
	kv, _ = w.s.Read([]byte("k"))
	require.Equal(t, []uint64{before + 1, 1}, []uint64{kv.CreateRevision, kv.Version}, "a key that was deleted begins anew")
}

func TestDeleteRangeAndPages(t *testing.T) {
	w := newWorld(t, Change{PageKeys, 2})
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		w.run(plain(put(k, "v")))
	}
	page, more := w.s.ReadRange([]byte("b"), nil, 0, true)
	require.True(t, more)
	require.Len(t, page, 2)
	require.Empty(t, page[0].Value)
	page, more = w.s.ReadRange([]byte("b"), []byte("c"), 0, false)
	require.False(t, more)
	require.Equal(t, "b", string(page[0].Key))
	before := w.s.Revision()
	require.Equal(t, uint64(3), w.run(plain(Op{Kind: DeleteRange, Key: []byte("b"), End: []byte("e")})).Ops[0].Deleted)
	require.Equal(t, before+1, w.s.Revision())
	require.Equal(t, 2, w.s.Keys())
}

func TestFailuresHaveNoEffect(t *testing.T) {
	w := newWorld(t, Change{MaxKeyBytes, 16}, Change{MaxValueBytes, 32}, Change{MaxTxnOps, 2}, Change{MaxRequestBytes, 1024})
	w.run(plain(put("text", "x")))
	w.run(plain(put("max", "9223372036854775807")))
	w.run(plain(put("min", "-9223372036854775808")))
	digest := w.s.Digest()
	long, large := strings.Repeat("k", 17), strings.Repeat("v", 33)
	many := Txn{Then: []Op{put("a", "1"), put("b", "1"), put("c", "1")}}
	for _, c := range []struct {
		name  string
		c     *Command
		want  Failure
		limit uint64
	}{
		{"empty key", plain(put("", "x")), KeyEmpty, 0},
		{"long key", plain(put(long, "x")), KeyTooLong, 16},
		{"large value", plain(put("a", large)), ValueTooLarge, 32},
		{"append beyond the limit", plain(Op{Kind: Append, Key: []byte("text"), Value: []byte(strings.Repeat("v", 32))}), ValueTooLarge, 32},
		{"increment of text", plain(increment("text", 1)), NotANumber, 0},
		{"overflow", plain(increment("max", 1)), Overflow, 0},
		{"overflow below", plain(increment("min", -1)), Overflow, 0},
		{"overflow from 0", &Command{Kind: Transaction, Txn: Txn{Then: []Op{increment("z", math.MinInt64), increment("z", -1)}}}, Overflow, 0},
		{"long ttl", plain(Op{Kind: Put, Key: []byte("a"), TTL: MaxKeyTTL + 1}), InvalidCommand, MaxKeyTTL},
		{"large txn", &Command{Kind: Transaction, Txn: many}, TxnTooLarge, 2},
		{"large command", plain(put("a", strings.Repeat("v", 2000))), CommandTooLarge, 1024},
		{"setting out of range", &Command{Kind: SetSettings, Changes: []Change{{MaxTxnOps, 0}}}, InvalidSetting, 0},
		{"unknown setting", &Command{Kind: SetSettings, Changes: []Change{{numSettings, 1}}}, InvalidSetting, 0},
		{"ttls that contradict each other", &Command{Kind: SetSettings, Changes: []Change{{ClientTTLMin, hour}}}, InvalidSetting, 0},
		{"second op fails", &Command{Kind: Transaction, Txn: Txn{Then: []Op{put("a", "1"), increment("text", 1)}}}, NotANumber, 0},
	} {
		a := w.run(c.c)
		require.Equal(t, c.want, a.Failure, c.name)
		require.Equal(t, c.limit, a.Limit, c.name)
		require.Equal(t, digest, w.s.Digest(), "%s changed the state", c.name)
		require.Empty(t, w.s.keys.undo, c.name)
	}
}

func TestNumbersAreCanonicalDecimal(t *testing.T) {
	w := newWorld(t)
	for text, ok := range map[string]bool{"0": true, "-1": true, "+1": false, "01": false, "-0": false, " 1": false, "1 ": false, "1e3": false, "": false} {
		w.run(plain(put("n", text)))
		require.Equal(t, ok, w.run(plain(increment("n", 1))).Failure == NoFailure, "%q", text)
	}
}

func TestUnknownCommandsAndBytes(t *testing.T) {
	w := newWorld(t)
	digest := w.s.Digest()
	for _, c := range []struct {
		bytes []byte
		want  Failure
	}{
		{[]byte{200, 1, 'k', 0}, UnknownCommand},
		{[]byte{byte(Get), 1, 'k', 0}, UnknownCommand},
		{nil, InvalidCommand},
		{[]byte{byte(Put), 1}, InvalidCommand},
		{[]byte{byte(Put), 1, 'k', 0, 9}, InvalidCommand},       // bytes after the end
		{[]byte{byte(Increment), 1, 'k', 1, 0}, InvalidCommand}, // a field of another kind
	} {
		r := w.apply(&Entry{Items: []Item{{Kind: ItemUnregistered, Command: c.bytes}}})
		require.Equal(t, c.want, answerOf(t, r[0]).Failure, "%v", c.bytes)
		require.Equal(t, registry.NotApplied, r[0].Outcome)
	}
	r := w.apply(&Entry{Items: []Item{{Kind: 63, Command: []byte("of a later version")}}})
	require.Equal(t, UnknownCommand, answerOf(t, r[0]).Failure)
	require.Equal(t, digest, w.s.Digest())
}

func TestTransactionComparesAndBranches(t *testing.T) {
	w := newWorld(t)
	w.run(plain(put("k", "b")))
	w.run(plain(put("k", "b"))) // create 1, mod 2, version 2
	holds := func(c Compare) bool {
		a := w.run(&Command{Kind: Transaction, Txn: Txn{Compares: []Compare{c}, Then: []Op{{Kind: Get, Key: []byte("k")}}}})
		require.Equal(t, NoFailure, a.Failure)
		return a.Succeeded
	}
	k, none := []byte("k"), []byte("none")
	for _, c := range []struct {
		c    Compare
		want bool
	}{
		{Compare{Key: k, Relation: Equal, Target: TargetValue, Value: []byte("b")}, true},
		{Compare{Key: k, Relation: NotEqual, Target: TargetValue, Value: []byte("b")}, false},
		{Compare{Key: k, Relation: Less, Target: TargetValue, Value: []byte("c")}, true},
		{Compare{Key: k, Relation: Greater, Target: TargetValue, Value: []byte("c")}, false},
		{Compare{Key: none, Relation: Equal, Target: TargetValue}, false},
		{Compare{Key: none, Relation: Less, Target: TargetValue, Value: []byte("z")}, false},
		{Compare{Key: none, Relation: NotEqual, Target: TargetValue, Value: []byte("z")}, true},
		{Compare{Key: k, Relation: Equal, Target: TargetVersion, Number: 2}, true},
		{Compare{Key: k, Relation: Less, Target: TargetModRevision, Number: 2}, false},
		{Compare{Key: k, Relation: Greater, Target: TargetCreateRevision, Number: 0}, true},
		{Compare{Key: none, Relation: Equal, Target: TargetVersion, Number: 0}, true},
		{Compare{Key: k, Relation: Equal, Target: TargetExists, Number: 1}, true},
		{Compare{Key: k, Relation: Equal, Target: TargetExists, Number: 0}, false},
		{Compare{Key: none, Relation: Equal, Target: TargetExists, Number: 0}, true},
	} {
		require.Equal(t, c.want, holds(c.c), "%+v", c.c)
	}
	a := w.run(&Command{Kind: Transaction, Txn: Txn{Compares: []Compare{{Key: k, Relation: Equal, Target: TargetExists, Number: 0}},
		Then: []Op{put("k", "then")}, Else: []Op{put("x", "1"), increment("x", 1), {Kind: Get, Key: []byte("x")}}}})
	require.False(t, a.Succeeded)
	require.Equal(t, "2", string(a.Ops[2].Keys[0].Value), "an operation sees those before it")
	require.Equal(t, []string{"b", "2"}, []string{w.value("k"), w.value("x")})
}

func TestKeysWithATimeToLive(t *testing.T) {
	w := newWorld(t, Change{RemovalsPerEntry, 1})
	for _, k := range []string{"a", "b", "c"} {
		w.run(plain(Op{Kind: Put, Key: []byte(k), Value: []byte("1"), TTL: 1000}))
	}
	require.Equal(t, int64(2), w.run(plain(increment("a", 1))).Ops[0].Number)
	kv, _ := w.s.Read([]byte("a"))
	require.Equal(t, uint64(1000), kv.TTL, "an increment keeps the time to live")
	w.run(plain(put("c", "1")))
	kv, _ = w.s.Read([]byte("c"))
	require.Zero(t, kv.TTL, "a put without one clears it")
	w.time = 1000
	before := w.s.Revision()
	require.Equal(t, NoFailure, w.run(plain(Op{Kind: Append, Key: []byte("b"), Value: []byte("x")})).Failure)
	require.Equal(t, "x", w.value("b"), "a key is absent from its deadline on, removed or not")
	require.Equal(t, []string{"-", "1"}, []string{w.value("a"), w.value("c")})
	require.Equal(t, before+2, w.s.Revision(), "the append, and the batch of removals")
	require.Equal(t, 2, w.s.Keys())
}

func TestQuotaRefusesGrowthAndClearsByItself(t *testing.T) {
	w := newWorld(t, Change{KeySpaceBytes, mib}, Change{MaxValueBytes, mib})
	w.run(plain(put("big", strings.Repeat("x", 900_000))))
	a := w.run(plain(put("more", strings.Repeat("x", 200_000))))
	require.Equal(t, KeySpaceFull, a.Failure)
	require.Equal(t, NoFailure, w.run(plain(put("big", "small"))).Failure)
	require.Equal(t, NoFailure, w.run(plain(put("more", strings.Repeat("x", 200_000)))).Failure)
}

func TestGenesisComesFirstAndOnce(t *testing.T) {
	s := New()
	r := mustApply(t, s, &Entry{Items: []Item{
		{Kind: ItemRegister, Register: registry.Registration{Verifier: verifierOf(1)}},
		{Kind: ItemGroup, Group: Group{Client: 1, Requests: make([]Request, 2)}},
		{Kind: ItemGenesis, Genesis: Genesis{ClusterName: "a", Incarnation: Incarnation{1}, Settings: DefaultSettings()}},
		{Kind: ItemRegister, Register: registry.Registration{Verifier: verifierOf(1)}},
	}})
	for _, x := range r[:3] {
		require.Equal(t, NotReady, answerOf(t, x).Failure)
		require.Equal(t, registry.Refused, x.Outcome)
	}
	require.Equal(t, registry.Applied, r[3].Outcome)
	require.NotNil(t, r[4].Client)
	digest := s.Digest()
	mustApply(t, s, &Entry{Items: []Item{{Kind: ItemGenesis, Genesis: Genesis{ClusterName: "b", Incarnation: Incarnation{2}, Settings: DefaultSettings()}}}})
	require.Equal(t, digest, s.Digest(), "a second genesis changes nothing")
	require.Equal(t, Incarnation{1}, s.Incarnation())
}

func TestG2NodeKeepsItsFolder(t *testing.T) {
	w := newWorld(t)
	node := Node{ID: "n1", Folder: Incarnation{1}, ClientAddress: "a:1"}
	w.apply(&Entry{Items: []Item{{Kind: ItemNode, Node: node}}})
	moved := node
	moved.ClientAddress = "b:1"
	w.apply(&Entry{Items: []Item{{Kind: ItemNode, Node: moved}}})
	emptied := node
	emptied.Folder = Incarnation{2}
	r := w.apply(&Entry{Items: []Item{{Kind: ItemNode, Node: emptied}}})
	require.Equal(t, InvalidCommand, answerOf(t, r[0]).Failure)
	got, _ := w.s.Node("n1")
	require.Equal(t, moved, *got)
}

func TestTimeMovesInSteps(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ stamp, want uint64 }{{100, 100}, {50, 100}, {10_000, 2100}, {10_000, 4100}, {4100, 4100}} {
		w.time = c.stamp
		w.apply(&Entry{})
		require.Equal(t, c.want, w.s.Time(), "stamp %d", c.stamp)
	}
	_, err := w.s.Apply(w.s.index+1, 1, (&Entry{Wall: 7}).Encode(nil))
	require.NoError(t, err)
	_, err = w.s.Apply(w.s.index+1, 1, (&Entry{Wall: 3}).Encode(nil))
	require.NoError(t, err)
	require.Equal(t, uint64(7), w.s.Wall(), "the highest is kept")
}

// Order inside an entry: time, touches, requests, removals. A touch that is in the log before the removal counts.
func TestG9TouchInTheEntryOfTheDeadlineCounts(t *testing.T) {
	w := newWorld(t, Change{ClientTTLMin, 1000}, Change{ClientTTL, 1000})
	touched, idle := w.register(1), w.register(2)
	w.time = 1000
	w.apply(&Entry{Touches: []Touch{{Client: touched, Verifier: verifierOf(1), Progress: registry.Progress{First: 1}}}})
	_, alive := w.s.Registry().Client(touched)
	require.True(t, alive)
	_, alive = w.s.Registry().Client(idle)
	require.False(t, alive)
}

func TestG1LimitLoweredLaterDoesNotRefuseWhatRan(t *testing.T) {
	w := newWorld(t)
	id := w.register(1)
	c := plain(put("k", strings.Repeat("v", 1000)))
	first := w.request(1, id, 1, 1, c)
	w.run(&Command{Kind: SetSettings, Changes: []Change{{MaxValueBytes, 16}}})
	again := w.request(1, id, 1, 1, c)
	require.True(t, again.Replayed)
	require.Equal(t, first.Bytes, again.Bytes)
	require.Equal(t, ValueTooLarge, answerOf(t, w.request(1, id, 2, 1, c)).Failure)
	require.True(t, w.request(1, id, 2, 1, c).Replayed, "the refusal is a stored answer")
}

func TestG1RepeatedIncrementCountsOnce(t *testing.T) {
	w := newWorld(t)
	id := w.register(1)
	for range 3 {
		r := w.request(1, id, 1, 1, plain(increment("n", 1)))
		require.Equal(t, int64(1), answerOf(t, r).Ops[0].Number)
	}
	require.Equal(t, "1", w.value("n"))
	require.Equal(t, registry.Reused, w.request(1, id, 1, 1, plain(increment("n", 2))).Code)
	require.Equal(t, "1", w.value("n"))
}

func TestAnswersWithoutRoomLeaveNoEffect(t *testing.T) {
	w := newWorld(t, Change{ClientAnswerBytes, 64 * kib})
	id := w.register(1)
	w.run(plain(put("big", strings.Repeat("x", 100_000))))
	digest := w.s.keys.keys.Sum()
	r := w.request(1, id, 1, 1, plain(Op{Kind: Put, Key: []byte("big"), Value: []byte("y"), Previous: true}))
	require.Equal(t, registry.AnswerTooLarge, r.Code)
	require.Equal(t, registry.NotApplied, r.Outcome)
	require.Equal(t, digest, w.s.keys.keys.Sum())
	w.run(plain(put("half", strings.Repeat("x", 40_000))))
	get := &Command{Kind: Transaction, Txn: Txn{Then: []Op{{Kind: Get, Key: []byte("half")}, increment("n", 1)}}}
	require.Equal(t, registry.Done, w.request(1, id, 2, 1, get).Code)
	require.Equal(t, registry.AnswersFull, w.request(1, id, 3, 1, get).Code)
	require.Equal(t, "1", w.value("n"), "what had no room for its answer didn't run")
	require.Equal(t, registry.Done, w.request(1, id, 3, 3, get).Code, "the first outstanding one is exempt")
	require.Equal(t, "2", w.value("n"))
}
