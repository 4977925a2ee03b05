package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// secretLua returns the secret under a key, after setting it to the given one if there
// was none.
const secretLua = `redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])` //nolint:gosec // no secret in it

// ringLua adds secrets to the valid ones and returns the latest 16, newest first. (Each
// loss of the servers' data may add one.)
const ringLua = `local time = redis.call('TIME')
for i = 1, #ARGV do
  redis.call('ZADD', KEYS[1], 'NX', time[1], ARGV[i])
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -17)
return redis.call('ZREVRANGE', KEYS[1], 0, -1)`

// secretsPause is the least time between two requests for the secrets.
const secretsPause = 100 * time.Millisecond

// failureAge is how long servers that did not answer are not asked again, unless they
// have answered another call since.
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
	// begun counts the exchanges with the servers. ended is the last completed one,
	// followed by its time and result.
	begun, ended uint64
	asked        time.Time
	err          error
	asking       chan struct{} // closed when the exchange that others wait for ends; nil without one
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

// list returns the known secrets; k.mu must be held.
func (k *Secrets) list() [][]byte {
	good := make([][]byte, len(k.known))
	for i, secret := range k.known {
		good[i] = []byte(secret)
	}
	return good
}

// wait asks the servers, or waits while another caller does, until enough is true or
// there is no answer. k.mu must be held; it is released while waiting.
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

// silent reports whether the servers failed to answer recently and have not answered
// any other call since.
func (k *Secrets) silent() bool {
	recent := time.Since(k.asked) < failureAge //nolint:forbidigo // how often a server is asked
	return k.err != nil && recent && !k.store.trust.trusts(k.store.trust.slotOf(k.store.options.Prefix+":secret"))
}

// ask asks the servers on behalf of all waiting callers.
func (k *Secrets) ask(ctx context.Context) {
	done := make(chan struct{})
	k.asking = done
	k.mu.Unlock()
	_ = k.Return(ctx)
	k.mu.Lock()
	k.asking = nil
	close(done)
}

// pause waits for another caller's exchange or, if there is none, for a fixed time.
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
		return fmt.Errorf("redis: %w: %w", store.ErrUnavailable, ctx.Err())
	}
	return nil
}

// Return writes the known secrets back to servers that have lost them, and learns
// secrets created by other processes. It does not reuse another caller's answer, which
// may be from before the loss.
func (k *Secrets) Return(ctx context.Context) error {
	k.mu.Lock()
	k.begun++
	number, known := k.begun, slices.Clone(k.known)
	k.mu.Unlock()
	// The result is also for other callers, who have other contexts.
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

// add appends those of more that are not in list yet.
func add(list []string, more ...string) []string {
	for _, secret := range more {
		if !slices.Contains(list, secret) {
			list = append(list, secret)
		}
	}
	return list
}
