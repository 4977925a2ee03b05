package redis

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

// secretLua returns the text under a key, which is the one given if there was none:
// the secret, or the name of the data ([life]).
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

// failureAge is how long servers that have not answered are not asked again,
// unless they have answered something else since.
const failureAge = 2 * time.Second

// Secrets are random texts that all processes with the same servers and Prefix
// have in common. Who can read them can change the counts as well.
//
// There is one, under the name prefix:secret, which the first process that asks
// makes. Where the servers have lost it, those that know it write it back. If
// one that did not know it has made another meanwhile, both are good from then
// on, for all: prefix:secrets has them.
type Secrets struct {
	store *Store

	mu     sync.Mutex
	known  []string      // the first is this process's own
	asked  time.Time     // when the servers last answered, or did not
	err    error         // what came of it
	asking chan struct{} // closed when they have; nil if nobody asks
}

// Secrets returns the secrets of s.
func (s *Store) Secrets() *Secrets { return &Secrets{store: s} }

// All returns the secrets that are good, the first of them to be used for what
// is new. They are asked for at most ten times a second, and by one at a time, on
// whom others wait. While the servers do not answer they are asked once in two
// seconds; all others at once get what was known before, or the error.
func (k *Secrets) All(ctx context.Context) ([][]byte, error) {
	k.mu.Lock()
	since := time.Since(k.asked) //nolint:forbidigo // how often a server is asked
	failed := k.err != nil && since < failureAge && !k.store.trust.in(k.store.trust.slotOf(k.store.options.Prefix+":secret"))
	recent := !k.asked.IsZero() && (since < secretsAge && k.err == nil || failed)
	k.mu.Unlock()
	if !recent {
		_ = k.Return(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) == 0 {
		return nil, k.err
	}
	good := make([][]byte, len(k.known))
	for i, secret := range k.known {
		good[i] = []byte(secret)
	}
	return good, nil
}

// Return writes what is known of the secrets back to the servers, where they
// have lost it, and learns those that others have made. If somebody does that
// just now it waits for what comes of it.
func (k *Secrets) Return(ctx context.Context) error {
	k.mu.Lock()
	if under := k.asking; under != nil {
		k.mu.Unlock()
		<-under // within the timeout
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.err
	}
	done := make(chan struct{})
	k.asking = done
	k.mu.Unlock()
	// What comes of it is for others, too, whose contexts are not this one.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.store.options.Timeout)
	defer cancel()
	err := k.exchange(bounded)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked, k.err, k.asking = time.Now(), err, nil //nolint:forbidigo // how often a server is asked
	close(done)
	return err
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
	first, err := k.store.evaluate(ctx, textScript(secretLua), []string{prefix + ":secret"}, own)
	if err != nil {
		return err
	}
	name, err := first.ToString()
	if err != nil {
		return err
	}
	known = add(known, name)
	ring, err := k.store.evaluate(ctx, textScript(ringLua), []string{prefix + ":secrets"}, known...)
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
