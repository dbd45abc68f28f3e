package raftguard

// Guards that builds which test the tests can switch off, one at a time, by the build tags of the files beside this one.
const (
	guardHeartbeat = !offHeartbeat
	guardPipeline  = !offPipeline
	guardClamp     = !offClamp
	guardVote      = !offVote
	guardStall     = !offStall
	guardSnapshot  = !offSnapshot
	guardTransfer  = !offTransfer
)
