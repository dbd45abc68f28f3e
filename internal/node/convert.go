package node

import (
	"fmt"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/registry"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// The wire and the log share no structs: what a client sends is translated here, and only here.

// invalidError says which field of a request can't be.
type invalidError struct{ field, reason string }

func (e *invalidError) Error() string { return e.field + " " + e.reason }

func invalid(field, reason string, args ...any) error {
	return &invalidError{field, fmt.Sprintf(reason, args...)}
}

// encodeCommand returns the canonical bytes of a command.
func encodeCommand(m *kvoncev1.Command) ([]byte, error) {
	c, err := commandOf(m)
	if err != nil {
		return nil, err
	}
	b := c.Encode()
	if len(b) > fsm.MaxCommandBytes {
		return nil, fmt.Errorf("%w: command has %d bytes, at most %d fit", errTooLarge, len(b), fsm.MaxCommandBytes)
	}
	return b, nil
}

func commandOf(m *kvoncev1.Command) (c fsm.Command, err error) {
	switch k := m.GetKind().(type) {
	case *kvoncev1.Command_Put:
		c.Op = putOf(k.Put)
	case *kvoncev1.Command_Delete:
		c.Op = deleteOf(k.Delete)
	case *kvoncev1.Command_DeleteRange:
		c.Op = deleteRangeOf(k.DeleteRange)
	case *kvoncev1.Command_Increment:
		c.Op = incrementOf(k.Increment)
	case *kvoncev1.Command_Append:
		c.Op = appendOf(k.Append)
	case *kvoncev1.Command_Txn:
		c.Txn, err = txnOf(k.Txn)
		c.Kind = fsm.Transaction
		return c, err
	case *kvoncev1.Command_SetSettings:
		c.Changes, err = changesOf(k.SetSettings)
		c.Kind = fsm.SetSettings
		return c, err
	default:
		return c, invalid("command", "is missing or of an unknown kind")
	}
	c.Kind = c.Op.Kind
	return c, nil
}

func putOf(m *kvoncev1.Put) fsm.Op {
	return fsm.Op{Kind: fsm.Put, Key: m.GetKey(), Value: m.GetValue(), TTL: m.GetTtlMs(), Previous: m.GetReturnPrevious()}
}

func deleteOf(m *kvoncev1.Delete) fsm.Op {
	return fsm.Op{Kind: fsm.Delete, Key: m.GetKey(), Previous: m.GetReturnPrevious()}
}

func deleteRangeOf(m *kvoncev1.DeleteRange) fsm.Op {
	return fsm.Op{Kind: fsm.DeleteRange, Key: m.GetStart(), End: m.GetEnd()}
}

func incrementOf(m *kvoncev1.Increment) fsm.Op {
	return fsm.Op{Kind: fsm.Increment, Key: m.GetKey(), Delta: m.GetDelta()}
}

func appendOf(m *kvoncev1.Append) fsm.Op {
	return fsm.Op{Kind: fsm.Append, Key: m.GetKey(), Value: m.GetSuffix()}
}

func changesOf(m *kvoncev1.SetSettings) ([]fsm.Change, error) {
	var changes []fsm.Change
	for _, s := range m.GetSettings() {
		setting, ok := fsm.SettingByName(s.GetName())
		if !ok {
			return nil, invalid("setting", "%q is unknown", s.GetName())
		}
		changes = append(changes, fsm.Change{Setting: setting, Value: s.GetValue()})
	}
	if len(changes) == 0 {
		return nil, invalid("settings", "are empty")
	}
	return changes, nil
}

func txnOf(m *kvoncev1.Txn) (t fsm.Txn, err error) {
	for _, c := range m.GetCompares() {
		x, err := compareOf(c)
		if err != nil {
			return t, err
		}
		t.Compares = append(t.Compares, x)
	}
	if t.Then, err = opsOf("then_ops", m.GetThenOps()); err != nil {
		return t, err
	}
	t.Else, err = opsOf("else_ops", m.GetElseOps())
	return t, err
}

func opsOf(field string, ms []*kvoncev1.Op) (ops []fsm.Op, err error) {
	for i, m := range ms {
		var o fsm.Op
		switch k := m.GetKind().(type) {
		case *kvoncev1.Op_Put:
			o = putOf(k.Put)
		case *kvoncev1.Op_Delete:
			o = deleteOf(k.Delete)
		case *kvoncev1.Op_DeleteRange:
			o = deleteRangeOf(k.DeleteRange)
		case *kvoncev1.Op_Increment:
			o = incrementOf(k.Increment)
		case *kvoncev1.Op_Append:
			o = appendOf(k.Append)
		case *kvoncev1.Op_Get:
			o = fsm.Op{Kind: fsm.Get, Key: k.Get.GetKey()}
		case *kvoncev1.Op_Range:
			o = fsm.Op{Kind: fsm.ReadRange, Key: k.Range.GetStart(), End: k.Range.GetEnd(), Limit: k.Range.GetLimit(), KeysOnly: k.Range.GetKeysOnly()}
		default:
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), "is of an unknown kind")
		}
		ops = append(ops, o)
	}
	return ops, nil
}

func compareOf(m *kvoncev1.Compare) (c fsm.Compare, err error) {
	c.Key = m.GetKey()
	c.Relation = fsm.Relation(m.GetRelation()) // the numbers are the same; a test holds them together
	if c.Relation < fsm.Equal || c.Relation > fsm.Greater {
		return c, invalid("compare.relation", "is %d, must be 1 to 4", m.GetRelation())
	}
	switch k := m.GetTarget().(type) {
	case *kvoncev1.Compare_Value:
		c.Target, c.Value = fsm.TargetValue, k.Value
	case *kvoncev1.Compare_Version:
		c.Target, c.Number = fsm.TargetVersion, k.Version
	case *kvoncev1.Compare_ModRevision:
		c.Target, c.Number = fsm.TargetModRevision, k.ModRevision
	case *kvoncev1.Compare_CreateRevision:
		c.Target, c.Number = fsm.TargetCreateRevision, k.CreateRevision
	case *kvoncev1.Compare_Exists:
		if c.Relation != fsm.Equal {
			return c, invalid("compare.exists", "goes with EQUAL only")
		}
		c.Target = fsm.TargetExists
		if k.Exists {
			c.Number = 1
		}
	default:
		return c, invalid("compare.target", "is missing")
	}
	return c, nil
}

func progressOf(m *kvoncev1.Progress) (p registry.Progress, err error) {
	if n := len(m.GetReceived()); n > fsm.MaxReceivedRanges {
		return p, invalid("received", "has %d ranges, at most %d are allowed", n, fsm.MaxReceivedRanges)
	}
	p.First = m.GetFirstOutstanding()
	for _, g := range m.GetReceived() {
		p.Received = append(p.Received, registry.Range{Low: g.GetLow(), High: g.GetHigh()})
	}
	return p, nil
}

func saltOf(b []byte) ([]byte, error) {
	if len(b) < 8 || len(b) > fsm.MaxSaltBytes {
		return nil, invalid("salt", "has %d bytes, must have 8 to %d", len(b), fsm.MaxSaltBytes)
	}
	return b, nil
}

func registrationOf(m *kvoncev1.Register) (r registry.Registration, err error) {
	if len(m.GetVerifier()) != len(r.Verifier) {
		return r, invalid("verifier", "has %d bytes, must have %d", len(m.GetVerifier()), len(r.Verifier))
	}
	if len(m.GetName()) > registry.MaxNameBytes {
		return r, invalid("name", "has %d bytes, at most %d are allowed", len(m.GetName()), registry.MaxNameBytes)
	}
	copy(r.Verifier[:], m.GetVerifier())
	r.Name, r.TTL, r.Ordered = m.GetName(), m.GetTtlMs(), m.GetOrdered()
	return r, nil
}

func keyValueTo(kv *fsm.KeyValue) *kvoncev1.KeyValue {
	return &kvoncev1.KeyValue{Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Version: kv.Version, TtlMs: kv.TTL}
}

func keyValuesTo(kvs []fsm.KeyValue) []*kvoncev1.KeyValue {
	out := make([]*kvoncev1.KeyValue, len(kvs))
	for i := range kvs {
		out[i] = keyValueTo(&kvs[i])
	}
	return out
}

func commandResultTo(a *fsm.Answer) *kvoncev1.CommandResult {
	out := &kvoncev1.CommandResult{Revision: a.Revision, Succeeded: a.Succeeded}
	for i := range a.Ops {
		out.Ops = append(out.Ops, opResultTo(&a.Ops[i]))
	}
	return out
}

// opResultTo gives a single key as the previous one and the keys of a page as a list: an operation has one or the other.
func opResultTo(o *fsm.OpResult) *kvoncev1.OpResult {
	out := &kvoncev1.OpResult{Deleted: o.Deleted, Number: o.Number, Length: o.Length, More: o.More}
	if o.Page {
		out.Kvs = keyValuesTo(o.Keys)
	} else if len(o.Keys) == 1 {
		out.Previous = keyValueTo(&o.Keys[0])
	}
	return out
}
