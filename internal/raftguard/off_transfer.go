//go:build broken_raftguard_transfer

package raftguard

const offTransfer = true
