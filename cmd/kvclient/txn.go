package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kvonce/kvonce/client"
)

var txnCommand = &command{
	name: "txn", args: "", summary: "Run a transaction that standard input holds as JSON.",
	examples: `echo '{"compare":[{"key":"a","exists":false}],"then":[{"put":{"key":"a","value":"1"}}],"else":[{"get":{"key":"a"}}]}' | kvclient txn` + "\n",
	maxArgs:  0,
	prepare:  noFlags(func(ctx context.Context, a *app, _ []string) error { return a.txn(ctx) }),
}

// txnInput is what txn reads.
type txnInput struct {
	Compare    []txnCompare `json:"compare"`
	Then, Else []txnOp
}

// txnCompare names one target. Op is =, !=, < or >; = when it is missing.
type txnCompare struct {
	Key            string  `json:"key"`
	Op             string  `json:"op"`
	Value          *string `json:"value"`
	ValueBase64    *string `json:"value_base64"`
	Version        *uint64 `json:"version"`
	ModRevision    *uint64 `json:"mod_revision"`
	CreateRevision *uint64 `json:"create_revision"`
	Exists         *bool   `json:"exists"`
}

// txnOp has exactly one of its fields.
type txnOp struct {
	Put       *txnPut `json:"put"`
	Get       *txnKey `json:"get"`
	Delete    *txnKey `json:"delete"`
	Increment *struct {
		Key string `json:"key"`
		By  int64  `json:"by"`
	} `json:"increment"`
	Append *struct {
		Key    string `json:"key"`
		Suffix string `json:"suffix"`
	} `json:"append"`
	DeleteRange *struct {
		Start string `json:"start"`
		End   string `json:"end"`
	} `json:"delete_range"`
}

type txnKey struct {
	Key string `json:"key"`
}

type txnPut struct {
	Key         string  `json:"key"`
	Value       string  `json:"value"`
	ValueBase64 *string `json:"value_base64"`
	TTLMs       int64   `json:"ttl_ms"`
}

func (a *app) txn(ctx context.Context) error {
	if isTerminal(a.stdin) {
		return usagef("standard input is a terminal; it should hold the transaction as JSON")
	}
	var in txnInput
	d := json.NewDecoder(a.stdin)
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return usagef("standard input isn't a transaction: %v", err)
	}
	compares, err := each(in.Compare, (*txnCompare).cmp)
	if err != nil {
		return usagef("compare%v", err)
	}
	thens, err := each(in.Then, (*txnOp).op)
	if err != nil {
		return usagef("then%v", err)
	}
	elses, err := each(in.Else, (*txnOp).op)
	if err != nil {
		return usagef("else%v", err)
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		r, err := c.Txn().If(compares...).Then(thens...).Else(elses...).Commit(ctx)
		if err != nil {
			return err
		}
		return a.txnResult(r)
	})
}

// each converts a list. The error begins with the position of the element at fault.
func each[T, R any](list []T, convert func(*T) (R, error)) (out []R, err error) {
	for i := range list {
		r, err := convert(&list[i])
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (c *txnCompare) cmp() (client.Cmp, error) {
	if c.Op == "" {
		c.Op = "="
	}
	switch {
	case c.Exists != nil && c.Op != "=":
		return client.Cmp{}, fmt.Errorf("exists goes with = only")
	case c.Exists != nil && *c.Exists:
		return client.Exists(c.Key), nil
	case c.Exists != nil:
		return client.Absent(c.Key), nil
	case c.ValueBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*c.ValueBase64)
		if err != nil {
			return client.Cmp{}, fmt.Errorf("value_base64: %w", err)
		}
		return compareWith(client.Value(c.Key), c.Op, b)
	case c.Value != nil:
		return compareWith(client.Value(c.Key), c.Op, []byte(*c.Value))
	case c.Version != nil:
		return compareWith(client.Version(c.Key), c.Op, *c.Version)
	case c.ModRevision != nil:
		return compareWith(client.ModRevision(c.Key), c.Op, *c.ModRevision)
	case c.CreateRevision != nil:
		return compareWith(client.CreateRevision(c.Key), c.Op, *c.CreateRevision)
	}
	return client.Cmp{}, fmt.Errorf("one of value, value_base64, version, mod_revision, create_revision and exists is needed")
}

// comparer is what the comparisons of values and of numbers have in common.
type comparer[T any] interface {
	Equals(T) client.Cmp
	NotEquals(T) client.Cmp
	Less(T) client.Cmp
	Greater(T) client.Cmp
}

func compareWith[T any](c comparer[T], op string, with T) (client.Cmp, error) {
	switch op {
	case "=":
		return c.Equals(with), nil
	case "!=":
		return c.NotEquals(with), nil
	case "<":
		return c.Less(with), nil
	case ">":
		return c.Greater(with), nil
	}
	return client.Cmp{}, fmt.Errorf("op is %q, must be =, !=, < or >", op)
}

func (o *txnOp) op() (op client.Op, err error) {
	n := 0
	is := func(set bool) bool {
		if set {
			n++
		}
		return set
	}
	if is(o.Put != nil) {
		op, err = o.Put.op()
	}
	if is(o.Get != nil) {
		op = client.OpGet(o.Get.Key)
	}
	if is(o.Delete != nil) {
		op = client.OpDelete(o.Delete.Key)
	}
	if is(o.Increment != nil) {
		op = client.OpIncrement(o.Increment.Key, o.Increment.By)
	}
	if is(o.Append != nil) {
		op = client.OpAppend(o.Append.Key, []byte(o.Append.Suffix))
	}
	if is(o.DeleteRange != nil) {
		op = client.OpDeleteRange(o.DeleteRange.Start, o.DeleteRange.End)
	}
	if n != 1 && err == nil {
		err = fmt.Errorf("exactly one of put, get, delete, increment, append and delete_range is needed")
	}
	return op, err
}

func (p *txnPut) op() (client.Op, error) {
	value := []byte(p.Value)
	if p.ValueBase64 != nil {
		var err error
		if value, err = base64.StdEncoding.DecodeString(*p.ValueBase64); err != nil {
			return client.Op{}, fmt.Errorf("value_base64: %w", err)
		}
	}
	if p.TTLMs < 0 {
		return client.Op{}, fmt.Errorf("ttl_ms is %d, must not be negative", p.TTLMs)
	}
	return client.OpPut(p.Key, value, client.TTL(time.Duration(p.TTLMs)*time.Millisecond)), nil
}

func (a *app) txnResult(r client.TxnResult) error {
	ops := []fields{}
	for _, o := range r.Ops {
		f := fields{"deleted": o.Deleted, "number": o.Number, "length": o.Length}
		if o.Previous != nil {
			f["previous"] = keyValue(*o.Previous, true)
		}
		ops = append(ops, f)
	}
	plain := "succeeded\n"
	if !r.Succeeded {
		plain = "compare failed\n"
	}
	for _, o := range r.Ops {
		if o.Previous != nil {
			plain += fmt.Sprintf("%s\t%s\n", quoted(o.Previous.Key), quoted(string(o.Previous.Value)))
		}
	}
	if err := a.answer(plain, fields{"succeeded": r.Succeeded, "ops": ops}, r.Meta); err != nil {
		return err
	}
	if !r.Succeeded {
		return &exitError{exitDecidedNo, "the comparisons didn't hold"}
	}
	return nil
}
