package fsm

import (
	"fmt"

	"github.com/kvonce/kvonce/internal/canon"
	"github.com/kvonce/kvonce/registry"
)

// Setting numbers a replicated setting. The numbers are part of the log and snapshot format.
type Setting int

// The settings.
const (
	MaxKeyBytes Setting = iota
	MaxValueBytes
	MaxTxnOps
	MaxRequestBytes
	ClientAnswerBytes
	TotalAnswerBytes
	Window
	MaxClients
	ClientTTL
	ClientTTLMin
	ClientTTLMax
	TombstoneSpan
	MaxTombstones
	RemovalsPerEntry
	KeySpaceBytes
	PageKeys
	PageBytes
	numSettings
)

// SettingInfo describes a setting. Values outside Min and Max are refused; Max is a hard ceiling that fits the wire.
type SettingInfo struct {
	Name              string
	Default, Min, Max uint64
	Unit, Description string
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30

	second = 1000
	minute = 60 * second
	hour   = 60 * minute
)

var settingInfos = [numSettings]SettingInfo{
	MaxKeyBytes:       {"max_key_bytes", 4 * kib, 16, 64 * kib, "bytes", "longest key"},
	MaxValueBytes:     {"max_value_bytes", 1 * mib, 16, 4 * mib, "bytes", "largest value"},
	MaxTxnOps:         {"max_txn_ops", 128, 1, 1024, "count", "operations in each part of a transaction"},
	MaxRequestBytes:   {"max_request_bytes", 3 * mib / 2, 1 * kib, 6 * mib, "bytes", "largest command"},
	ClientAnswerBytes: {"client_answer_bytes", 8 * mib, 64 * kib, 16 * mib, "bytes", "answers held for one client"},
	TotalAnswerBytes:  {"total_answer_bytes", 1 * gib, 1 * mib, 64 * gib, "bytes", "answers held for all clients"},
	Window:            {"window", 1024, 1, registry.MaxWindow, "count", "how far a sequence may lie ahead of the first outstanding one; for clients that register from now on"},
	MaxClients:        {"max_clients", 1_000_000, 1, 16_000_000, "count", "registered clients"},
	ClientTTL:         {"client_ttl_ms", 5 * minute, 1 * second, 24 * hour, "milliseconds", "time to live of a client that asks for none"},
	ClientTTLMin:      {"client_ttl_min_ms", 5 * second, 1 * second, 24 * hour, "milliseconds", "shortest time to live a client may ask for"},
	ClientTTLMax:      {"client_ttl_max_ms", 24 * hour, 1 * second, 30 * 24 * hour, "milliseconds", "longest time to live a client may ask for"},
	TombstoneSpan:     {"tombstone_span_ms", 24 * hour, 1 * second, 365 * 24 * hour, "milliseconds", "how long the verdicts of an expired client are kept"},
	MaxTombstones:     {"max_tombstones", 1_000_000, 0, 16_000_000, "count", "expired clients whose verdicts are kept; the oldest go first"},
	RemovalsPerEntry:  {"removals_per_entry", 1000, 1, 100_000, "count", "expired items removed by one log entry"},
	KeySpaceBytes:     {"key_space_bytes", 8 * gib, 1 * mib, 1024 * gib, "bytes", "keys, values and overhead; writes that grow it are refused above"},
	PageKeys:          {"page_keys", 1000, 1, 100_000, "count", "keys in a page of a range"},
	PageBytes:         {"page_bytes", 1 * mib, 1 * kib, 8 * mib, "bytes", "size of a page of a range; it always holds one key"},
}

// Settings is a value for every setting.
type Settings [numSettings]uint64

// DefaultSettings returns the values that a new cluster gets unless it is told otherwise.
func DefaultSettings() (s Settings) {
	for i := range settingInfos {
		s[i] = settingInfos[i].Default
	}
	return s
}

// SettingInfos describes all settings in the order of their numbers.
func SettingInfos() []SettingInfo { return append([]SettingInfo(nil), settingInfos[:]...) }

// SettingByName finds a setting.
func SettingByName(name string) (Setting, bool) {
	for i := range settingInfos {
		if settingInfos[i].Name == name {
			return Setting(i), true
		}
	}
	return 0, false
}

// Change is a new value for a setting.
type Change struct {
	Setting Setting
	Value   uint64
}

// SettingError says which setting has a value that it can't have.
type SettingError struct {
	Name, Reason string
}

func (e *SettingError) Error() string { return e.Name + " " + e.Reason }

// With returns the settings with changes made, or what is wrong with the result.
func (s Settings) With(changes ...Change) (Settings, *SettingError) {
	for _, c := range changes {
		if c.Setting < 0 || c.Setting >= numSettings {
			return s, &SettingError{fmt.Sprintf("setting %d", c.Setting), "is unknown"}
		}
		s[c.Setting] = c.Value
	}
	return s, s.check()
}

func (s Settings) check() *SettingError {
	for i, v := range s {
		if d := settingInfos[i]; v < d.Min || v > d.Max {
			return &SettingError{d.Name, fmt.Sprintf("is %d, must be %d to %d %s", v, d.Min, d.Max, d.Unit)}
		}
	}
	if s[ClientTTLMin] > s[ClientTTL] || s[ClientTTL] > s[ClientTTLMax] {
		return &SettingError{settingInfos[ClientTTL].Name, fmt.Sprintf(
			"is %d, must lie between client_ttl_min_ms (%d) and client_ttl_max_ms (%d)", s[ClientTTL], s[ClientTTLMin], s[ClientTTLMax])}
	}
	return nil
}

func (s *Settings) limits() registry.Limits {
	return registry.Limits{
		MaxClients: s[MaxClients], Window: s[Window],
		DefaultTTL: s[ClientTTL], MinTTL: s[ClientTTLMin], MaxTTL: s[ClientTTLMax],
		ClientAnswerBytes: s[ClientAnswerBytes], TotalAnswerBytes: s[TotalAnswerBytes],
		TombstoneSpan: s[TombstoneSpan], MaxTombstones: s[MaxTombstones],
	}
}

func (s *Settings) append(b []byte) []byte {
	b = canon.AppendUint(b, uint64(len(s)))
	for _, v := range s {
		b = canon.AppendUint(b, v)
	}
	return b
}

// decodeSettings demands a value for every setting: a default that was compiled into one node must not decide.
func decodeSettings(r *canon.Reader) (s Settings) {
	if n := r.Uint(); n != uint64(len(s)) && r.Err() == nil {
		r.Fail(fmt.Errorf("%d settings, want %d", n, len(s)))
	}
	for i := range s {
		s[i] = r.Uint()
	}
	return s
}
