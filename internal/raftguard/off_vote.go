//go:build broken_raftguard_vote

package raftguard

const offVote = true
