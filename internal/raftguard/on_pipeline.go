//go:build !broken_raftguard_pipeline

package raftguard

const offPipeline = false
