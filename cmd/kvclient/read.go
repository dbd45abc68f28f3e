package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/client"
)

// readFlags are those of get and list.
type readFlags struct {
	consistency string
	maxAge      time.Duration
}

func (r *readFlags) define(fs *pflag.FlagSet) {
	fs.StringVar(&r.consistency, "consistency", "linearizable", "linearizable or serializable")
	fs.DurationVar(&r.maxAge, "max-age", 0, "how old the state may be, for serializable reads; 0 for any age")
}

func (r *readFlags) options() ([]client.ReadOption, error) {
	switch {
	case r.maxAge < 0:
		return nil, usagef("--max-age is %v, must not be negative", r.maxAge)
	case r.consistency == "linearizable" && r.maxAge > 0:
		return nil, usagef("--max-age goes with --consistency serializable")
	case r.consistency == "linearizable":
		return nil, nil
	case r.consistency == "serializable" && r.maxAge > 0:
		return []client.ReadOption{client.MaxAge(r.maxAge)}, nil
	case r.consistency == "serializable":
		return []client.ReadOption{client.Serializable()}, nil
	}
	return nil, usagef("--consistency is %q, must be linearizable or serializable", r.consistency)
}

var getCommand = &command{
	name: "get", args: "KEY", summary: "Print the value of a key, byte for byte; exit 3 if there is none.",
	examples: "kvclient get greeting\nkvclient get --prefix session/\nkvclient get greeting --consistency serializable -o json\n", minArgs: 1, maxArgs: 1,
	prepare: func(fs *pflag.FlagSet) runner {
		var r readFlags
		r.define(fs)
		prefix := fs.Bool("prefix", false, "print all keys that begin with KEY, with their values")
		return func(ctx context.Context, a *app, args []string) error {
			if *prefix {
				return a.list(ctx, args[0], true, 0, r)
			}
			return a.get(ctx, args[0], r)
		}
	},
}

func (a *app) get(ctx context.Context, key string, r readFlags) error {
	if err := requireKey(key); err != nil {
		return err
	}
	options, err := r.options()
	if err != nil {
		return err
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		got, err := c.Get(ctx, key, options...)
		if err != nil {
			return err
		}
		f := keyValue(got.KeyValue, true)
		if got.AgeKnown {
			f["age_ms"] = got.Age.Age.Milliseconds()
		}
		return a.answer(a.raw(got.Value), f, got.Meta)
	})
}

var listCommand = &command{
	name: "list", args: "[PREFIX]", summary: "Print the keys that begin with PREFIX, in byte order.",
	examples: "kvclient list\nkvclient list session/ --values --limit 20\n", minArgs: 0, maxArgs: 1,
	prepare: func(fs *pflag.FlagSet) runner {
		var r readFlags
		r.define(fs)
		values := fs.Bool("values", false, "print the values too")
		limit := fs.Uint64("limit", 0, "print at most this many keys; 0 for all")
		return func(ctx context.Context, a *app, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.list(ctx, prefix, *values, *limit, r)
		}
	},
}

func (a *app) list(ctx context.Context, prefix string, values bool, limit uint64, r readFlags) error {
	options, err := r.options()
	if err != nil {
		return err
	}
	if !values {
		options = append(options, client.KeysOnly())
	}
	if limit > 0 {
		options = append(options, client.Limit(limit))
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		var rows [][]string
		list := []fields{}
		for kv, err := range c.List(ctx, prefix, options...) {
			if err != nil {
				return err
			}
			switch {
			case a.output == "json":
				list = append(list, keyValue(kv, values))
			case a.output == "table":
				rows = append(rows, []string{quoted(kv.Key), number(kv.ModRevision), number(kv.Version), quoted(string(kv.Value))})
			case values:
				a.printf("%s\t%s\n", quoted(kv.Key), quoted(string(kv.Value)))
			default:
				a.printf("%s\n", quoted(kv.Key))
			}
		}
		switch a.output {
		case "json":
			return a.json(fields{"keys": list})
		case "table":
			return a.table("KEY REVISION VERSION VALUE", rows)
		}
		return nil
	})
}
