package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settleTimeout is how long servers may take to agree.
const settleTimeout = 30 * time.Second

// MasterName is the name under which a SentinelSet watches its primary.
const MasterName = "headgate"

// SentinelSet is a primary with two replicas, and three sentinels that watch them.
type SentinelSet struct {
	// Primary is the primary at the start; after a failover see PrimaryAddr.
	Primary   *Server
	Replicas  []*Server
	Sentinels []*Server

	t testing.TB
}

// Sentinel starts a SentinelSet and returns when all are linked and agree. Its
// sentinels count a server as failed after half a second without an answer. args are
// extra options for the primary and the replicas.
func Sentinel(t testing.TB, args ...string) *SentinelSet {
	t.Helper()
	set := &SentinelSet{t: t, Primary: Standalone(t, args...)}
	for range 2 {
		follow := append([]string{"--replicaof", fmt.Sprintf("127.0.0.1 %d", set.Primary.Port)}, args...)
		set.Replicas = append(set.Replicas, Standalone(t, follow...))
	}
	for range 3 {
		set.Sentinels = append(set.Sentinels, start(t, Bin(t), set.sentinelOptions))
	}
	settle(t, "sentinel set", set.healthy)
	return set
}

// sentinelOptions writes a sentinel's file, which the sentinel later rewrites.
func (set *SentinelSet) sentinelOptions(s *Server) []string {
	set.t.Helper()
	file := filepath.Join(s.Dir, "sentinel.conf")
	lines := []string{
		fmt.Sprintf("port %d", s.Port), "bind 127.0.0.1", "dir " + s.Dir,
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, set.Primary.Port),
		"sentinel down-after-milliseconds " + MasterName + " 500",
		"sentinel failover-timeout " + MasterName + " 3000",
		"sentinel parallel-syncs " + MasterName + " 2",
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		set.t.Fatalf("redistest: %v", err)
	}
	return []string{file, "--sentinel"}
}

// healthy returns nil if the replicas are linked and every sentinel sees all servers.
func (set *SentinelSet) healthy() error {
	if err := linked(set.Replicas); err != nil {
		return err
	}
	for _, s := range set.Sentinels {
		reply, err := s.Command("SENTINEL", "MASTER", MasterName)
		if err != nil {
			return err
		}
		fields := pairs(reply)
		if fields["num-slaves"] != "2" || fields["num-other-sentinels"] != "2" || fields["flags"] != "master" {
			return fmt.Errorf("sentinel %s sees %s replicas, %s other sentinels, flags %s",
				s.Addr, fields["num-slaves"], fields["num-other-sentinels"], fields["flags"])
		}
	}
	return nil
}

// Addrs returns the addresses of the sentinels.
func (set *SentinelSet) Addrs() []string { return addrs(set.Sentinels) }

// PrimaryAddr returns the address of the current primary according to the first
// sentinel.
func (set *SentinelSet) PrimaryAddr() string {
	set.t.Helper()
	return strings.ReplaceAll(set.Sentinels[0].Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName), "\n", ":")
}

// Epoch returns the number of the newest configuration that a sentinel knows. Each fail-over
// has another, also one that nobody asked for, because a busy machine had no time for a
// server or a sentinel.
func (set *SentinelSet) Epoch() (newest int) {
	for _, s := range set.Sentinels {
		if reply, err := s.Command("SENTINEL", "MASTER", MasterName); err == nil {
			epoch, _ := strconv.Atoi(pairs(reply)["config-epoch"])
			newest = max(newest, epoch)
		}
	}
	return newest
}

// KillPrimary kills the first primary. AwaitFailover waits for the new one.
func (set *SentinelSet) KillPrimary() { set.Primary.Kill() }

// AwaitFailover returns the new primary once every sentinel knows it and it
// accepts writes.
func (set *SentinelSet) AwaitFailover() *Server {
	set.t.Helper()
	var next *Server
	settle(set.t, "failover", func() error {
		for _, r := range set.Replicas {
			if info, err := r.Command("INFO", "replication"); err == nil && strings.Contains(text(info), "role:master") {
				next = r
			}
		}
		if next == nil {
			return errors.New("no replica has been promoted")
		}
		for _, s := range set.Sentinels {
			reply, err := s.Command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
			if err != nil {
				return err
			}
			if at := strings.ReplaceAll(text(reply), "\n", ":"); at != next.Addr {
				return fmt.Errorf("sentinel %s still names %s", s.Addr, at)
			}
		}
		return nil
	})
	return next
}

// linked returns nil if every running replica is linked to its primary.
func linked(replicas []*Server) error {
	for _, r := range replicas {
		info, err := r.Command("INFO", "replication")
		if err != nil {
			return err
		}
		if !strings.Contains(text(info), "master_link_status:up") {
			return fmt.Errorf("replica %s has no link", r.Addr)
		}
	}
	return nil
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr
	}
	return list
}

// pairs reads a flat list of names and values.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[text(list[i])] = text(list[i+1])
	}
	return m
}
