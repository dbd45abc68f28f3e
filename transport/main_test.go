package transport

import (
	"testing"

	"go.uber.org/goleak"
)

// Every test stops what it starts: a goroutine that outlives the package's tests fails them.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
