package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/registry"
)

// TestScripts runs testdata/scripts: see testdata/README.md for the commands.
func TestScripts(t *testing.T) {
	require.NotNil(t, flag.Lookup("rewrite"), "datadriven's flag")
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := &script{world: world{t: t, s: New()}}
		datadriven.RunTest(t, path, w.command)
	})
}

// script is a world that commands change.
type script struct{ world }

func (w *script) command(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "genesis":
		s, bad := DefaultSettings().With(changesOf(t, d)...)
		require.Nil(t, bad)
		return w.show(&Entry{Items: []Item{{Kind: ItemGenesis, Genesis: Genesis{ClusterName: "script", Settings: s}}}})
	case "time":
		w.time = number(t, d, "t")
		return w.show(&Entry{}) + fmt.Sprintf("T=%d\n", w.s.Time())
	case "register":
		return w.show(&Entry{Items: []Item{{Kind: ItemRegister, Register: registry.Registration{Verifier: verifierOf(number(t, d, "v")), TTL: number(t, d, "ttl")}}}})
	case "touch":
		id := number(t, d, "client")
		return w.show(&Entry{Touches: []Touch{{Client: id, Verifier: verifierOf(id), Progress: registry.Progress{First: number(t, d, "F")}}}})
	case "do":
		return w.show(&Entry{Items: items(t, d)})
	case "snapshot":
		b := snapshotOf(t, w.s)
		w.s = restored(t, b)
		return fmt.Sprintf("same again: %v\n", bytes.Equal(b, snapshotOf(t, w.s)))
	case "state":
		return w.state()
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

// number reads an argument that may be missing.
func number(t *testing.T, d *datadriven.TestData, name string) (n uint64) {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &n)
	}
	return n
}

func changesOf(t *testing.T, d *datadriven.TestData) (list []Change) {
	for _, a := range d.CmdArgs {
		s, ok := SettingByName(a.Key)
		require.True(t, ok, a.Key)
		v, err := strconv.ParseUint(a.Vals[0], 10, 64)
		require.NoError(t, err)
		list = append(list, Change{s, v})
	}
	return list
}

// items makes one item for each line of the input, all of one entry. The arguments make it a request of a client.
func items(t *testing.T, d *datadriven.TestData) (list []Item) {
	client, seq, first := number(t, d, "client"), number(t, d, "s"), number(t, d, "F")
	for line := range strings.Lines(d.Input) {
		command := parse(t, strings.Fields(line)).Encode()
		it := Item{Kind: ItemUnregistered, Command: command}
		if client != 0 {
			it = Item{Kind: ItemGroup, Group: Group{Client: client, Verifier: verifierOf(client), Requests: []Request{
				{Seq: seq, Progress: registry.Progress{First: first}, Salt: []byte("saltsalt"), Command: command}}}}
			seq++
		}
		list = append(list, it)
	}
	return list
}

// parse reads "put k v [ttl]", "incr k n", "append k v", "delete k", "get k" and "if k v then ... ; else ...".
func parse(t *testing.T, f []string) *Command {
	if f[0] == "if" {
		rest := strings.SplitN(strings.Join(f[4:], " "), " else ", 2)
		c := &Command{Kind: Transaction, Txn: Txn{Compares: []Compare{{Key: []byte(f[1]), Relation: Equal, Target: TargetValue, Value: []byte(f[2])}}}}
		c.Txn.Then = ops(t, rest[0])
		if len(rest) > 1 {
			c.Txn.Else = ops(t, rest[1])
		}
		return c
	}
	return plain(ops(t, strings.Join(f, " "))[0])
}

func ops(t *testing.T, text string) (list []Op) {
	kinds := map[string]Kind{"put": Put, "incr": Increment, "append": Append, "delete": Delete, "get": Get}
	for part := range strings.SplitSeq(text, ";") {
		f := strings.Fields(part)
		o := Op{Kind: kinds[f[0]], Key: []byte(f[1])}
		require.NotZero(t, o.Kind, part)
		var err error
		switch {
		case o.Kind == Increment:
			o.Delta, err = strconv.ParseInt(f[2], 10, 64)
		case len(f) > 2:
			o.Value = []byte(f[2])
		}
		require.NoError(t, err)
		if len(f) > 3 {
			o.TTL, err = strconv.ParseUint(f[3], 10, 64)
			require.NoError(t, err)
		}
		list = append(list, o)
	}
	return list
}

var codeNames = map[registry.Code]string{registry.Done: "done", registry.Expired: "expired", registry.Stale: "stale", registry.Reused: "reused",
	registry.UnknownClient: "unknown client", registry.WindowExceeded: "window exceeded", registry.Invalid: "invalid"}

var outcomeNames = map[registry.Outcome]string{registry.Applied: "applied", registry.NotApplied: "not applied", registry.Refused: "refused", registry.Unknown: "unknown"}

// show applies an entry and tells the results, one a line.
func (w *script) show(e *Entry) string {
	var b strings.Builder
	for _, r := range w.apply(e) {
		fmt.Fprintf(&b, "%s, %s", codeNames[r.Code], outcomeNames[r.Outcome])
		if r.Replayed {
			b.WriteString(", replayed")
		}
		fmt.Fprintf(&b, " @%d", r.Index)
		if r.Client != nil {
			fmt.Fprintf(&b, " client %d", r.Client.ID)
		}
		if r.Bytes != nil {
			b.WriteString(": " + tell(answerOf(w.t, r)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func tell(a *Answer) string {
	if a.Failure != NoFailure {
		return fmt.Sprintf("failure %d, limit %d, %s", a.Failure, a.Limit, a.Detail)
	}
	parts := []string{fmt.Sprintf("revision %d", a.Revision)}
	if !a.Succeeded {
		parts = append(parts, "else")
	}
	for _, o := range a.Ops {
		switch {
		case len(o.Keys) > 0:
			parts = append(parts, fmt.Sprintf("%s=%s", o.Keys[0].Key, o.Keys[0].Value))
		default:
			parts = append(parts, fmt.Sprint(o.Deleted+o.Length+uint64(o.Number)))
		}
	}
	return strings.Join(parts, ", ")
}

func (w *script) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "T=%d revision=%d clients=%d tombstones=%d answers=%d\n", w.s.Time(), w.s.Revision(),
		w.s.clients.Clients(), w.s.clients.Tombstones(), w.s.clients.Answers())
	page, _ := w.s.ReadRange(nil, nil, 0, false)
	for _, kv := range page {
		fmt.Fprintf(&b, "%s=%s revisions %d..%d version %d ttl %d\n", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.TTL)
	}
	return b.String()
}
