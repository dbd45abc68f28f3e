package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/client"
)

// nobody is an address at which nothing listens.
const nobody = "127.0.0.1:1"

// result is what a run of kvclient left behind.
type result struct {
	code           int
	stdout, stderr string
}

// kvclient runs the program in this process; unless the arguments say otherwise, no node can be reached.
func kvclient(stdin string, args ...string) result {
	var out, errs bytes.Buffer
	a := &app{args: args, env: []string{"KVCLIENT_ENDPOINTS=" + nobody, "KVCLIENT_TIMEOUT=300ms"}, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	return result{a.run(context.Background()), out.String(), errs.String()}
}

func TestUsageErrorsSendNothing(t *testing.T) {
	for _, c := range []struct {
		stdin string
		args  []string
		says  string
	}{
		{"", nil, "a command is missing"},
		{"", []string{"fly"}, `no command "fly"`},
		{"", []string{"put"}, "takes the arguments KEY [VALUE]"},
		{"", []string{"put", "a", "b", "c"}, "takes the arguments KEY [VALUE]"},
		{"", []string{"put", "", "b"}, "KEY is empty"},
		{"", []string{"put", "a", "b", "--ttl", "-1s"}, "--ttl is -1s"},
		{"", []string{"put", "a", "b", "--nope"}, "--nope"},
		{"", []string{"get", ""}, "KEY is empty"},
		{"", []string{"get", "a", "--consistency", "eventual"}, "--consistency is"},
		{"", []string{"get", "a", "--max-age", "1s"}, "--max-age goes with"},
		{"", []string{"delete", "--prefix", ""}, "KEY is empty"},
		{"", []string{"incr", "a", "--by", "x"}, "--by"},
		{"", []string{"append", "a"}, "takes the arguments KEY SUFFIX"},
		{"", []string{"cas", "a", "b"}, "exactly one of"},
		{"", []string{"cas", "a", "b", "--absent", "--expect", "c"}, "exactly one of"},
		{"not json", []string{"txn"}, "isn't a transaction"},
		{`{"then":[{}]}`, []string{"txn"}, "then[0]: exactly one of"},
		{`{"compare":[{"key":"a"}]}`, []string{"txn"}, "compare[0]: one of value"},
		{`{"compare":[{"key":"a","version":1,"op":"~"}]}`, []string{"txn"}, `op is "~"`},
		{`{"unknown":1}`, []string{"txn"}, "unknown field"},
		{"", []string{"member", "fly"}, `no command "fly"`},
		{"", []string{"settings", "set"}, "settings takes"},
		{"", []string{"settings", "set", "window=x"}, "isn't NAME=VALUE"},
		{"", []string{"drill", "--workers", "0"}, "--workers is 0"},
		{"", []string{"drill", "--ops", "0"}, "--ops is 0"},
		{"", []string{"get", "a", "--endpoints", "http://localhost:1"}, "isn't host:port"},
		{"", []string{"get", "a", "--endpoints", "localhost"}, "isn't host:port"},
		{"", []string{"get", "a", "--endpoints", "localhost:99999"}, "isn't host:port"},
		{"", []string{"get", "a", "--timeout", "0s"}, "--timeout is 0s"},
		{"", []string{"get", "a", "-o", "xml"}, `--output is "xml"`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := kvclient(c.stdin, c.args...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Contains(t, r.stderr, c.says)
			require.Empty(t, r.stdout)
		})
	}
}

func TestUnavailableIsSurelyNotApplied(t *testing.T) {
	for _, args := range [][]string{{"put", "a", "b"}, {"get", "a"}, {"incr", "a"}, {"list"}, {"delete", "a"}, {"status"}, {"clients"}, {"member", "list"}} {
		t.Run(args[0], func(t *testing.T) {
			begin := time.Now()
			r := kvclient("", args...)
			require.Equal(t, exitUnavailable, r.code, r.stderr)
			require.Less(t, time.Since(begin), 5*time.Second)
		})
	}
}

func TestErrorsAsJSON(t *testing.T) {
	r := kvclient("", "put", "a", "b", "-o", "json")
	require.Equal(t, exitUnavailable, r.code)
	var e struct {
		Error struct{ Code, Outcome, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stderr), &e), r.stderr)
	require.Equal(t, "not_applied", e.Error.Outcome)
	require.NotEmpty(t, e.Error.Code)
	require.NotEmpty(t, e.Error.Message)
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, exitDone},
		{usagef("x"), exitUsage},
		{errors.New("x"), exitOther},
		{&exitError{exitDegraded, "x"}, exitDegraded},
		{&client.Error{Code: client.CodeNotFound, Outcome: client.NotApplied}, exitNotFound},
		{&client.Error{Code: client.CodeCompareFailed, Outcome: client.NotApplied}, exitDecidedNo},
		{&client.Error{Code: "NOT_A_NUMBER", Outcome: client.NotApplied}, exitDecidedNo},
		{&client.Error{Code: "OVERFLOW", Outcome: client.NotApplied}, exitDecidedNo},
		{&client.Error{Code: "KEY_TOO_LONG", Outcome: client.NotApplied}, exitLimit},
		{&client.Error{Code: "VALUE_TOO_LARGE", Outcome: client.NotApplied}, exitLimit},
		{&client.Error{Code: "KEY_SPACE_FULL", Outcome: client.NotApplied}, exitLimit},
		{&client.Error{Code: "CLIENTS_FULL", Outcome: client.NotApplied}, exitLimit},
		{&client.Error{Code: client.CodeUnavailable, Outcome: client.NotApplied}, exitUnavailable},
		{&client.Error{Code: client.CodeNotSent, Outcome: client.NotApplied, Cause: context.DeadlineExceeded}, exitUnavailable},
		{&client.Error{Code: "NOT_LEADER", Outcome: client.NotApplied, Cause: context.DeadlineExceeded}, exitUnavailable},
		{&client.Error{Code: client.CodeUnanswered, Outcome: client.Unknown}, exitUnknown},
		{&client.Error{Code: "KEY_TOO_LONG", Outcome: client.Unknown}, exitUnknown},
		{&client.Error{Code: "ANSWER_GONE", Outcome: client.Applied}, exitOther},
		{fmt.Errorf("wrapped: %w", &client.Error{Code: client.CodeNotFound, Outcome: client.NotApplied}), exitNotFound},
	} {
		require.Equal(t, c.code, exitCode(c.err), "%v", c.err)
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	r := kvclient("", "help")
	require.Equal(t, exitDone, r.code)
	for _, c := range commands {
		require.Contains(t, r.stdout, "  "+c.name+" ")
		h := kvclient("", c.name, "--help")
		require.Equal(t, exitDone, h.code)
		require.Contains(t, h.stdout, "Usage: kvclient "+c.name)
		require.Equal(t, h.stdout, kvclient("", "help", c.name).stdout)
	}
}

func TestValuesThatAreNotTextAreBase64(t *testing.T) {
	f := keyValue(client.KeyValue{Key: "k\xff", Value: []byte("olá")}, true)
	require.Equal(t, "a/8=", f["key_base64"])
	require.Equal(t, "olá", f["value"])
	require.Equal(t, `"k\xff"`, quoted("k\xff"))
	require.Equal(t, "olá", quoted("olá"))
}

func TestDrillIsExactOnlyWhenItIs(t *testing.T) {
	for _, c := range []struct {
		r     drillResult
		exact bool
	}{
		{drillResult{Initial: 5, Acknowledged: 10, Final: 15}, true},
		{drillResult{Acknowledged: 10, Final: 11}, false}, // a duplicate
		{drillResult{Acknowledged: 10, Final: 9}, false},  // a lost write
		{drillResult{Acknowledged: 10, Final: 10, Unknown: 1}, false},
	} {
		c.r.judge()
		require.Equal(t, c.exact, c.r.Exact, "%+v", c.r)
	}
}
