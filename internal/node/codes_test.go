package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/registry"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Every verdict of the core has a code on the wire, and every code of the wire that a node says has its words.
func TestCodesAreMappedExhaustively(t *testing.T) {
	for c := registry.Invalid; c <= registry.ClientsFull; c++ {
		code, ok := registryCodes[c]
		require.True(t, ok, "registry code %d", c)
		require.NotEmpty(t, messages[code], code)
	}
	require.Len(t, registryCodes, int(registry.ClientsFull-registry.Invalid)+1)
	for f := fsm.NotANumber; f <= fsm.NotReady; f++ {
		code, ok := failureCodes[f]
		require.True(t, ok, "failure %d", f)
		require.NotEmpty(t, messages[code], code)
	}
	require.Len(t, failureCodes, int(fsm.NotReady))
	said := map[kvoncev1.Code]bool{kvoncev1.Code_OK: true, kvoncev1.Code_CODE_UNSPECIFIED: true,
		kvoncev1.Code_WRONG_CLUSTER: true, kvoncev1.Code_INVALID_ARGUMENT: true}
	for _, c := range registryCodes {
		said[c] = true
	}
	for _, c := range failureCodes {
		said[c] = true
	}
	for _, r := range refusals {
		said[r.code] = true
	}
	for n, name := range kvoncev1.Code_name {
		require.True(t, said[kvoncev1.Code(n)], "nobody says %s", name)
	}
}

// The numbers that are carried over without a table are the same on both sides.
func TestNumbersOfCoreAndWireAgree(t *testing.T) {
	for core, wire := range map[registry.Outcome]kvoncev1.Outcome{
		registry.Applied: kvoncev1.Outcome_APPLIED, registry.NotApplied: kvoncev1.Outcome_NOT_APPLIED,
		registry.Refused: kvoncev1.Outcome_REFUSED, registry.Unknown: kvoncev1.Outcome_UNKNOWN,
	} {
		require.Equal(t, wire, outcomeTo(core))
	}
	for core, wire := range map[fsm.Relation]kvoncev1.Compare_Relation{
		fsm.Equal: kvoncev1.Compare_EQUAL, fsm.NotEqual: kvoncev1.Compare_NOT_EQUAL,
		fsm.Less: kvoncev1.Compare_LESS, fsm.Greater: kvoncev1.Compare_GREATER,
	} {
		require.Equal(t, core, fsm.Relation(wire))
	}
}
