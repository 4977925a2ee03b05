package redis_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// homeACL is the user that docs/many/regions-home.md tells operators to create for a region whose
// limits another one counts.
const homeACL = "on >secret resetkeys ~hg:{[^%]* ~hg:{%[h027]* resetchannels -@all +evalsha +eval +get +set +getrange +setrange +pttl +pexpire +pexpireat +pexpiretime +del +time +ping +hello"

// TestUserOfAHome: the user in docs/many/regions-home.md may count with every algorithm, kind
// and form of key, in every topology, and do nothing else.
func TestUserOfAHome(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/many/regions-home.md")
	if err != nil || !strings.Contains(string(text), "    ACL SETUSER headgate-us "+homeACL+"\n") {
		t.Errorf("the docs have another user: %v", err)
	}
	setUser := func(more string, servers ...*redistest.Server) {
		for _, s := range servers {
			s.Do(append([]string{"ACL", "SETUSER", "headgate-us"}, strings.Fields(homeACL+more)...)...)
		}
	}
	for _, c := range []struct {
		name string
		open func(t *testing.T) redis.Options
	}{
		{"standalone", func(t *testing.T) redis.Options {
			s := redistest.Standalone(t)
			setUser("", s)
			return redis.Options{Addresses: []string{s.Addr}}
		}},
		{"key times", func(t *testing.T) redis.Options {
			s := redistest.Standalone(t)
			setUser(" +exists", s)
			return redis.Options{Addresses: []string{s.Addr}, KeyTimes: true}
		}},
		{"database", func(t *testing.T) redis.Options {
			s := redistest.Standalone(t)
			setUser(" +select", s)
			return redis.Options{Addresses: []string{s.Addr}, DB: 3}
		}},
		{"sentinel", func(t *testing.T) redis.Options {
			set := redistest.Sentinel(t)
			setUser(" +role", append(set.Replicas, set.Primary)...)
			return redis.Options{Addresses: set.Addrs(), Mode: redis.Sentinel, MasterName: redistest.MasterName}
		}},
		{"cluster", func(t *testing.T) redis.Options {
			set := redistest.Cluster(t)
			setUser(" +cluster|slots +cluster|shards +asking", append(set.Replicas, set.Primaries...)...)
			return redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.open(t)
			o.Username, o.Password, o.Timeout = "headgate-us", "secret", patient
			s := open(t, o)
			for end := time.Now().Add(10 * time.Second); s.Ping(t.Context()) != nil && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
			}
			mayCount(t, s)
			mayNotTouch(t, s)
		})
	}
}

func mayCount(t *testing.T, s *redis.Store) {
	t.Helper()
	limits := []headgate.Limit{headgate.PerCalendar(9, store.Day, nil), headgate.Concurrent(9), headgate.PerDay(9).WithAlgorithm(store.Distinct)}
	for _, a := range store.Algorithms() {
		limits = append(limits, headgate.PerDay(9).WithAlgorithm(a))
	}
	for _, key := range []string{"", "198.51.100.7", "100%", "}", "%tcontrol", strings.Repeat("long", 99)} {
		for _, l := range limits {
			for kind := store.KindTake; kind <= store.KindDraw; kind++ {
				op := store.Op{Key: key, Scope: "api/rule", Rule: l.Rule(), Cost: 1, Kind: kind, Member: 7, Duration: time.Second}
				if _, err := store.Execute(t.Context(), s, op); err != nil {
					t.Fatalf("%s of %q, %s: %v", kind, key, l, err)
				}
			}
			op := store.Op{Key: key, Scope: "api/rule", Rule: l.Rule(), Cost: 1, Member: 7}
			if _, err := store.KeyTimes(t.Context(), s, op); err != nil && !errors.Is(err, store.ErrNoKeyTimes) {
				t.Fatalf("the times of %q, %s: %v", key, l, err)
			}
		}
	}
}

func mayNotTouch(t *testing.T, s *redis.Store) {
	t.Helper()
	if _, err := s.Secrets().Known(context.Background()); !isRefused(err) {
		t.Errorf("it reads the secret of leases: %v", err)
	}
	if _, err := s.Memory(context.Background()); !isRefused(err) {
		t.Errorf("it reads INFO: %v", err)
	}
}

func isRefused(err error) bool {
	return errors.Is(err, store.ErrRefused) || err != nil && strings.Contains(err.Error(), "NOPERM")
}
