package node

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/kvonce/kvonce/fsm"
	"github.com/kvonce/kvonce/transport/kvoncev1"
)

// Versions of what nodes say to each other.
const (
	helloProtocol = 1
	featureLevel  = 1
)

// peers says who this node is when it opens or accepts a connection, and judges who the others are. It implements
// transport.Hellos.
type peers struct {
	config *Config

	mu       sync.Mutex
	identity identity
	members  members // fixed at bootstrap; nil before it
	view     func() *fsm.State
	known    map[string]fsm.Node // what other nodes said of themselves
}

func newPeers(c *Config, id identity) *peers {
	return &peers{config: c, identity: id, known: map[string]fsm.Node{}, view: func() *fsm.State { return nil }}
}

// started tells what was fixed at bootstrap, and where the state is.
func (p *peers) started(id identity, m members, view func() *fsm.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identity, p.members, p.view = id, m, view
}

// clusterKnown tells the incarnation of the cluster.
func (p *peers) clusterKnown(id identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identity = id
}

// Local implements transport.Hellos.
func (p *peers) Local() *kvoncev1.PeerHello {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &kvoncev1.PeerHello{
		Protocol:          helloProtocol,
		ClusterName:       p.config.ClusterName,
		NodeId:            p.config.ID,
		FolderIncarnation: slices.Clone(p.identity.Folder[:]),
		ClientAddress:     p.config.AdvertiseClient,
		HttpAddress:       p.config.AdvertiseHTTP,
		Version:           p.config.Version,
		FeatureLevel:      featureLevel,
		Bootstrapped:      p.identity.Bootstrapped,
	}
	if p.identity.Cluster != (hexID{}) {
		h.ClusterIncarnation = slices.Clone(p.identity.Cluster[:])
	}
	for _, peer := range p.config.InitialCluster {
		h.InitialCluster = append(h.InitialCluster, &kvoncev1.PeerAddress{NodeId: peer.ID, RaftAddress: peer.RaftAddress})
		if folder, ok := p.members[peer.ID]; ok {
			h.Folders = append(h.Folders, &kvoncev1.PeerFolder{NodeId: peer.ID, FolderIncarnation: slices.Clone(folder[:])})
		}
	}
	return h
}

// Check implements transport.Hellos: it says why there must be no raft connection with a node.
func (p *peers) Check(h *kvoncev1.PeerHello) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var folder hexID
	copy(folder[:], h.GetFolderIncarnation())
	switch {
	case h.GetProtocol() != helloProtocol:
		return fmt.Errorf("node %s speaks protocol %d, this is %d", h.GetNodeId(), h.GetProtocol(), helloProtocol)
	case h.GetClusterName() != p.config.ClusterName:
		return fmt.Errorf("node %s belongs to cluster %q, this is %q", h.GetNodeId(), h.GetClusterName(), p.config.ClusterName)
	case h.GetNodeId() == p.config.ID:
		return fmt.Errorf("two nodes have the id %s", h.GetNodeId())
	case len(h.GetClusterIncarnation()) > 0 && p.identity.Cluster != (hexID{}) && string(h.GetClusterIncarnation()) != string(p.identity.Cluster[:]):
		return fmt.Errorf("node %s belongs to cluster %x, this is %x", h.GetNodeId(), h.GetClusterIncarnation(), p.identity.Cluster)
	}
	if want, ok := p.folderOf(h.GetNodeId()); ok && want != folder {
		return fmt.Errorf("node %s has another data folder than before: its disk was emptied or replaced, so it must not vote", h.GetNodeId())
	}
	return nil
}

// folderOf returns the folder incarnation that an id has for ever.
func (p *peers) folderOf(id string) (hexID, bool) {
	if folder, ok := p.members[id]; ok {
		return folder, true
	}
	if v := p.view(); v != nil {
		if n, ok := v.Node(id); ok {
			return hexID(n.Folder), true
		}
	}
	return hexID{}, false
}

// Learned implements transport.Hellos: a node said who it is.
func (p *peers) Learned(h *kvoncev1.PeerHello, _ string) {
	n := fsm.Node{ID: h.GetNodeId(), ClientAddress: h.GetClientAddress(), HTTPAddress: h.GetHttpAddress(),
		RaftAddress: p.raftAddress(h.GetNodeId()), Version: h.GetVersion(), FeatureLevel: uint64(h.GetFeatureLevel())}
	copy(n.Folder[:], h.GetFolderIncarnation())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[n.ID] = n
}

func (p *peers) raftAddress(id string) string {
	for _, peer := range p.config.InitialCluster {
		if peer.ID == id {
			return peer.RaftAddress
		}
	}
	return ""
}

// Records returns the node records that the state should have, this node's included, in order of id.
func (p *peers) Records() []fsm.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []fsm.Node{{ID: p.config.ID, Folder: fsm.Incarnation(p.identity.Folder), RaftAddress: p.config.AdvertiseRaft,
		ClientAddress: p.config.AdvertiseClient, HTTPAddress: p.config.AdvertiseHTTP, Version: p.config.Version, FeatureLevel: featureLevel}}
	for _, n := range p.known {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b fsm.Node) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
