package client

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// What goes over the wire for a call, and what comes back to the caller.
func TestCommands(t *testing.T) {
	var got *kvoncev1.Command
	result := &kvoncev1.Response{Result: &kvoncev1.Response_Command{Command: &kvoncev1.CommandResult{Revision: 9, Succeeded: true, Ops: []*kvoncev1.OpResult{{
		Deleted: 2, Number: -3, Length: 4, Previous: &kvoncev1.KeyValue{Key: []byte("k"), Value: []byte("old"), Version: 5, TtlMs: 1500},
	}}}}}
	c := Commands{submit: func(_ context.Context, _ string, cmd *kvoncev1.Command) (Result, error) {
		got = cmd
		return resultOf("n1", result), nil
	}}
	ctx := t.Context()
	old := KeyValue{Key: "k", Value: []byte("old"), Version: 5, TTL: 1500 * time.Millisecond}

	p, err := c.Put(ctx, "k", []byte("v"), TTL(1500*time.Microsecond), ReturnPrevious())
	require.NoError(t, err)
	require.Equal(t, &old, p.Previous)
	require.Equal(t, Meta{Revision: 9, Node: "n1"}, p.Meta)
	require.Equal(t, `put:{key:"k" value:"v" ttl_ms:2 return_previous:true}`, wire(got))

	d, err := c.Delete(ctx, "k", ReturnPrevious())
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Deleted)
	require.Equal(t, &old, d.Previous)
	require.Equal(t, `delete:{key:"k" return_previous:true}`, wire(got))

	i, err := c.Increment(ctx, "k", -7)
	require.NoError(t, err)
	require.EqualValues(t, -3, i.Value)
	require.Equal(t, `increment:{key:"k" delta:-7}`, wire(got))

	a, err := c.Append(ctx, "k", []byte("s"))
	require.NoError(t, err)
	require.EqualValues(t, 4, a.Length)
	require.Equal(t, `append:{key:"k" suffix:"s"}`, wire(got))

	_, err = c.DeleteRange(ctx, "a", "b")
	require.NoError(t, err)
	require.Equal(t, `delete_range:{start:"a" end:"b"}`, wire(got))
	_, err = c.DeletePrefix(ctx, "a\xff")
	require.NoError(t, err)
	require.Equal(t, "b", string(got.GetDeleteRange().GetEnd()))

	_, err = c.SetSettings(ctx, map[string]uint64{"window": 4, "page_keys": 5})
	require.NoError(t, err)
	require.Equal(t, `set_settings:{settings:{name:"page_keys" value:5} settings:{name:"window" value:4}}`, wire(got))
}

// wire shows a message without the random spaces that protobuf puts into its text.
func wire(cmd *kvoncev1.Command) string {
	var out []rune
	for _, r := range cmd.String() {
		if r != ' ' || len(out) == 0 || out[len(out)-1] != ' ' {
			out = append(out, r)
		}
	}
	return string(out)
}

func TestTxnOnTheWire(t *testing.T) {
	var got *kvoncev1.Command
	c := Commands{submit: func(_ context.Context, _ string, cmd *kvoncev1.Command) (Result, error) {
		got = cmd
		return Result{}, nil
	}}
	_, err := c.Txn().
		If(Value("a").Equals([]byte("1")), Value("b").Less([]byte("2")), Version("c").Greater(3), ModRevision("d").NotEquals(4),
			CreateRevision("e").Equals(5), Exists("f"), Absent("g")).
		Then(OpPut("h", []byte("v"), TTL(time.Second)), OpGet("i"), OpIncrement("j", 2), OpAppend("k", []byte("s"))).
		Else(OpDelete("l"), OpDeleteRange("m", "n"), OpRange("o", "p", 6)).
		Commit(t.Context())
	require.NoError(t, err)
	require.Equal(t, `txn:{compares:{key:"a" relation:EQUAL value:"1"} compares:{key:"b" relation:LESS value:"2"} `+
		`compares:{key:"c" relation:GREATER version:3} compares:{key:"d" relation:NOT_EQUAL mod_revision:4} `+
		`compares:{key:"e" relation:EQUAL create_revision:5} compares:{key:"f" relation:EQUAL exists:true} `+
		`compares:{key:"g" relation:EQUAL exists:false} `+
		`then_ops:{put:{key:"h" value:"v" ttl_ms:1000}} then_ops:{get:{key:"i"}} then_ops:{increment:{key:"j" delta:2}} `+
		`then_ops:{append:{key:"k" suffix:"s"}} else_ops:{delete:{key:"l"}} else_ops:{delete_range:{start:"m" end:"n"}} `+
		`else_ops:{range:{start:"o" end:"p" limit:6}}}`, wire(got))
}

// A comparison that fails is decided: nothing happened, and nothing will.
func TestCompareAndSwap(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.open()
	ctx := soon(t)
	_, err := c.CompareAndSwap(ctx, Absent("k"), []byte("1"))
	require.NoError(t, err)
	_, err = c.CompareAndSwap(ctx, Absent("k"), []byte("2"))
	require.ErrorIs(t, err, ErrCompareFailed)
	require.Equal(t, NotApplied, OutcomeOf(err))
	_, err = c.CompareAndSwap(ctx, Value("k").Equals([]byte("1")), []byte("3"))
	require.NoError(t, err)
	g, err := c.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "3", string(g.Value))
	r, err := c.Txn().If(Absent("k")).Then(OpPut("k", nil)).Commit(ctx)
	require.NoError(t, err, "which branch of a transaction runs is no error")
	require.False(t, r.Succeeded)
}

// Ranges are read page by page, to the end or as far as the caller wants.
func TestList(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.open()
	ctx := soon(t)
	for i := range 5 {
		require.NoError(t, c.put(ctx, fmt.Sprintf("p/%d", i)))
	}
	require.NoError(t, c.put(ctx, "q"))
	require.Equal(t, []string{"p/0", "p/1", "p/2", "p/3", "p/4"}, keys(t, c.List(ctx, "p/")))
	require.Equal(t, []string{"p/0", "p/1", "p/2"}, keys(t, c.List(ctx, "p/", Limit(3))))
	require.Equal(t, []string{"p/3", "p/4", "q"}, keys(t, c.Range(ctx, "p/3", "")))
	require.Empty(t, keys(t, c.List(ctx, "nothing")))
	for kv, err := range c.List(ctx, "p/") {
		require.NoError(t, err)
		require.Equal(t, "p/0", kv.Key)
		break
	}
	pages := 0
	for page, err := range c.Pages(ctx, "", "") {
		require.NoError(t, err)
		require.EqualValues(t, 6, page.Revision)
		pages++
	}
	require.Equal(t, 3, pages)
}

func keys(t *testing.T, seq func(func(KeyValue, error) bool)) (found []string) {
	for kv, err := range seq {
		require.NoError(t, err)
		found = append(found, kv.Key)
	}
	return found
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "b", "a\xff": "b", "\xff\xff": "", "a\x00": "a\x01"} {
		require.Equal(t, want, prefixEnd(prefix), "%q", prefix)
	}
}

// Reads are asked again until they are answered (they change nothing), in the form that the caller wants.
func TestReadsAreRetried(t *testing.T) {
	f := newFakeCluster(t, 2)
	var n atomic.Int32
	f.does(func(*fakeNode, *kvoncev1.Request) action {
		switch n.Add(1) {
		case 1:
			return refuse(kvoncev1.Code_NOT_READY)
		case 2:
			return drop
		case 3:
			return say(kvoncev1.Code_TIMEOUT, kvoncev1.Outcome_UNKNOWN)
		}
		return serve
	})
	c := f.open()
	_, err := c.Get(soon(t), "k")
	require.ErrorIs(t, err, ErrNotFound)
	require.EqualValues(t, 4, n.Load())
	_, err = c.Get(soon(t), "k", MaxAge(3*time.Second))
	require.ErrorIs(t, err, ErrNotFound)
	seen := f.requests(func(*kvoncev1.Request) bool { return true })
	require.Equal(t, kvoncev1.Consistency_LINEARIZABLE, seen[0].request.GetRead().GetConsistency())
	last := seen[len(seen)-1].request.GetRead()
	require.Equal(t, kvoncev1.Consistency_SERIALIZABLE, last.GetConsistency())
	require.EqualValues(t, 3000, last.GetMaxAgeMs())
}

// A read that was refused for good isn't asked again.
func TestReadFailures(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.open()
	for code, want := range map[kvoncev1.Code]error{
		kvoncev1.Code_TOO_OLD: ErrTooOld, kvoncev1.Code_INVALID_ARGUMENT: ErrInvalid, kvoncev1.Code_ANSWER_GONE: ErrAnswerGone,
	} {
		f.does(func(*fakeNode, *kvoncev1.Request) action { return refuse(code) })
		before := len(f.requests(func(*kvoncev1.Request) bool { return true }))
		_, err := c.Get(soon(t), "k", Serializable())
		require.ErrorIs(t, err, want)
		require.Equal(t, NotApplied, OutcomeOf(err))
		require.Len(t, f.requests(func(*kvoncev1.Request) bool { return true }), before+1)
	}
}

func TestAdmin(t *testing.T) {
	f := newFakeCluster(t, 3)
	c := f.open(WithName("shop"), WithEagerRegistration())
	ctx := soon(t)
	s, err := c.Status(ctx, f.nodes[2].addr)
	require.NoError(t, err)
	require.Equal(t, "n3", s.GetNodeId())

	f.nodes[1].stop()
	_, err = c.Status(ctx, f.nodes[1].addr)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Equal(t, NotApplied, OutcomeOf(err))

	settings, err := c.Settings(ctx)
	require.NoError(t, err)
	require.Equal(t, "window", settings[0].GetName())
	clients, err := c.ListClients(ctx, 0, 0)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(clients.GetClients(), func(i *kvoncev1.ClientInfo) bool { return i.GetName() == "shop" }))
	leader, err := c.TransferLeader(ctx, "n3")
	require.NoError(t, err)
	require.Equal(t, "n3", leader.GetNodeId())

	for _, n := range f.nodes {
		n.stop()
	}
	_, err = c.Settings(within(t, 50*time.Millisecond))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
