package config

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/store/redis"
)

// Kind selects the store.
type Kind string

// The kinds. Empty is InMemory.
const (
	InMemory Kind = "memory" // this process's own memory
	InRedis  Kind = "redis"  // Redis or Valkey, which processes can share
)

// Redis has the settings of the Redis store. Empty or 0 is the default of
// store/redis.
type Redis struct {
	// URL names the server, the sentinels or the nodes of a cluster; see
	// store/redis.ParseURL. Empty is the default port of this machine. It may contain
	// what follows, passwords too.
	URL Secret
	// Username and Password are those of the ACL user, SentinelUsername and
	// SentinelPassword those of the sentinels.
	Username, SentinelUsername string
	Password, SentinelPassword Secret
	// PasswordFile is read again before each connection, unless another setting has
	// replaced what was InFile.
	PasswordFile string
	InFile       Secret
	// CA, Cert and Key are PEM files; each makes connections use TLS. Without CA the
	// system's authorities are trusted. ServerName is the expected name, if not the host.
	CA, Cert, Key         string
	ServerName, KeyPrefix string
	Timeout               time.Duration // how long a request waits for the store
	// DenyCache is how many refusals this process remembers; 0 for none. DenyMaxAge is for
	// how long, which is no setting; 0 is the default.
	DenyCache  int
	DenyMaxAge time.Duration
}

// DefaultDenyCache is the default of Redis.DenyCache.
const DefaultDenyCache = 16_384

// leastStore is the minimum of store.memory.max_bytes.
const leastStore = 1 << 20

// storeSettings returns the settings of the store.
func storeSettings() []Setting {
	return append([]Setting{
		One("store", func(c *Config, v string) error { return c.Store.choose(v) }).As("`memory`, `redis`, URL").Means("`memory`", "where counts are kept; a [URL](run/configuration.md#redis-or-valkey) names a Redis"),
		Flag("store.key_times", func(c *Config) *bool { return &c.Store.KeyTimes }).Means("`false`", "record when each key was created and last changed, for [`keys peek`](watch/keys.md#when-a-key-was-created)"),
		Count("store.memory.max_keys", func(c *Config) *int64 { return &c.Store.Memory.MaxKeys }, math.MaxInt32).Means("1,000,000", "keys in memory; with Redis, in the local fallback"),
		parsed("store.memory.max_bytes", func(c *Config) *int64 { return &c.Store.Memory.MaxBytes }, func(v string) (int64, error) {
			n, err := size(v)
			if err == nil && n < leastStore {
				err = &hinted{fmt.Sprintf("%s is below the minimum of 1MiB", v), "add a unit, such as 256MiB"}
			}
			return n, err
		}).As("size").Means("`256MiB`, or half of the [memory limit](run/overload.md#memory) if less", "memory for keys, at least `1MiB`"),
		Path("store.memory.snapshot", func(c *Config) *string { return &c.Store.Memory.Snapshot }).Means("none", "file for counts, so that they [survive a restart](run/memory-store.md#snapshots)"),
		Duration("store.memory.snapshot_interval", func(c *Config) *time.Duration { return &c.Store.Memory.SnapshotInterval }, time.Second).Means("`1m`", "how often it is saved, besides at the end"),
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
		if _, err := redis.ParseURL(v); err != nil {
			return err
		}
		s.Kind, s.Redis.URL = InRedis, Secret(v)
	case strings.ContainsAny(v, ":@"): // an invalid URL that may contain a password
		return &hinted{"the value is neither memory, nor redis, nor a URL", "write a URL such as redis://127.0.0.1:6379"}
	default:
		return &hinted{fmt.Sprintf("%q is not one of memory, redis%s", v, nearest.DidYouMean(v, []string{"memory", "redis"})), "a URL such as redis://127.0.0.1:6379 works too"}
	}
	return nil
}

// redisSettings returns the settings of Redis; each of them selects Redis.
func redisSettings() []Setting {
	const at = "store.redis."
	all := []Setting{
		parsed(at+"url", func(r *Redis) *Secret { return &r.URL }, func(v string) (Secret, error) {
			_, err := redis.ParseURL(v)
			return Secret(v), err
		}).As("URL").Means("`redis://127.0.0.1:6379`", "[the server](run/redis.md#options), the sentinels or the nodes of a cluster: `redis://`, `redis+sentinel://`, `redis+cluster://`, or with `valkey`; `rediss` encrypts"),
		Text(at+"username", func(r *Redis) *string { return &r.Username }).Means("none", "ACL user"),
		Text(at+"password", func(r *Redis) *Secret { return &r.Password }).Means("none", "its password, or a password alone"),
		passwordFile(at+"password_file").Means("none", "the same in a file, read again before each connection: a new password needs no restart"),
		Text(at+"sentinel_username", func(r *Redis) *string { return &r.SentinelUsername }).Means("none", "ACL user at the sentinels"),
		Text(at+"sentinel_password", func(r *Redis) *Secret { return &r.SentinelPassword }).Means("none", "its password"),
		Path(at+"tls_ca", func(r *Redis) *string { return &r.CA }).Means("the system's", "trusted authorities; turns on TLS"),
		Path(at+"tls_cert", func(r *Redis) *string { return &r.Cert }).Means("none", "client certificate; turns on TLS"),
		Path(at+"tls_key", func(r *Redis) *string { return &r.Key }).Means("none", "its private key"),
		Text(at+"tls_server_name", func(r *Redis) *string { return &r.ServerName }).Means("the host of the URL", "expected name in the certificate"),
		Text(at+"prefix", func(r *Redis) *string { return &r.KeyPrefix }).Means("`hg`", "prefix of all keys; servers with the same prefix share counts"),
		Duration(at+"timeout", func(r *Redis) *time.Duration { return &r.Timeout }, time.Millisecond).Means("`100ms`", "longest wait before `on_store_error` decides ([why](run/failure.md#how-a-failure-is-noticed))"),
		number(at+"deny_cache", func(r *Redis) *int { return &r.DenyCache }, 1<<24).Means("`16384`", "refused keys [remembered here](run/failure.md#the-deny-cache) for 250 ms; `0`: none"),
	}
	for i := range all {
		set := all[i].set
		all[i].set = func(c *Config, v []string) error {
			c.Store.Kind = InRedis
			return set(c, v)
		}
	}
	return all
}

// passwordFile is a SecretFile whose name is kept, because it is read again.
func passwordFile(key string) Setting {
	s := SecretFile(key, func(r *Redis, v string) error { r.Password, r.InFile = Secret(v), Secret(v); return nil })
	set := s.set
	s.set = func(c *Config, v []string) error {
		c.Store.Redis.PasswordFile = v[0]
		return set(c, v)
	}
	return s
}

// DefaultQueueStatus is the path at the proxy for the status of queued requests.
const DefaultQueueStatus = "/.headgate/queue/"

// Queue has the settings of queued requests.
type Queue struct {
	// Path is the file of the queue. If empty, the queue is in Redis, if that is the
	// store, or next to the snapshot, if there is one.
	Path string
	// StatusPath is the path prefix at the proxy for the status of queued requests. It
	// starts and ends with a slash; empty for none.
	StatusPath string
	Replicas   int // Redis replicas that must have a request before it counts as accepted
}

// queueSettings returns the settings of the queue.
func queueSettings() []Setting {
	return []Setting{
		Path("queue.path", func(c *Config) *string { return &c.Queue.Path }).Means("Redis, or next to the snapshot", "file for [queued requests](more/queue.md)"),
		parsed("queue.status_path", func(c *Config) *string { return &c.Queue.StatusPath }, statusPath).As("path, `off`").Means("`/.headgate/queue/`", "where the proxy shows the status of queued requests"),
		number("queue.replicas", func(c *Config) *int { return &c.Queue.Replicas }, 100).Means("`0`", "Redis replicas that must have a queued request before the 202"),
	}
}

func statusPath(v string) (string, error) {
	if v == Off {
		return "", nil
	}
	if len(v) < 2 || v[0] != '/' || strings.ContainsAny(v, "?#% ") || strings.Contains(v, "//") {
		return "", &hinted{fmt.Sprintf("%q is not a valid path prefix", v), "write " + DefaultQueueStatus + `, or "off"`}
	}
	return strings.TrimSuffix(v, "/") + "/", nil
}
