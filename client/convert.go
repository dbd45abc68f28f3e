package client

import (
	"cmp"
	"slices"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

func metaOf(node string, r *kvoncev1.Response) Meta {
	m := Meta{Index: r.GetIndex(), Term: r.GetTerm(), Replayed: r.GetReplayed(), Node: node}
	switch {
	case r.GetCommand() != nil:
		m.Revision = r.GetCommand().GetRevision()
	case r.GetRead() != nil:
		m.Revision = r.GetRead().GetRevision()
	}
	return m
}

func resultOf(node string, r *kvoncev1.Response) Result {
	out := Result{Meta: metaOf(node, r), Succeeded: r.GetCommand().GetSucceeded()}
	if ops := r.GetCommand().GetOps(); len(ops) > 0 {
		out.Ops = make([]OpResult, len(ops))
		for i, o := range ops {
			out.Ops[i] = opResultOf(o)
		}
	}
	return out
}

func opResultOf(o *kvoncev1.OpResult) OpResult {
	out := OpResult{Deleted: o.GetDeleted(), Number: o.GetNumber(), Length: o.GetLength(),
		KeyValues: keyValuesOf(o.GetKvs()), More: o.GetMore()}
	if p := o.GetPrevious(); p != nil {
		kv := keyValueOf(p)
		out.Previous = &kv
	}
	return out
}

func keyValueOf(kv *kvoncev1.KeyValue) KeyValue {
	return KeyValue{Key: string(kv.GetKey()), Value: kv.GetValue(), CreateRevision: kv.GetCreateRevision(),
		ModRevision: kv.GetModRevision(), Version: kv.GetVersion(), TTL: time.Duration(kv.GetTtlMs()) * time.Millisecond}
}

func keyValuesOf(kvs []*kvoncev1.KeyValue) []KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	out := make([]KeyValue, len(kvs))
	for i, kv := range kvs {
		out[i] = keyValueOf(kv)
	}
	return out
}

func sortSettings(s []*kvoncev1.SetSettings_Setting) {
	slices.SortFunc(s, func(a, b *kvoncev1.SetSettings_Setting) int { return cmp.Compare(a.GetName(), b.GetName()) })
}
