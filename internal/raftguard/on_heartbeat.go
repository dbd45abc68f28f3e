//go:build !broken_raftguard_heartbeat

package raftguard

const offHeartbeat = false
