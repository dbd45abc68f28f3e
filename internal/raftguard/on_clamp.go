//go:build !broken_raftguard_clamp

package raftguard

const offClamp = false
