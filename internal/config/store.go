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
		One("store", func(c *Config, v string) error { return c.Store.choose(v) }),
		Flag("store.key_times", func(c *Config) *bool { return &c.Store.KeyTimes }),
		Count("store.memory.max_keys", func(c *Config) *int64 { return &c.Store.Memory.MaxKeys }, math.MaxInt32),
		parsed("store.memory.max_bytes", func(c *Config) *int64 { return &c.Store.Memory.MaxBytes }, func(v string) (int64, error) {
			n, err := size(v)
			if err == nil && n < leastStore {
				err = &hinted{fmt.Sprintf("%s is below the minimum of 1MiB", v), "add a unit, such as 256MiB"}
			}
			return n, err
		}),
		Path("store.memory.snapshot", func(c *Config) *string { return &c.Store.Memory.Snapshot }),
		Duration("store.memory.snapshot_interval", func(c *Config) *time.Duration { return &c.Store.Memory.SnapshotInterval }, time.Second),
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
		}),
		Text(at+"username", func(r *Redis) *string { return &r.Username }),
		Text(at+"password", func(r *Redis) *Secret { return &r.Password }),
		passwordFile(at + "password_file"),
		Text(at+"sentinel_username", func(r *Redis) *string { return &r.SentinelUsername }),
		Text(at+"sentinel_password", func(r *Redis) *Secret { return &r.SentinelPassword }),
		Path(at+"tls_ca", func(r *Redis) *string { return &r.CA }),
		Path(at+"tls_cert", func(r *Redis) *string { return &r.Cert }),
		Path(at+"tls_key", func(r *Redis) *string { return &r.Key }),
		Text(at+"tls_server_name", func(r *Redis) *string { return &r.ServerName }),
		Text(at+"prefix", func(r *Redis) *string { return &r.KeyPrefix }),
		Duration(at+"timeout", func(r *Redis) *time.Duration { return &r.Timeout }, time.Millisecond),
		number(at+"deny_cache", func(r *Redis) *int { return &r.DenyCache }, 1<<24),
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
		Path("queue.path", func(c *Config) *string { return &c.Queue.Path }),
		parsed("queue.status_path", func(c *Config) *string { return &c.Queue.StatusPath }, statusPath),
		number("queue.replicas", func(c *Config) *int { return &c.Queue.Replicas }, 100),
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
