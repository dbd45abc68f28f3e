//go:build !broken_raftguard_stall

package raftguard

const offStall = false
