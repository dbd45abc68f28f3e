package fsm

import "github.com/kvonce/kvonce/registry"

// due is an item of any kind that can expire. Removal goes in order of (deadline, kind, id).
type due struct {
	registry.Due
	key string // the id of a key
}

// nextDue returns the item with the lowest deadline.
func (s *State) nextDue() (next due, ok bool) {
	client, ok := s.clients.NextDue(s.settings.limits())
	k, okKey := s.keys.due.Min()
	// Every kind of the registry is lower than that of keys, so that equal deadlines are the registry's.
	if okKey && (!ok || k.deadline < client.Deadline) {
		return due{registry.Due{Deadline: k.deadline, Kind: kindKey}, k.key}, true
	}
	return due{client, ""}, ok
}

// removeDue removes what is due, at most as many items as the settings allow for one entry; the rest waits for the
// next one. A batch of keys is one revision.
func (s *State) removeDue() {
	budget := s.settings[RemovalsPerEntry]
	for budget > 0 {
		next, ok := s.nextDue()
		if !ok || next.Deadline > s.time {
			break
		}
		if next.Kind == kindKey {
			s.keys.remove(next.key)
		} else {
			s.clients.RemoveDue(next.Due, s.time)
		}
		budget--
	}
	s.keys.keep()
	s.clients.DropExcess(s.settings.limits(), budget)
}
