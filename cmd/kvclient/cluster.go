package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvonce/kvonce/client"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// statusTimeout bounds asking one node.
const statusTimeout = 2 * time.Second

var versionCommand = &command{
	name: "version", args: "", summary: "Print the version.", maxArgs: 0,
	prepare: noFlags(func(_ context.Context, a *app, _ []string) error {
		version := "devel"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
			version = info.Main.Version
		}
		a.printf("kvclient %s\n", version)
		return nil
	}),
}

var statusCommand = &command{
	name: "status", args: "", summary: "Show every node; exit 5 without a leader, 9 when a node is down but the cluster serves.", maxArgs: 0,
	prepare: noFlags(func(ctx context.Context, a *app, _ []string) error { return a.status(ctx) }),
}

// nodeStatus is what is known of a node: its answer, or why there is none.
type nodeStatus struct {
	endpoint, id string
	answer       *kvoncev1.StatusResponse
	err          error
}

// survey asks the given endpoints, then the members they name that weren't among them.
func survey(ctx context.Context, c *client.Client, endpoints []string) []nodeStatus {
	all := askAll(ctx, c, endpoints)
	known := map[string]bool{}
	for _, s := range all {
		known[s.endpoint] = true
		known[s.answer.GetNodeId()] = true
	}
	var more []string
	for _, s := range all {
		for _, m := range s.answer.GetMembers() {
			if address := m.GetClientAddress(); address != "" && !known[address] && !known[m.GetId()] {
				known[address] = true
				more = append(more, address)
			}
		}
	}
	all = append(all, askAll(ctx, c, more)...)
	slices.SortStableFunc(all, func(a, b nodeStatus) int { return cmp.Compare(a.id, b.id) })
	return all
}

func askAll(ctx context.Context, c *client.Client, endpoints []string) []nodeStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	all := make([]nodeStatus, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() {
			answer, err := c.Status(ctx, e)
			all[i] = nodeStatus{endpoint: e, id: cmp.Or(answer.GetNodeId(), e), answer: answer, err: err}
		})
	}
	wg.Wait()
	return all
}

func (a *app) status(ctx context.Context) error {
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		all := survey(ctx, c, a.endpoints)
		if err := a.showStatus(all); err != nil {
			return err
		}
		return judge(all)
	})
}

// judge says what is wrong with the cluster as a whole.
func judge(all []nodeStatus) error {
	leaders, down := 0, []string{}
	for _, s := range all {
		if s.answer.GetRole() == "leader" && s.answer.GetReady() {
			leaders++
		}
		if s.err != nil || !s.answer.GetReady() {
			down = append(down, s.id)
		}
	}
	switch {
	case leaders == 0:
		return &exitError{exitUnavailable, "no node leads"}
	case len(down) > 0:
		return &exitError{exitDegraded, "down or not ready: " + strings.Join(down, ", ")}
	}
	return nil
}

func (a *app) showStatus(all []nodeStatus) error {
	var newest uint64
	for _, s := range all {
		newest = max(newest, s.answer.GetAppliedIndex())
	}
	if a.output == "json" {
		list := []fields{}
		for _, s := range all {
			list = append(list, s.fields(newest))
		}
		return a.json(fields{"nodes": list})
	}
	var rows [][]string
	for _, s := range all {
		rows = append(rows, s.row(newest))
	}
	return a.table("NODE ENDPOINT ROLE LEADER TERM COMMIT APPLIED LAG CLIENTS REPLAYED DIGEST CLUSTER-TIME VERSION", rows)
}

func (s *nodeStatus) fields(newest uint64) fields {
	if s.err != nil {
		return fields{"endpoint": s.endpoint, "role": "down", "error": s.err.Error()}
	}
	r := s.answer
	return fields{"node": r.GetNodeId(), "endpoint": s.endpoint, "role": r.GetRole(), "leader": r.GetLeader().GetNodeId(), "ready": r.GetReady(),
		"term": r.GetTerm(), "commit_index": r.GetCommitIndex(), "applied_index": r.GetAppliedIndex(), "lag": newest - r.GetAppliedIndex(),
		"clients": r.GetClients(), "replayed": r.GetReplayed(), "digest": r.GetDigest(), "cluster_time_ms": r.GetClusterTimeMs(),
		"version": r.GetVersion(), "cluster_name": r.GetClusterName(), "cluster_id": hex.EncodeToString(r.GetIncarnation()),
		"keys": r.GetKeys(), "revision": r.GetRevision()}
}

func (s *nodeStatus) row(newest uint64) []string {
	if s.err != nil {
		return []string{"?", s.endpoint, "down", "", "", "", "", "", "", "", "", "", ""}
	}
	r := s.answer
	return []string{r.GetNodeId(), s.endpoint, r.GetRole(), cmp.Or(r.GetLeader().GetNodeId(), "-"), number(r.GetTerm()), number(r.GetCommitIndex()),
		number(r.GetAppliedIndex()), number(newest - r.GetAppliedIndex()), number(r.GetClients()), number(r.GetReplayed()),
		r.GetDigest() + "@" + number(r.GetAppliedIndex()), ms(r.GetClusterTimeMs()), r.GetVersion()}
}

var clientsCommand = &command{
	name: "clients", args: "", summary: "List the registered clients.", maxArgs: 0,
	prepare: func(fs *pflag.FlagSet) runner {
		limit := fs.Uint64("limit", 0, "list at most this many; 0 for all")
		return func(ctx context.Context, a *app, _ []string) error { return a.clients(ctx, *limit) }
	},
}

func (a *app) clients(ctx context.Context, limit uint64) error {
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		var all []*kvoncev1.ClientInfo
		for after, more := uint64(0), true; more && (limit == 0 || uint64(len(all)) < limit); {
			page, err := c.ListClients(ctx, after, 0)
			if err != nil {
				return err
			}
			all = append(all, page.GetClients()...)
			if more = page.GetMore() && len(page.GetClients()) > 0; more {
				after = all[len(all)-1].GetId()
			}
		}
		if limit > 0 && uint64(len(all)) > limit {
			all = all[:limit]
		}
		return a.showClients(all)
	})
}

func (a *app) showClients(all []*kvoncev1.ClientInfo) error {
	list, rows := []fields{}, [][]string{}
	for _, x := range all {
		id := number(x.GetId())
		list = append(list, fields{"id": id, "name": x.GetName(), "ttl_ms": x.GetTtlMs(), "idle_ms": x.GetIdleMs(),
			"first_outstanding": x.GetFirstOutstanding(), "answers": x.GetAnswers(), "answer_bytes": x.GetAnswerBytes(), "ordered": x.GetOrdered()})
		rows = append(rows, []string{id, cmp.Or(quoted(x.GetName()), "-"), ms(x.GetTtlMs()), ms(x.GetIdleMs()), number(x.GetFirstOutstanding()),
			number(x.GetAnswers()), number(x.GetAnswerBytes())})
	}
	if a.output == "json" {
		return a.json(fields{"clients": list})
	}
	return a.table("ID NAME TTL IDLE FIRST-OUTSTANDING ANSWERS BYTES", rows)
}

var memberCommand = &command{
	name: "member", args: "list | transfer-leader", summary: "List the members, or hand leadership to another voter.",
	examples: "kvclient member list\nkvclient member transfer-leader --to n2\n", minArgs: 1, maxArgs: 1,
	prepare: func(fs *pflag.FlagSet) runner {
		to := fs.String("to", "", "id of the voter that shall lead; the one that is most up to date if not given")
		return func(ctx context.Context, a *app, args []string) error {
			switch args[0] {
			case "list":
				return a.memberList(ctx)
			case "transfer-leader":
				return a.transferLeader(ctx, *to)
			}
			return usagef("kvclient member has no command %q", args[0])
		}
	},
}

func (a *app) memberList(ctx context.Context) error {
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		members := membersOf(survey(ctx, c, a.endpoints))
		if members == nil {
			return &exitError{exitUnavailable, "no node answers"}
		}
		list, rows := []fields{}, [][]string{}
		for _, m := range members {
			list = append(list, fields{"id": m.GetId(), "voter": m.GetVoter(), "raft": m.GetRaftAddress(), "client": m.GetClientAddress(),
				"http": m.GetHttpAddress(), "version": m.GetVersion()})
			rows = append(rows, []string{m.GetId(), strconv.FormatBool(m.GetVoter()), m.GetRaftAddress(), m.GetClientAddress(), m.GetHttpAddress(), m.GetVersion()})
		}
		if a.output == "json" {
			return a.json(fields{"members": list})
		}
		return a.table("ID VOTER RAFT CLIENT HTTP VERSION", rows)
	})
}

// membersOf takes the list of the node that has applied most.
func membersOf(all []nodeStatus) (members []*kvoncev1.Member) {
	var newest uint64
	for _, s := range all {
		if list := s.answer.GetMembers(); len(list) > 0 && s.answer.GetAppliedIndex() >= newest {
			members, newest = list, s.answer.GetAppliedIndex()
		}
	}
	return members
}

func (a *app) transferLeader(ctx context.Context, to string) error {
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		l, err := c.TransferLeader(ctx, to)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return a.json(fields{"leader": l.GetNodeId()})
		}
		a.printf("%s\n", cmp.Or(l.GetNodeId(), "OK"))
		return nil
	})
}

var settingsCommand = &command{
	name: "settings", args: "[list | set NAME=VALUE ...]", summary: "Show or change the replicated settings.",
	examples: "kvclient settings\nkvclient settings set max_value_bytes=2097152\n", minArgs: 0, maxArgs: -1,
	prepare: noFlags(func(ctx context.Context, a *app, args []string) error {
		switch {
		case len(args) == 0 || len(args) == 1 && args[0] == "list":
			return a.settings(ctx)
		case args[0] == "set" && len(args) > 1:
			return a.setSettings(ctx, args[1:])
		}
		return usagef("kvclient settings takes list, or set with NAME=VALUE")
	}),
}

func (a *app) settings(ctx context.Context) error {
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		all, err := c.Settings(ctx)
		if err != nil {
			return err
		}
		list, rows := []fields{}, [][]string{}
		for _, s := range all {
			list = append(list, fields{"name": s.GetName(), "value": s.GetValue(), "default": s.GetDefaultValue(), "min": s.GetMin(), "max": s.GetMax(),
				"unit": s.GetUnit(), "description": s.GetDescription()})
			rows = append(rows, []string{s.GetName(), number(s.GetValue()), number(s.GetDefaultValue()), number(s.GetMin()), number(s.GetMax()), s.GetUnit(), s.GetDescription()})
		}
		if a.output == "json" {
			return a.json(fields{"settings": list})
		}
		return a.table("NAME VALUE DEFAULT MIN MAX UNIT DESCRIPTION", rows)
	})
}

func (a *app) setSettings(ctx context.Context, args []string) error {
	changes := map[string]uint64{}
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		value, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil {
			return usagef("%q isn't NAME=VALUE with a whole number", arg)
		}
		changes[name] = value
	}
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		m, err := c.SetSettings(ctx, changes)
		if err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		return a.answer("OK\n", fields{}, m)
	})
}
