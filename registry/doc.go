// Package registry is the client registry: who has asked what, and what the answer was.
//
// It implements Unmesh Joshi's Idempotent Receiver (Patterns of Distributed Systems, chapter 15), with the session
// rules of Ongaro's thesis (section 6.3) made whole: a client is registered under an id from a replicated counter,
// every request has a sequence, and the answer to a request is kept until the client says it has it. A repeated
// request gets the stored answer instead of running again.
//
// The package is pure: its state changes only by the calls that the state machine makes while it applies a log
// entry, and everything that a decision depends on (cluster time, limits, log position) is an argument. Two
// registries that were given the same calls are equal.
//
// Everything sits in ordered copy-on-write tables. Records in them never change; Copy is O(1).
package registry
