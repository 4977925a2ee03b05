package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Slots is the number of hash slots of a cluster.
const Slots = 16384

// primaries is how many nodes of a ClusterSet have slots.
const primaries = 3

// ClusterSet is a cluster of three primaries, each with one replica.
type ClusterSet struct {
	Primaries []*Server // each has a third of the slots, in order
	Replicas  []*Server // Replicas[i] follows Primaries[i]

	t testing.TB
}

// Cluster starts a ClusterSet and returns when every node reports the cluster healthy
// and every replica is linked: before that, a failover may never happen. Nodes count as
// failed after a second without an answer. args are extra options for every node.
func Cluster(t testing.TB, args ...string) *ClusterSet {
	t.Helper()
	set := &ClusterSet{t: t}
	for i := range 2 * primaries {
		node := start(t, Bin(t), func(s *Server) []string {
			return append(append(s.defaults(),
				"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
				"--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0"), args...)
		})
		if i < primaries {
			set.Primaries = append(set.Primaries, node)
		} else {
			set.Replicas = append(set.Replicas, node)
		}
	}
	set.assemble()
	return set
}

// assemble joins the nodes into a cluster.
func (set *ClusterSet) assemble() {
	set.t.Helper()
	all := set.all()
	for i, p := range set.Primaries {
		lo, hi := i*Slots/primaries, (i+1)*Slots/primaries-1
		p.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(lo), strconv.Itoa(hi))
	}
	for i, node := range all {
		node.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, node := range all[1:] {
		all[0].Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(node.Port))
	}
	for i, r := range set.Replicas {
		id := set.Primaries[i].Do("CLUSTER", "MYID")
		settle(set.t, "cluster", func() error { // until r has heard of its primary by gossip
			_, err := r.Command("CLUSTER", "REPLICATE", id)
			return err
		})
	}
	set.AwaitHealthy()
}

func (set *ClusterSet) all() []*Server {
	return append(append([]*Server(nil), set.Primaries...), set.Replicas...)
}

// Addrs returns the addresses of all nodes, primaries first.
func (set *ClusterSet) Addrs() []string { return addrs(set.all()) }

// AwaitHealthy waits until every running node reports the cluster healthy and complete,
// and every replica is linked.
func (set *ClusterSet) AwaitHealthy() {
	set.t.Helper()
	settle(set.t, "cluster", func() error {
		for _, node := range set.all() {
			if err := nodeHealthy(node, 2*primaries); err != nil {
				return err
			}
		}
		return linked(set.Replicas)
	})
}

func nodeHealthy(node *Server, known int) error {
	reply, err := node.Command("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(Slots),
		"cluster_known_nodes:" + strconv.Itoa(known), "cluster_size:" + strconv.Itoa(primaries),
	} {
		if !strings.Contains(text(reply), want+"\r\n") {
			return fmt.Errorf("node %s lacks %s:\n%s", node.Addr, want, text(reply))
		}
	}
	return nil
}

// KillPrimary kills the node that was primary i at the start.
func (set *ClusterSet) KillPrimary(i int) { set.Primaries[i].Kill() }

// AwaitFailover waits until the replica of primary i, which was killed, has taken over
// and all running nodes report the cluster healthy.
func (set *ClusterSet) AwaitFailover(i int) *Server {
	set.t.Helper()
	next := set.Replicas[i]
	settle(set.t, "cluster failover", func() error {
		info, err := next.Command("INFO", "replication")
		if err != nil {
			return err
		}
		if !strings.Contains(text(info), "role:master") {
			return errors.New("the replica has not been promoted")
		}
		for _, node := range set.all() {
			if node == set.Primaries[i] {
				continue
			}
			if err := nodeHealthy(node, 2*primaries); err != nil {
				return err
			}
		}
		return nil
	})
	return next
}

// Slot returns the slot of a key.
func (set *ClusterSet) Slot(key string) int {
	set.t.Helper()
	slot, err := strconv.Atoi(set.Primaries[0].Do("CLUSTER", "KEYSLOT", key))
	if err != nil {
		set.t.Fatalf("redistest: slot of %q: %v", key, err)
	}
	return slot
}

// MoveSlot moves a slot with its keys from one primary to another, key by key, as
// resharding does, so that clients get ASK and then MOVED. during, if not nil, is
// called when the slot is open on both sides and no key has been moved yet.
func (set *ClusterSet) MoveSlot(slot int, from, to *Server, during func()) {
	set.t.Helper()
	number := strconv.Itoa(slot)
	fromID, toID := from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", number, "IMPORTING", fromID)
	from.Do("CLUSTER", "SETSLOT", number, "MIGRATING", toID)
	if during != nil {
		during()
	}
	for {
		reply, err := from.Command("CLUSTER", "GETKEYSINSLOT", number, "10")
		if err != nil {
			set.t.Fatalf("redistest: %v", err)
		}
		keys, _ := reply.([]any) // opaque bytes, may contain newlines
		if len(keys) == 0 {
			break
		}
		migrate := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), "", "0", "5000", "KEYS"}
		for _, k := range keys {
			migrate = append(migrate, text(k))
		}
		from.Do(migrate...)
	}
	to.Do("CLUSTER", "SETSLOT", number, "NODE", toID)
	from.Do("CLUSTER", "SETSLOT", number, "NODE", toID)
	for _, p := range set.Primaries {
		if p != from && p != to {
			p.Do("CLUSTER", "SETSLOT", number, "NODE", toID)
		}
	}
}
