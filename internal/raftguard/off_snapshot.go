//go:build broken_raftguard_snapshot

package raftguard

const offSnapshot = true
