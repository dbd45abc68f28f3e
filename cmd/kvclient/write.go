package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/client"
)

// maxStdin bounds what put reads from standard input; the cluster's own limits are below it.
const maxStdin = client.MaxRequestBytes

// requireKey refuses the empty key before anything is sent.
func requireKey(key string) error {
	if key == "" {
		return usagef("KEY is empty")
	}
	return nil
}

// value is the argument, or standard input when there is none.
func (a *app) value(args []string) ([]byte, error) {
	if len(args) > 0 {
		return []byte(args[0]), nil
	}
	if isTerminal(a.stdin) {
		return nil, usagef("VALUE is missing, and standard input is a terminal")
	}
	b, err := io.ReadAll(io.LimitReader(a.stdin, maxStdin+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if len(b) > maxStdin {
		return nil, &exitError{exitLimit, fmt.Sprintf("standard input is longer than %d bytes", maxStdin)}
	}
	return b, nil
}

var putCommand = &command{
	name: "put", args: "KEY [VALUE]", summary: "Set a key; without VALUE, to what standard input holds.",
	examples: "kvclient put greeting olá\nkvclient put --ttl 10m session/7 open\ndate | kvclient put now\n", minArgs: 1, maxArgs: 2,
	prepare: func(fs *pflag.FlagSet) runner {
		ttl := fs.Duration("ttl", 0, "let the key vanish after this much cluster time")
		prev := fs.Bool("prev", false, "print the value that was replaced")
		return func(ctx context.Context, a *app, args []string) error { return a.put(ctx, args, *ttl, *prev) }
	},
}

func (a *app) put(ctx context.Context, args []string, ttl time.Duration, prev bool) error {
	if err := requireKey(args[0]); err != nil {
		return err
	}
	if ttl < 0 {
		return usagef("--ttl is %v, must not be negative", ttl)
	}
	value, err := a.value(args[1:])
	if err != nil {
		return err
	}
	options := []client.PutOption{client.TTL(ttl)}
	if prev {
		options = append(options, client.ReturnPrevious())
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		r, err := c.Put(ctx, args[0], value, options...)
		if err != nil {
			return err
		}
		f := fields{}
		plain := "OK\n"
		if r.Previous != nil {
			f["previous"] = keyValue(*r.Previous, true)
			plain = a.raw(r.Previous.Value)
		}
		return a.answer(plain, f, r.Meta)
	})
}

// raw is a value as it is, with a newline on a terminal only.
func (a *app) raw(value []byte) string {
	if isTerminal(a.stdout) {
		return string(value) + "\n"
	}
	return string(value)
}

var deleteCommand = &command{
	name: "delete", args: "KEY", summary: "Remove a key, or with --prefix all that begin so; print how many there were.",
	examples: "kvclient delete greeting\nkvclient delete --prefix session/\n", minArgs: 1, maxArgs: 1,
	prepare: func(fs *pflag.FlagSet) runner {
		prefix := fs.Bool("prefix", false, "remove all keys that begin with KEY")
		return func(ctx context.Context, a *app, args []string) error { return a.remove(ctx, args[0], *prefix) }
	},
}

func (a *app) remove(ctx context.Context, key string, prefix bool) error {
	if err := requireKey(key); err != nil {
		return err
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		var r client.DeleteResult
		var err error
		if prefix {
			r, err = c.DeletePrefix(ctx, key)
		} else {
			r, err = c.Delete(ctx, key)
		}
		if err != nil {
			return err
		}
		return a.answer(number(r.Deleted)+"\n", fields{"deleted": r.Deleted}, r.Meta)
	})
}

var incrCommand = &command{
	name: "incr", args: "KEY", summary: "Add to a decimal number and print the sum; a missing key counts as 0.",
	examples: "kvclient incr visits\nkvclient incr stock --by -3\n", minArgs: 1, maxArgs: 1,
	prepare: func(fs *pflag.FlagSet) runner {
		by := fs.Int64("by", 1, "what is added; may be negative")
		return func(ctx context.Context, a *app, args []string) error { return a.increment(ctx, args[0], *by) }
	},
}

func (a *app) increment(ctx context.Context, key string, by int64) error {
	if err := requireKey(key); err != nil {
		return err
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		r, err := c.Increment(ctx, key, by)
		if err != nil {
			return err
		}
		return a.answer(strconv.FormatInt(r.Value, 10)+"\n", fields{"value": r.Value}, r.Meta)
	})
}

var appendCommand = &command{
	name: "append", args: "KEY SUFFIX", summary: "Add to the end of a value and print its length; a missing key counts as empty.",
	examples: "kvclient append log 'one more line'\n", minArgs: 2, maxArgs: 2,
	prepare: noFlags(func(ctx context.Context, a *app, args []string) error { return a.append(ctx, args[0], args[1]) }),
}

func (a *app) append(ctx context.Context, key, suffix string) error {
	if err := requireKey(key); err != nil {
		return err
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		r, err := c.Append(ctx, key, []byte(suffix))
		if err != nil {
			return err
		}
		return a.answer(number(r.Length)+"\n", fields{"length": r.Length}, r.Meta)
	})
}

var casCommand = &command{
	name: "cas", args: "KEY NEW", summary: "Set a key if it is as expected; exit 4 if it isn't.",
	examples: "kvclient cas greeting hello --expect olá\nkvclient cas leader me --absent\n", minArgs: 2, maxArgs: 2,
	prepare: func(fs *pflag.FlagSet) runner {
		o := casOptions{set: fs.Changed}
		fs.StringVar(&o.expect, "expect", "", "the value that the key must have")
		fs.Uint64Var(&o.version, "expect-version", 0, "the version that the key must have")
		fs.BoolVar(&o.absent, "absent", false, "the key must not exist")
		return func(ctx context.Context, a *app, args []string) error { return a.cas(ctx, args[0], args[1], o) }
	},
}

type casOptions struct {
	expect  string
	version uint64
	absent  bool
	set     func(flag string) bool
}

// condition wants exactly one of the three.
func (o *casOptions) condition(key string) (c client.Cmp, err error) {
	n := 0
	if o.set("expect") {
		n++
		c = client.Value(key).Equals([]byte(o.expect))
	}
	if o.set("expect-version") {
		n++
		c = client.Version(key).Equals(o.version)
	}
	if o.absent {
		n++
		c = client.Absent(key)
	}
	if n != 1 {
		return c, usagef("exactly one of --expect, --expect-version and --absent must be given")
	}
	return c, nil
}

func (a *app) cas(ctx context.Context, key, value string, o casOptions) error {
	if err := requireKey(key); err != nil {
		return err
	}
	condition, err := o.condition(key)
	if err != nil {
		return err
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		r, err := c.CompareAndSwap(ctx, condition, []byte(value))
		if err != nil {
			return err
		}
		return a.answer("OK\n", fields{}, r.Meta)
	})
}
