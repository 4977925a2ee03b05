package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
)

// Kind is which store keeps the counts.
type Kind uint8

// The kinds.
const (
	// InMemory is this process's own memory.
	InMemory Kind = iota
	// InRedis is Redis or Valkey, which many processes share.
	InRedis
)

// String returns the name that the configuration uses: memory or redis.
func (k Kind) String() string {
	switch k {
	case InMemory:
		return "memory"
	case InRedis:
		return "redis"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Redis says where the servers are and how to use them. What is empty or 0 has
// the default of store/redis.
type Redis struct {
	// URL says all of what follows that it can say; see store/redis.ParseURL.
	// It excludes Addresses. It may hold a password.
	URL Secret
	// Addresses are host:port of the server, the sentinels or the nodes.
	Addresses []string
	// Mode is standalone, sentinel or cluster.
	Mode string
	// MasterName is the name by which the sentinels know the primary.
	MasterName string
	// Username and Password are those of the ACL user, SentinelUsername and
	// SentinelPassword those of the sentinels.
	Username, SentinelUsername string
	Password, SentinelPassword Secret
	// DB is the number of the database.
	DB int
	// TLS encrypts. CA, Cert and Key are PEM files; without a CA the system's
	// are believed. ServerName is whom to expect, if not the host.
	TLS                   bool
	CA, Cert, Key         string
	ServerName, KeyPrefix string
	// Timeout bounds what a request waits for the store.
	Timeout time.Duration
	// StrictAtomic refuses what cannot be charged atomically in a cluster.
	StrictAtomic bool
	// DenyCache is how many refusals this process remembers, DenyMaxAge for
	// how long at most. 0 entries are no cache.
	DenyCache  int
	DenyMaxAge time.Duration
	// ProbeAfter is when a store that does not answer is tried again,
	// ProbeEvery how often at most later on.
	ProbeAfter, ProbeEvery time.Duration
}

// DefaultDenyCache is how many refusals are remembered if nobody says.
const DefaultDenyCache = 16_384

// leastStore is the smallest store.memory.max_bytes: with less hardly any limit would
// be kept.
const leastStore = 1 << 20

// storeSettings are the keys of the store.
func storeSettings() []setting {
	return append([]setting{
		one("store", func(c *Config, v string) error { return c.Store.choose(v) }),
		one("store.memory.max_keys", func(c *Config, v string) (err error) {
			c.Store.Memory.MaxKeys, err = wholeNumber(v, math.MaxInt32)
			return err
		}),
		one("store.memory.max_bytes", func(c *Config, v string) (err error) {
			if c.Store.Memory.MaxBytes, err = size(v); err == nil && c.Store.Memory.MaxBytes < leastStore {
				return &hinted{fmt.Sprintf("%s is less than 1MiB, in which hardly a key has a place", v), "write the unit, such as 256MiB"}
			}
			return err
		}),
		{key: "store.memory.snapshot", path: true, set: func(c *Config, v []string) error {
			c.Store.Memory.Snapshot = v[0]
			return nil
		}},
		one("store.memory.snapshot_interval", func(c *Config, v string) (err error) {
			c.Store.Memory.SnapshotInterval, err = duration(v, time.Second)
			return err
		}),
	}, redisSettings()...)
}

// choose sets the kind of store by its name, or by a URL.
func (s *Store) choose(v string) error {
	switch {
	case v == "memory":
		s.Kind = InMemory
	case v == "redis":
		s.Kind = InRedis
	case strings.Contains(v, "://"):
		// It says where the server is, so it replaces what an earlier source
		// (the file, of a flag) says about that.
		s.Kind, s.Redis.URL = InRedis, Secret(v)
		s.Redis.Addresses, s.Redis.Mode, s.Redis.MasterName = nil, "", ""
	case strings.ContainsAny(v, ":@"): // a URL with a mistake, and perhaps a password
		return &hinted{"it is not one of memory, redis, and no URL", "write a URL such as redis://127.0.0.1:6379"}
	default:
		return &hinted{fmt.Sprintf("%q is not one of memory, redis%s", v, nearest.DidYouMean(v, []string{"memory", "redis"})), "or write a URL, such as redis://127.0.0.1:6379"}
	}
	return nil
}

func redisSettings() []setting {
	text := func(key string, field func(*Redis) *string) setting {
		return redisOne(key, func(r *Redis, v string) error { *field(r) = v; return nil })
	}
	secret := func(key string, field func(*Redis) *Secret) setting {
		return redisOne(key, func(r *Redis, v string) error { *field(r) = Secret(v); return nil })
	}
	lasting := func(key string, field func(*Redis) *time.Duration) setting {
		return redisOne(key, func(r *Redis, v string) (err error) {
			*field(r), err = duration(v, time.Millisecond)
			return err
		})
	}
	file := func(key string, field func(*Redis) *string) setting {
		s := text(key, field)
		s.path = true
		return s
	}
	return []setting{
		secret("url", func(r *Redis) *Secret { return &r.URL }),
		{key: "store.redis.addresses", list: true, set: func(c *Config, v []string) error {
			c.Store.Kind, c.Store.Redis.Addresses = InRedis, v
			return nil
		}},
		redisOne("mode", func(r *Redis, v string) (err error) {
			modes := []string{"standalone", "sentinel", "cluster"}
			r.Mode, err = choice(v, func(v string) (string, bool) { return v, slices.Contains(modes, v) }, modes...)
			return err
		}),
		text("master_name", func(r *Redis) *string { return &r.MasterName }),
		text("username", func(r *Redis) *string { return &r.Username }),
		secret("password", func(r *Redis) *Secret { return &r.Password }),
		secretFile("password_file", func(r *Redis) *Secret { return &r.Password }),
		text("sentinel_username", func(r *Redis) *string { return &r.SentinelUsername }),
		secret("sentinel_password", func(r *Redis) *Secret { return &r.SentinelPassword }),
		redisOne("db", func(r *Redis, v string) error {
			n, err := wholeNumberFrom(v, 0, math.MaxInt32)
			r.DB = int(n)
			return err
		}),
		redisOne("tls", func(r *Redis, v string) (err error) { r.TLS, err = yesNo(v); return err }),
		file("tls_ca", func(r *Redis) *string { return &r.CA }),
		file("tls_cert", func(r *Redis) *string { return &r.Cert }),
		file("tls_key", func(r *Redis) *string { return &r.Key }),
		text("tls_server_name", func(r *Redis) *string { return &r.ServerName }),
		text("prefix", func(r *Redis) *string { return &r.KeyPrefix }),
		lasting("timeout", func(r *Redis) *time.Duration { return &r.Timeout }),
		redisOne("strict_atomic", func(r *Redis, v string) (err error) { r.StrictAtomic, err = yesNo(v); return err }),
		redisOne("deny_cache", func(r *Redis, v string) error {
			n, err := wholeNumberFrom(v, 0, 1<<24)
			r.DenyCache = int(n)
			return err
		}),
		lasting("deny_cache_max_age", func(r *Redis) *time.Duration { return &r.DenyMaxAge }),
		lasting("probe_after", func(r *Redis) *time.Duration { return &r.ProbeAfter }),
		lasting("probe_every", func(r *Redis) *time.Duration { return &r.ProbeEvery }),
	}
}

// redisOne is a setting of the Redis store; to set any of them chooses it.
func redisOne(key string, set func(*Redis, string) error) setting {
	return one("store.redis."+key, func(c *Config, v string) error {
		c.Store.Kind = InRedis
		return set(&c.Store.Redis, v)
	})
}

// secretFile reads a secret from a file, as container platforms mount them.
func secretFile(key string, field func(*Redis) *Secret) setting {
	return secretFrom("store.redis."+key, func(c *Config, v string) error {
		c.Store.Kind = InRedis
		*field(&c.Store.Redis) = Secret(v)
		return nil
	})
}
