package client

import (
	"context"
	"iter"
	"time"

	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// ReadOption changes a read.
type ReadOption func(*readOptions)

type readOptions struct {
	read     kvoncev1.Read
	limit    uint64
	keysOnly bool
}

// Serializable lets a read be answered from what the node has applied, however old. Without it, a read sees everything
// that was acknowledged before it began.
func Serializable() ReadOption {
	return func(o *readOptions) { o.read.Consistency = kvoncev1.Consistency_SERIALIZABLE }
}

// MaxAge is Serializable with a limit: the read fails with ErrTooOld when the state of the node is older or its age is
// unknown. It isn't tried elsewhere; a linearizable read is the way to be sure.
func MaxAge(d time.Duration) ReadOption {
	return func(o *readOptions) {
		o.read.Consistency = kvoncev1.Consistency_SERIALIZABLE
		o.read.MaxAgeMs = milliseconds(d)
	}
}

// Limit ends a List or Range after n keys. Pages has pages of at most n.
func Limit(n uint64) ReadOption { return func(o *readOptions) { o.limit = n } }

// KeysOnly leaves the values out of a List, Range or Pages.
func KeysOnly() ReadOption { return func(o *readOptions) { o.keysOnly = true } }

// GetResult is what a get answered.
type GetResult struct {
	Meta
	KeyValue
	Age
}

// Age is how old the state that was read was at most.
type Age struct {
	// Age is 0 for a linearizable read.
	Age time.Duration
	// AgeKnown tells whether the node knew. A linearizable read always does.
	AgeKnown bool
}

// Page is a part of a range, as of one revision.
type Page struct {
	Meta
	Age
	KeyValues []KeyValue
	// More tells that the range goes on.
	More bool
}

// Get reads a key. It fails with ErrNotFound when there is none; the result has its Meta then too.
func (c *Client) Get(ctx context.Context, key string, options ...ReadOption) (GetResult, error) {
	if key == "" {
		return GetResult{}, keyEmpty("get")
	}
	o := readOptionsOf(options)
	o.read.Kind = &kvoncev1.Read_Get{Get: &kvoncev1.Get{Key: []byte(key)}}
	p, err := c.readPage(ctx, "get", o)
	if err != nil {
		return GetResult{}, err
	}
	r := GetResult{Meta: p.Meta, Age: p.Age}
	if len(p.KeyValues) == 0 {
		return r, &Error{Op: "get", Code: CodeNotFound, Outcome: NotApplied, Meta: p.Meta}
	}
	r.KeyValue = p.KeyValues[0]
	return r, nil
}

func readOptionsOf(options []ReadOption) *readOptions {
	o := &readOptions{}
	for _, f := range options {
		f(o)
	}
	return o
}

func (c *Client) readPage(ctx context.Context, op string, o *readOptions) (Page, error) {
	x := newRead(op, &o.read)
	r, err := c.do(ctx, x)
	if err != nil {
		return Page{}, err
	}
	read := r.GetRead()
	p := Page{Meta: metaOf(x.node, r), KeyValues: keyValuesOf(read.GetKvs()), More: read.GetMore()}
	p.AgeKnown = o.read.Consistency == kvoncev1.Consistency_LINEARIZABLE || read.AgeMs != nil
	p.Age.Age = time.Duration(read.GetAgeMs()) * time.Millisecond
	return p, nil
}

// List reads the keys that begin with prefix, in byte order. It reads a page at a time: each is as of one revision, but
// all together are not; see Pages. An error ends the iteration.
func (c *Client) List(ctx context.Context, prefix string, options ...ReadOption) iter.Seq2[KeyValue, error] {
	return c.Range(ctx, prefix, prefixEnd(prefix), options...)
}

// Range reads the keys from start up to but without end, in byte order, as List does. An empty end is no end.
func (c *Client) Range(ctx context.Context, start, end string, options ...ReadOption) iter.Seq2[KeyValue, error] {
	return func(yield func(KeyValue, error) bool) {
		left, limited := readOptionsOf(options).limit, readOptionsOf(options).limit > 0
		for page, err := range c.Pages(ctx, start, end, options...) {
			if err != nil {
				yield(KeyValue{}, err)
				return
			}
			for _, kv := range page.KeyValues {
				if !yield(kv, nil) {
					return
				}
				if left--; limited && left == 0 {
					return
				}
			}
		}
	}
}

// Pages reads the keys from start up to but without end, a page at a time, each with its revision. An empty end is no
// end. An error ends the iteration.
func (c *Client) Pages(ctx context.Context, start, end string, options ...ReadOption) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for {
			page, err := c.page(ctx, start, end, options)
			if !yield(page, err) || err != nil || !page.More || len(page.KeyValues) == 0 {
				return
			}
			start = page.KeyValues[len(page.KeyValues)-1].Key + "\x00" // the first key after the last one
		}
	}
}

func (c *Client) page(ctx context.Context, start, end string, options []ReadOption) (Page, error) {
	o := readOptionsOf(options)
	o.read.Kind = &kvoncev1.Read_Range{Range: &kvoncev1.Range{Start: []byte(start), End: []byte(end), Limit: o.limit, KeysOnly: o.keysOnly}}
	return c.readPage(ctx, "range", o)
}
