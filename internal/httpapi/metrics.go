package httpapi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvonce/kvonce/internal/node"
)

// metric is one number of a node.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*node.Stats) float64
}

func gauge(name, help string, value func(*node.Stats) float64) metric {
	return metric{prometheus.NewDesc("kvonce_"+name, help, nil, nil), prometheus.GaugeValue, value}
}

func counter(name, help string, value func(*node.Stats) float64) metric {
	return metric{prometheus.NewDesc("kvonce_"+name+"_total", help, nil, nil), prometheus.CounterValue, value}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var metrics = []metric{
	gauge("started", "1 once the node is part of a cluster.", func(s *node.Stats) float64 { return flag(s.Started) }),
	gauge("leader", "1 while this node leads.", func(s *node.Stats) float64 { return flag(s.Leader) }),
	gauge("term", "Raft term.", func(s *node.Stats) float64 { return float64(s.Term) }),
	gauge("commit_index", "Last entry known to be committed.", func(s *node.Stats) float64 { return float64(s.CommitIndex) }),
	gauge("applied_index", "Last command the state machine has applied.", func(s *node.Stats) float64 { return float64(s.AppliedIndex) }),
	gauge("last_log_index", "Last entry in the log.", func(s *node.Stats) float64 { return float64(s.LastLogIndex) }),
	gauge("revision", "Changes to the key space.", func(s *node.Stats) float64 { return float64(s.Revision) }),
	gauge("keys", "Keys stored.", func(s *node.Stats) float64 { return float64(s.Keys) }),
	gauge("key_space_bytes", "Size of the key space as it counts against its limit.", func(s *node.Stats) float64 { return float64(s.KeySpaceBytes) }),
	gauge("clients", "Registered clients.", func(s *node.Stats) float64 { return float64(s.Clients) }),
	gauge("tombstones", "Expired clients whose verdicts are kept.", func(s *node.Stats) float64 { return float64(s.Tombstones) }),
	gauge("answers", "Stored answers.", func(s *node.Stats) float64 { return float64(s.Answers) }),
	gauge("answer_bytes", "Stored answers as they count against their cap.", func(s *node.Stats) float64 { return float64(s.AnswerBytes) }),
	gauge("proposals_queued", "Proposals that wait for an entry.", func(s *node.Stats) float64 { return float64(s.Queued) }),
	gauge("cluster_time_seconds", "Cluster time.", func(s *node.Stats) float64 { return s.ClusterTime.Seconds() }),
	gauge("last_disk_write_seconds", "How long the last write to the log took.", func(s *node.Stats) float64 { return s.LastDiskWrite.Seconds() }),
	counter("replayed", "Requests answered with the answer of an earlier copy.", func(s *node.Stats) float64 { return float64(s.Replayed) }),
	counter("proposals", "Requests put into the log by this node.", func(s *node.Stats) float64 { return float64(s.Proposals) }),
	counter("entries", "Log entries proposed by this node.", func(s *node.Stats) float64 { return float64(s.Entries) }),
	counter("proposals_refused", "Requests that raft refused before it took them.", func(s *node.Stats) float64 { return float64(s.Refusals) }),
	counter("proposals_unknown", "Requests whose outcome this node could not learn.", func(s *node.Stats) float64 { return float64(s.Unknown) }),
	counter("reads", "Linearizable reads.", func(s *node.Stats) float64 { return float64(s.Reads) }),
	counter("read_rounds", "Proofs of leadership or indexes asked for, each shared by the reads that waited.", func(s *node.Stats) float64 { return float64(s.ReadRounds) }),
	counter("digest_alarms", "Times the voters had different states and no majority agreed.", func(s *node.Stats) float64 { return float64(s.DigestAlarms) }),
}

// collector reads the numbers of a node when they are asked for.
type collector struct{ node Node }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.node.Stats()
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s))
	}
}
