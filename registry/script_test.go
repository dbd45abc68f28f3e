package registry

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

var codeNames = map[Code]string{Done: "done", Invalid: "invalid", WrongSecret: "wrong-secret", Expired: "expired",
	UnknownClient: "unknown-client", Stale: "stale", AnswerGone: "answer-gone", Reused: "reused",
	WindowExceeded: "window-exceeded", OutOfOrder: "out-of-order", AnswersFull: "answers-full",
	AnswerTooLarge: "answer-too-large", Cancelled: "cancelled", VerifierUsed: "verifier-used", ClientsFull: "clients-full"}

var outcomeNames = map[Outcome]string{Applied: "applied", NotApplied: "not-applied", Refused: "refused", Unknown: "unknown"}

// TestScripts runs the scripts in testdata; testdata/README.md explains their language. With -rewrite it writes what
// the registry does into them.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{r: New(), lim: testLimits(), term: 1}
		datadriven.RunTest(t, path, s.run)
	})
}

// TestScriptsCiteGuarantees holds every script to saying which guarantee or rule it shows.
func TestScriptsCiteGuarantees(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	require.NoError(t, err)
	require.Greater(t, len(files), 8)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		require.Regexp(t, `^# G\d`, first, file)
	}
}

// script is a registry with the clock and the log position of one script.
type script struct {
	r    *Registry
	lim  Limits
	time uint64
	// index is that of the last entry; each command is an entry of its own.
	index, term uint64
}

func (s *script) run(t *testing.T, td *datadriven.TestData) string {
	out := s.dispatch(t, td)
	checkInvariants(t, s.r)
	return out
}

func (s *script) dispatch(t *testing.T, td *datadriven.TestData) string {
	switch td.Cmd {
	case "limits":
		return s.limits(t, td)
	case "state":
		return s.state()
	case "snapshot":
		s.r = reload(t, s.r)
		return "restored\n"
	case "term":
		s.term++
		return fmt.Sprintf("term %d\n", s.term)
	case "tick":
		return s.tick(t, td)
	}
	s.index++
	at := Stamp{s.time, s.index, s.term}
	switch td.Cmd {
	case "register":
		a := s.args(t, td)
		return s.decision(s.r.Register(at, s.lim, Registration{a.verifier, a.name, a.ttl, a.ordered}), 0)
	case "request":
		a := s.args(t, td)
		cmd := &fakeCommand{fingerprint: fingerprintOf(a.cmd), fails: a.fails, answer: []byte(a.answer)}
		d := request(s.r, at, s.lim, a.client, a.verifier, a.seq, a.progress, cmd)
		cmd.checkSettled(t)
		return s.decision(d, cmd.kept)
	case "cancel":
		a := s.args(t, td)
		return s.decision(cancel(s.r, at, a.client, a.verifier, a.seq, a.progress, fingerprintOf(a.cmd)), 0)
	case "touch":
		a := s.args(t, td)
		return s.decision(touch(s.r, at, a.client, a.verifier, a.progress), 0)
	case "close":
		a := s.args(t, td)
		return s.decision(s.r.Close(at, a.client, a.verifier, a.progress.First, a.unresolved), 0)
	case "stored":
		a := s.args(t, td)
		d, ok := s.r.Stored(a.client, a.verifier, a.seq, func() Fingerprint { return fingerprintOf(a.cmd) })
		if !ok {
			return "not to be had without the log\n"
		}
		return s.decision(d, 0)
	}
	t.Fatalf("%s: unknown command %q", td.Pos, td.Cmd)
	return ""
}

// arguments are those of all commands; a request names the client, s, F and the verifier.
type arguments struct {
	client, seq, ttl           uint64
	progress                   Progress
	verifier                   Verifier
	name, cmd, answer          string
	ordered, fails, unresolved bool
}

func (s *script) args(t *testing.T, td *datadriven.TestData) (a arguments) {
	t.Helper()
	a.progress.First, a.verifier = 1, verifierOf("")
	for _, arg := range td.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "client":
			a.client = number(t, value)
			if c, ok := s.r.Client(a.client); ok && a.verifier == verifierOf("") {
				a.verifier = c.Verifier // the right one unless the script gives another
			} else if d, ok := s.r.tombs.Get(a.client); ok && a.verifier == verifierOf("") {
				a.verifier = d.Verifier
			}
		case "v":
			a.verifier = verifierOf(value)
		case "s":
			a.seq = number(t, value)
			if a.cmd == "" {
				a.cmd = "command " + value
			}
		case "F":
			a.progress.First = number(t, value)
		case "received":
			a.progress.Received = ranges(t, arg.Vals)
		case "ttl":
			a.ttl = number(t, value)
		case "name":
			a.name = value
		case "cmd":
			a.cmd = value
		case "answer":
			a.answer = value
		case "size":
			a.answer = strings.Repeat("x", int(number(t, value)))
		case "ordered":
			a.ordered = true
		case "fails":
			a.fails = true
		case "unresolved":
			a.unresolved = true
		default:
			t.Fatalf("%s: unknown argument %q", td.Pos, arg.Key)
		}
	}
	return a
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	if base, power, ok := strings.Cut(text, "^"); ok {
		require.Equal(t, "2", base)
		return 1 << number(t, power)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

func ranges(t *testing.T, texts []string) (out []Range) {
	t.Helper()
	for _, text := range texts {
		low, high, ok := strings.Cut(text, "-")
		if !ok {
			high = low
		}
		out = append(out, Range{number(t, low), number(t, high)})
	}
	return out
}

func (s *script) limits(t *testing.T, td *datadriven.TestData) string {
	fields := map[string]*uint64{"clients": &s.lim.MaxClients, "window": &s.lim.Window, "default-ttl": &s.lim.DefaultTTL,
		"min-ttl": &s.lim.MinTTL, "max-ttl": &s.lim.MaxTTL, "client-bytes": &s.lim.ClientAnswerBytes,
		"total-bytes": &s.lim.TotalAnswerBytes, "span": &s.lim.TombstoneSpan, "tombstones": &s.lim.MaxTombstones}
	for _, arg := range td.CmdArgs {
		require.Contains(t, fields, arg.Key, td.Pos)
		*fields[arg.Key] = number(t, arg.Vals[0])
	}
	return "ok\n"
}

// tick lets time pass and removes what is due, as an entry without requests does.
func (s *script) tick(t *testing.T, td *datadriven.TestData) string {
	budget := uint64(1000)
	for _, arg := range td.CmdArgs {
		switch {
		case strings.HasPrefix(arg.Key, "+"):
			s.time += number(t, arg.Key[1:])
		case arg.Key == "budget":
			budget = number(t, arg.Vals[0])
		default:
			t.Fatalf("%s: unknown argument %q", td.Pos, arg.Key)
		}
	}
	s.index++
	out := fmt.Sprintf("time %d\n", s.time)
	before := s.r.Tombstones()
	var made, gone int
	removeDue(s.r, s.lim, s.time, budget, func(d Due) {
		if d.Kind == KindClient {
			made++
			out += fmt.Sprintf("client %d expired (deadline %d)\n", d.ID, d.Deadline)
			return
		}
		gone++
		out += fmt.Sprintf("tombstone %d dropped (deadline %d)\n", d.ID, d.Deadline)
	})
	if excess := before + made - gone - s.r.Tombstones(); excess > 0 {
		out += fmt.Sprintf("%d tombstones dropped by count\n", excess)
	}
	return out
}

// decision prints what matters of a decision: code, outcome, whether it is a replay, where it was made, and the rest.
func (s *script) decision(d Decision, ran int) string {
	out := codeNames[d.Code] + " " + outcomeNames[d.Outcome]
	if d.Replayed {
		out += " replayed"
	}
	if d.Index != 0 {
		out += fmt.Sprintf(" @%d.%d", d.Term, d.Index)
	}
	if d.Client != nil {
		out += fmt.Sprintf(" client=%d ttl=%d window=%d", d.Client.ID, d.Client.TTL, d.Client.Window)
	}
	if len(d.Bytes) > 64 {
		out += fmt.Sprintf(" answer=%d bytes", len(d.Bytes))
	} else if len(d.Bytes) > 0 {
		out += fmt.Sprintf(" answer=%s", d.Bytes)
	}
	for _, f := range []struct {
		name  string
		value uint64
	}{{"expected", d.Expected}, {"retry-after", d.RetryAfter}, {"limit", d.Limit}} {
		if f.value != 0 {
			out += fmt.Sprintf(" %s=%d", f.name, f.value)
		}
	}
	if ran > 0 {
		out += " RAN"
	}
	return out + "\n"
}

// state prints everything in the registry.
func (s *script) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "time=%d last-id=%d answers=%d bytes=%d\n", s.time, s.r.LastID(), s.r.Answers(), s.r.AnswerBytes())
	s.r.EachClient(0, func(c *Client) bool {
		fmt.Fprintf(&b, "client %d F=%d window=%d ttl=%d active=%d bytes=%d", c.ID, c.First, c.Window, c.TTL, c.LastActive, c.AnswerBytes())
		if c.Ordered {
			fmt.Fprintf(&b, " next=%d", c.next)
		}
		fmt.Fprintln(&b)
		for _, a := range s.r.open(c).stored(Range{0, MaxSequence}) {
			fmt.Fprintf(&b, "  %d: %s", a.seq, s.decision(a.fresh(), 0))
		}
		return true
	})
	s.r.tombs.Scan(func(d *Tombstone) bool {
		var applied []uint64
		for i := range uint64(len(d.Applied)) * 8 {
			if d.Verdict(d.First+i) == Applied {
				applied = append(applied, d.First+i)
			}
		}
		fmt.Fprintf(&b, "tombstone %d F=%d applied=%v %s since=%d\n", d.ID, d.First, applied,
			map[Reason]string{ReasonIdle: "idle", ReasonClosed: "closed"}[d.Reason], d.Since)
		return true
	})
	return b.String()
}
