package redis_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/redis"
)

// TestReaderOfOtherRegions: the user in docs/many/regions.md can read in every topology, with
// what the docs say that it needs more there.
func TestReaderOfOtherRegions(t *testing.T) {
	t.Parallel()
	own := redistest.Standalone(t)
	read := func(t *testing.T, o redis.Options) {
		t.Helper()
		o.Username, o.Password = "headgate-reader", "secret"
		ex, err := redis.NewExchange(redis.Options{Addresses: []string{own.Addr}}, map[string]redis.Options{"us": o})
		if err != nil {
			t.Fatal(err)
		}
		defer ex.Close()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if _, err = ex.Read(t.Context(), "us", ""); err == nil {
				return
			}
			if time.Now().After(end) || strings.Contains(err.Error(), "NOPERM") {
				t.Fatal(err)
			}
		}
	}
	setUser := func(more string, servers ...*redistest.Server) {
		for _, s := range servers {
			s.Do(append([]string{"ACL", "SETUSER", "headgate-reader"}, strings.Fields(readerACL+more)...)...)
		}
	}
	t.Run("standalone", func(t *testing.T) {
		s := redistest.Standalone(t)
		setUser("", s)
		read(t, redis.Options{Addresses: []string{s.Addr}})
	})
	t.Run("database", func(t *testing.T) {
		s := redistest.Standalone(t)
		setUser(" +select", s)
		read(t, redis.Options{Addresses: []string{s.Addr}, DB: 3})
	})
	t.Run("sentinel", func(t *testing.T) {
		set := redistest.Sentinel(t)
		setUser(" +role", append(set.Replicas, set.Primary)...)
		read(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Sentinel, MasterName: redistest.MasterName})
	})
	t.Run("cluster", func(t *testing.T) {
		set := redistest.Cluster(t)
		setUser(" +cluster|slots +cluster|shards", append(set.Replicas, set.Primaries...)...)
		read(t, redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster})
		ex, err := redis.NewExchange(redis.Options{Addresses: set.Addrs(), Mode: redis.Cluster}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ex.Close()
		for range 5 { // it connects
			if err = ex.Publish(t.Context(), []byte("m")); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("Publish: %v", err)
		}
		if is, err := ex.Lead(t.Context(), time.Second); err != nil || !is.Leads {
			t.Errorf("Lead: %+v, %v", is, err)
		}
	})
}

// TestOwnUserShares: the user in docs/run/redis.md may do what an Exchange does in the
// region's own Redis.
func TestOwnUserShares(t *testing.T) {
	s := redistest.Standalone(t)
	const user = "on >secret resetkeys ~hg:* resetchannels -@all +evalsha +eval +get +set +getrange +setrange +pttl +pexpire +pexpireat +pexpiretime +del +time +ping +hello +auth +client +@hash +@sortedset +persist +xadd"
	s.Do(append([]string{"ACL", "SETUSER", "headgate"}, strings.Fields(user)...)...)
	ex, err := redis.NewExchange(redis.Options{Addresses: []string{s.Addr}, Username: "headgate", Password: "secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	if is, err := ex.Lead(t.Context(), time.Second); err != nil || !is.Leads {
		t.Errorf("Lead: %+v, %v", is, err)
	}
	if err := ex.Saw(t.Context(), "us", time.Now()); err != nil {
		t.Errorf("Saw: %v", err)
	}
	if err := ex.Publish(t.Context(), []byte("m")); err != nil {
		t.Errorf("Publish: %v", err)
	}
	if is, err := ex.Lead(t.Context(), time.Second); err != nil || !is.Leads {
		t.Errorf("Lead again: %+v, %v", is, err)
	}
}

// TestClockSetBack: a region whose Redis's clock was set back by an hour, so that the last
// message is an hour in the future, is read on.
func TestClockSetBack(t *testing.T) {
	s := redistest.Standalone(t)
	o := redis.Options{Addresses: []string{s.Addr}}
	ex, err := redis.NewExchange(o, map[string]redis.Options{"us": o}) // it reads itself
	if err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	before := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10) + "-0"
	s.Do("XADD", "hg:{%regions}:news", before, "m", "before")
	if err := ex.Publish(t.Context(), []byte("after")); err != nil {
		t.Fatal(err)
	}
	b, err := ex.Read(t.Context(), "us", before)
	if err != nil || len(b.Messages) != 1 || string(b.Messages[0].Data) != "after" {
		t.Fatalf("read %+v, %v: want the message after the change", b, err)
	}
	if age := b.Now.Sub(b.Messages[0].At); age < 0 || age > time.Minute {
		t.Errorf("the message is %s old", age)
	}
}
