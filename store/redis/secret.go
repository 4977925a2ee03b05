package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
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

// secretsPause is how long after servers were asked for the secrets they are
// asked again.
const secretsPause = 100 * time.Millisecond

// failureAge is how long servers that have not answered are not asked again,
// unless they have answered something else since.
const failureAge = 2 * time.Second

// Secrets are random texts shared by all processes with the same servers and Prefix.
//
// The first process that needs one creates it under prefix:secret. If the servers have
// lost it, processes that know it write it back. If another process has created a new
// one by then, both are valid for all; prefix:secrets holds them.
type Secrets struct {
	store *Store

	mu    sync.Mutex
	known []string // the first is this process's own
	// begun counts the exchanges with the servers; ended is the last of them that
	// is over, when that was, and what came of it.
	begun, ended uint64
	asked        time.Time
	err          error
	asking       chan struct{} // closed when the one for all who wait is over; nil if there is none
}

// Secrets returns the secrets of s.
func (s *Store) Secrets() *Secrets { return &Secrets{store: s} }

// Known returns the known secrets, the one for new tokens first. It asks the servers
// only if none is known.
func (k *Secrets) Known(ctx context.Context) ([][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.begun
	err := k.wait(ctx, func() bool { return len(k.known) > 0 || k.ended > before })
	if len(k.known) > 0 {
		err = nil
	}
	return k.list(), err
}

// All returns the secrets that are valid now, the one for new tokens first. It asks the
// servers at most ten times a second, one call at a time, and returns an answer to a
// request sent after All was called. If the servers do not answer, it returns the known
// secrets with an error, and for two seconds all calls return the same at once.
func (k *Secrets) All(ctx context.Context) ([][]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.begun
	err := k.wait(ctx, func() bool { return k.ended > before })
	return k.list(), err
}

// list returns those known; k.mu is held.
func (k *Secrets) list() [][]byte {
	good := make([][]byte, len(k.known))
	for i, secret := range k.known {
		good[i] = []byte(secret)
	}
	return good
}

// wait asks the servers, or waits while others do, until there is enough, or no
// answer, and returns the result. k.mu is held, but released while waiting.
func (k *Secrets) wait(ctx context.Context, enough func() bool) error {
	for !enough() {
		if k.silent() {
			break
		}
		under, pause := k.asking, time.Duration(0)
		if k.ended > 0 {
			pause = secretsPause - time.Since(k.asked) //nolint:forbidigo // how often a server is asked
		}
		if under == nil && pause <= 0 {
			k.ask(ctx)
			continue
		}
		if err := k.pause(ctx, under, pause); err != nil {
			return err
		}
	}
	return k.err
}

// silent reports whether the servers have not answered just now, nor any other call
// since.
func (k *Secrets) silent() bool {
	recent := time.Since(k.asked) < failureAge //nolint:forbidigo // how often a server is asked
	return k.err != nil && recent && !k.store.trust.in(k.store.trust.slotOf(k.store.options.Prefix+":secret"))
}

// ask asks the servers for all who wait.
func (k *Secrets) ask(ctx context.Context) {
	done := make(chan struct{})
	k.asking = done
	k.mu.Unlock()
	_ = k.Return(ctx)
	k.mu.Lock()
	k.asking = nil
	close(done)
}

// pause waits for another's answer, or if there is none to come for so long.
func (k *Secrets) pause(ctx context.Context, under <-chan struct{}, length time.Duration) error {
	k.mu.Unlock()
	defer k.mu.Lock()
	var over <-chan time.Time
	if under == nil {
		timer := time.NewTimer(length) //nolint:forbidigo // how often a server is asked
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-under:
	case <-over:
	case <-ctx.Done():
		return fmt.Errorf("redis: %w: %w", headgate.ErrUnavailable, ctx.Err())
	}
	return nil
}

// Return writes what is known of the secrets back to the servers, where they
// have lost it, and learns those that others have made. It waits for nobody else's
// answer, which may be of before the loss.
func (k *Secrets) Return(ctx context.Context) error {
	k.mu.Lock()
	k.begun++
	number, known := k.begun, slices.Clone(k.known)
	k.mu.Unlock()
	// What comes of it is for others, too, whose contexts are not this one.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.store.options.Timeout)
	defer cancel()
	good, err := k.exchange(bounded, known)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = add(k.known, good...)
	if number > k.ended {
		k.ended, k.asked, k.err = number, time.Now(), err //nolint:forbidigo // how often a server is asked
	}
	return err
}

// exchange sends the secrets known here to the servers and returns those valid there.
func (k *Secrets) exchange(ctx context.Context, known []string) ([]string, error) {
	own := rand.Text() + rand.Text()
	if len(known) > 0 {
		own = known[0]
	}
	prefix := k.store.options.Prefix
	first, err := k.store.evaluate(ctx, textScript(secretLua), []string{prefix + ":secret"}, own)
	if err != nil {
		return nil, err
	}
	name, err := first.ToString()
	if err != nil {
		return nil, err
	}
	known = add(known, name)
	ring, err := k.store.evaluate(ctx, textScript(ringLua), []string{prefix + ":secrets"}, known...)
	if err != nil {
		return nil, err
	}
	all, err := ring.AsStrSlice()
	return add(known, all...), err
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
