// Package fsm is the replicated state machine: the key space, the client registry, the settings, the node records
// and cluster time, and the log entries that change them.
//
// It is pure. Apply takes a state and an entry and gives a state and results; nothing else decides: no clock, no
// flag, no map order, no random number, no compiled default. Time and identities are settled before an entry is
// proposed and travel in it; limits are settings in the state. Bytes that can't be understood give every node the
// same error value, never a panic.
package fsm
