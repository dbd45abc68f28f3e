package raftguard

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

// Raft's own keys for a vote, and the one under which VoteStore keeps both.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
	keyVote          = "kvonce.LastVote"
)

// VoteStore writes the term and the candidate of a vote as one value (#661). Raft writes the term first; VoteStore
// holds it back until the candidate comes, so that a crash between the two leaves the vote before.
type VoteStore struct {
	raft.StableStore

	mu   sync.Mutex
	term *uint64 // of the vote that is being written; nil between votes
}

// errNoTerm says that a candidate was stored without its term, which raft never does.
var errNoTerm = errors.New("vote without a term")

// NewVoteStore wraps a store. Votes that were written without VoteStore are still read.
func NewVoteStore(inner raft.StableStore) *VoteStore { return &VoteStore{StableStore: inner} }

// SetUint64 implements raft.StableStore.
func (s *VoteStore) SetUint64(key []byte, v uint64) error {
	if !guardVote || string(key) != keyVoteTerm {
		return s.StableStore.SetUint64(key, v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term = &v
	return nil
}

// Set implements raft.StableStore.
func (s *VoteStore) Set(key, v []byte) error {
	if !guardVote || string(key) != keyVoteCandidate {
		return s.StableStore.Set(key, v)
	}
	s.mu.Lock()
	term := s.term
	s.term = nil
	s.mu.Unlock()
	if term == nil {
		return errNoTerm
	}
	return s.StableStore.Set([]byte(keyVote), append(binary.BigEndian.AppendUint64(nil, *term), v...))
}

// GetUint64 implements raft.StableStore. A missing key is the inner store's "not found", whose text raft compares.
func (s *VoteStore) GetUint64(key []byte) (uint64, error) {
	if string(key) == keyVoteTerm {
		if v, ok, err := s.vote(); ok || err != nil {
			return binary.BigEndian.Uint64(v), err
		}
	}
	return s.StableStore.GetUint64(key)
}

// Get implements raft.StableStore.
func (s *VoteStore) Get(key []byte) ([]byte, error) {
	if string(key) == keyVoteCandidate {
		if v, ok, err := s.vote(); ok || err != nil {
			return v[8:], err
		}
	}
	return s.StableStore.Get(key)
}

// vote reads the one value; ok is false when there is none. Its value always has 8 bytes. Stores say "not found" by
// that text alone, and raft compares it too.
func (s *VoteStore) vote() (v []byte, ok bool, err error) {
	none := make([]byte, 8)
	v, err = s.StableStore.Get([]byte(keyVote))
	switch {
	case !guardVote, err != nil && err.Error() == "not found", err == nil && len(v) == 0:
		return none, false, nil
	case err != nil:
		return none, false, err
	case len(v) < 8:
		return none, false, errors.New("the stored vote is damaged")
	}
	return v, true, nil
}
