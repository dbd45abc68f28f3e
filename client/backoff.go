package client

import (
	"math/rand/v2"
	"time"
)

// backoff gives growing pauses with jitter, so that many clients don't come back in step.
type backoff struct{ base, most time.Duration }

// delay returns the pause before attempt n, counted from 0: between half and all of base doubled n times, at most
// most.
func (b backoff) delay(n int) time.Duration {
	d := b.most
	if n < 20 {
		d = min(b.base<<max(n, 0), b.most)
	}
	return d/2 + rand.N(d/2+1)
}
