package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kvonce/kvonce/client"
)

// fields is a JSON object.
type fields map[string]any

// bytes adds a byte string: under its name when it is valid UTF-8, else in base 64 under name_base64.
func (f fields) bytes(name string, b []byte) {
	if utf8.Valid(b) {
		f[name] = string(b)
		return
	}
	f[name+"_base64"] = base64.StdEncoding.EncodeToString(b)
}

// meta adds where an answer comes from.
func (f fields) meta(m client.Meta) fields {
	f["revision"], f["index"], f["term"], f["replayed"], f["node"] = m.Revision, m.Index, m.Term, m.Replayed, m.Node
	return f
}

// keyValue makes the object of a key.
func keyValue(kv client.KeyValue, withValue bool) fields {
	f := fields{"create_revision": kv.CreateRevision, "mod_revision": kv.ModRevision, "version": kv.Version}
	f.bytes("key", []byte(kv.Key))
	if withValue {
		f.bytes("value", kv.Value)
	}
	if kv.TTL > 0 {
		f["ttl_ms"] = kv.TTL.Milliseconds()
	}
	return f
}

// json writes one object on one line.
func (a *app) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	a.printf("%s\n", b)
	return nil
}

// answer writes plain text, or the object with where it comes from.
func (a *app) answer(plain string, f fields, m client.Meta) error {
	if a.output == "json" {
		return a.json(f.meta(m))
	}
	a.print(plain)
	return nil
}

// table writes rows in columns under a heading.
func (a *app) table(heading string, rows [][]string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.ReplaceAll(heading, " ", "\t"))
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// quoted shows a key as it is when every character of it can be printed, and quoted otherwise.
func quoted(key string) string {
	for _, r := range key {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(key)
		}
	}
	return key
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func ms(n uint64) string { return (time.Duration(n) * time.Millisecond).String() }
