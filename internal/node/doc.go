// Package node makes a kvonce node out of the state machine: raft, disk, clocks, and the requests of clients.
//
// It is the only package that knows any of these. A request enters through the Backend (backend.go), is put into
// the log by the proposer (propose.go) if it changes anything, or waits for a proof of leadership (read.go) if it
// doesn't; the machine (machine.go) applies the log and publishes a view of the state after each batch.
package node
