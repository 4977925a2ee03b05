package redis

import (
	"context"
	"crypto/rand"
	_ "embed"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// secretLua returns the secret, which is the one given if there was none.
const secretLua = `redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])` //nolint:gosec // no secret in it

// ringLua adds secrets to those that are good and returns all of them, the
// newest first: the latest 16. (Each time the servers lose their data there may
// be one more.)
const ringLua = `local time = redis.call('TIME')
for i = 1, #ARGV do
  redis.call('ZADD', KEYS[1], 'NX', time[1], ARGV[i])
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -17)
return redis.call('ZREVRANGE', KEYS[1], 0, -1)`

// secretsAge is how long the secrets of before are an answer.
const secretsAge = 100 * time.Millisecond

// Secrets are random texts that all processes with the same servers and Prefix
// have in common. Who can read them can change the counts as well.
//
// There is one, under the name prefix:secret, which the first process that asks
// makes. Where the servers have lost it, those that know it write it back. If
// one that did not know it has made another meanwhile, both are good from then
// on, for all: prefix:secrets has them.
type Secrets struct {
	store *Store

	asking sync.Mutex // held by the one who asks the servers
	asked  time.Time
	err    error // what came of it

	mu    sync.Mutex
	known []string // the first is this process's own
}

// Secrets returns the secrets of s.
func (s *Store) Secrets() *Secrets { return &Secrets{store: s} }

// All returns the secrets that are good, the first of them to be used for what
// is new. They are asked for at most ten times a second; while the servers do
// not answer they are those that were known before, if there were any.
func (k *Secrets) All(ctx context.Context) ([][]byte, error) {
	k.asking.Lock()
	defer k.asking.Unlock()
	now := time.Now() //nolint:forbidigo // how often a server is asked
	if k.asked.IsZero() || now.Sub(k.asked) >= secretsAge {
		k.asked, k.err = now, k.exchange(ctx)
	}
	if known := k.list(); len(known) > 0 {
		return known, nil
	}
	return nil, k.err
}

// Return writes what is known of the secrets back to the servers, where they
// have lost it, and learns those that others have made.
func (k *Secrets) Return(ctx context.Context) error {
	k.asking.Lock()
	defer k.asking.Unlock()
	return k.exchange(ctx)
}

func (k *Secrets) list() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([][]byte, len(k.known))
	for i, secret := range k.known {
		out[i] = []byte(secret)
	}
	return out
}

// exchange tells the servers what is known here and learns what is not.
func (k *Secrets) exchange(ctx context.Context) error {
	k.mu.Lock()
	known := slices.Clone(k.known)
	k.mu.Unlock()
	own := rand.Text() + rand.Text()
	if len(known) > 0 {
		own = known[0]
	}
	prefix := k.store.options.Prefix
	first, err := k.store.evaluate(ctx, secretLua, prefix+":secret", own)
	if err != nil {
		return err
	}
	name, err := first.ToString()
	if err != nil {
		return err
	}
	known = add(known, name)
	ring, err := k.store.evaluate(ctx, ringLua, prefix+":secrets", known...)
	if err != nil {
		return err
	}
	all, err := ring.AsStrSlice()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = add(known, all...)
	return nil
}

// add adds those that are not in list yet.
func add(list []string, more ...string) []string {
	for _, secret := range more {
		if !slices.Contains(list, secret) {
			list = append(list, secret)
		}
	}
	return list
}

// evaluate runs a short script on one key, in a goroutine of its own and within
// the timeout.
func (s *Store) evaluate(ctx context.Context, text, key string, arguments ...string) (rueidis.RedisResult, error) {
	answer := new(rueidis.RedisResult) // which a call that is late may still write
	err := s.apart(ctx, func() error {
		client, call, err := s.begin(ctx)
		if err != nil {
			return err
		}
		*answer = client.Do(call, client.B().Eval().Script(text).Numkeys(1).Key(key).Arg(arguments...).Build())
		return s.end(ctx, call, answer.Error())
	})
	if err != nil {
		return rueidis.RedisResult{}, err
	}
	return *answer, nil
}
