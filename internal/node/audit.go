package node

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/kvonce/kvonce/fsm"
)

const (
	// auditEvery is how often the leader compares digests, when anything has changed.
	auditEvery = 5 * time.Second
	// auditTimeout bounds asking all voters.
	auditTimeout = time.Second
	// rememberedDigests is for how many entries a node can say what its digest was.
	rememberedDigests = 4096
)

// digests remembers the digest of the state after each of the last entries.
type digests struct {
	mu     sync.Mutex
	ring   [rememberedDigests]struct{ index, sum uint64 }
	change uint64 // the newest entry that isn't a mere claim
}

func (d *digests) add(index, sum uint64, claim bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[index%rememberedDigests] = struct{ index, sum uint64 }{index, sum}
	if !claim {
		d.change = index
	}
}

// clear forgets what was: another state has taken its place.
func (d *digests) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.ring[:])
}

// at returns the digest after an entry, if it is remembered.
func (d *digests) at(index uint64) (sum uint64, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.ring[index%rememberedDigests]
	return e.sum, e.index == index && index != 0
}

// changed returns the newest entry that isn't a mere claim.
func (d *digests) changed() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.change
}

// audit compares the digests of the voters, for the leader.
type audit struct {
	self          raft.ServerID
	configuration func() raft.Configuration
	machine       *machine
	remotes       remoteNodes
	log           *slog.Logger
	last          uint64    // the entry that was claimed last
	asked         time.Time // when the voters were asked last
	alarms        atomic.Uint64
}

// claim returns what a majority of the voters says about an entry that is new since the last claim. When there are
// answers but no majority for one digest, nobody can tell who is right: that is an alarm, and no claim.
func (a *audit) claim(ctx context.Context) (c fsm.Claim, ok bool) {
	index := a.machine.digests.changed()
	if index == 0 || index == a.last || time.Since(a.asked) < auditEvery {
		return c, false
	}
	a.asked = time.Now()
	reports, voters := a.ask(ctx, index)
	counts := map[uint64]int{}
	for _, sum := range reports {
		counts[sum]++
		if counts[sum] > voters/2 {
			a.last = index
			return fsm.Claim{Index: index, Sum: sum, Scheme: fsm.DigestScheme}, true
		}
	}
	if len(reports) > voters/2 {
		a.alarms.Add(1)
		a.log.Error("ALARM: the voters have different states and no majority agrees", "index", index, "digests", reports)
	}
	return c, false
}

// ask returns the digests that voters report for an entry, this node's included, and how many voters there are.
func (a *audit) ask(ctx context.Context, index uint64) (reports []uint64, voters int) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	view := a.machine.View()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range a.configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		wg.Go(func() {
			if sum, known := a.digestOf(ctx, view, s.ID, index); known {
				mu.Lock()
				defer mu.Unlock()
				reports = append(reports, sum)
			}
		})
	}
	wg.Wait()
	return reports, voters
}

func (a *audit) digestOf(ctx context.Context, view *fsm.State, id raft.ServerID, index uint64) (uint64, bool) {
	if id == a.self {
		return a.machine.digests.at(index)
	}
	n, ok := view.Node(string(id))
	if !ok {
		return 0, false
	}
	return a.remotes.digest(ctx, n.ClientAddress, index)
}
