package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

const (
	// pings is how often the store is asked to measure how long it takes.
	pings = 100
	// measureFor ends the measurement of a store that is very slow.
	measureFor = 5 * time.Second
	// connectFor is how long the connection may take, and each answer.
	connectFor = 2 * time.Second
	// examineFor is how long the whole examination of Redis may take.
	examineFor = 20 * time.Second
)

// store examines Redis, if counts are kept there.
func (i *Installation) store(ctx context.Context, c *config.Config) []Finding {
	if c.Store.Kind != config.InRedis {
		f := Finding{Check: "store", Level: OK, What: "counts are in memory"}
		if c.Store.Memory.Snapshot == "" {
			f.Level, f.Why, f.Do = Warn, "a restart forgets all counts", "set store.memory.snapshot"
		}
		return []Finding{f}
	}
	const lost = "on_store_error of each rule decides while Redis does not answer"
	options, err := storing.RedisOptions(&c.Store.Redis)
	if err != nil {
		return []Finding{{"store", Fail, err.Error(), "the server does not start", ""}}
	}
	timeout := options.Timeout
	options.Timeout = connectFor // a slow answer is measured, not an error
	ctx, cancel := context.WithTimeout(ctx, examineFor)
	defer cancel()
	s, err := connected(ctx, options)
	if err != nil {
		return []Finding{{"store", Fail, err.Error(), "the server does not start", "check the password and the permissions of the user"}}
	}
	defer func() { _ = s.Close() }()
	err = s.Ping(ctx)
	if errors.Is(err, store.ErrReadOnly) { // it answers, but refuses even this
		all := []Finding{{"store", Fail, err.Error(), lost, "see the other findings about Redis"}}
		return append(all, i.servers(ctx, s, options.Mode)...)
	}
	if err != nil {
		return []Finding{{"store", Fail, err.Error(), lost, "start Redis, or correct store.redis"}}
	}
	all := []Finding{i.latency(ctx, s, timeout)}
	if err := s.CheckVersion(ctx); errors.Is(err, redis.ErrTooOld) {
		all = append(all, Finding{"store", Fail, err.Error(), "the scripts do not run", "update Redis"})
	}
	all = append(all, memory(ctx, s)...)
	all = append(all, i.servers(ctx, s, options.Mode)...)
	return append(all, permissions(ctx, s, &c.Store.Regions))
}

// connected returns a store that has had its time to connect.
func connected(ctx context.Context, o redis.Options) (*redis.Store, error) { //nolint:gocritic // once
	ctx, cancel := context.WithTimeout(ctx, connectFor)
	defer cancel()
	return redis.New(ctx, o)
}

// latency measures round trips and compares them with the longest wait for a decision.
func (i *Installation) latency(ctx context.Context, s *redis.Store, timeout time.Duration) Finding {
	var took []time.Duration
	for sum := time.Duration(0); len(took) < pings && sum < measureFor; sum += took[len(took)-1] {
		began := i.Now()
		if err := s.Ping(ctx); err != nil {
			return Finding{"store", Fail, err.Error(), "it answered before: the connection is not stable", "check the network and the load of Redis"}
		}
		took = append(took, i.Now().Sub(began))
	}
	return judged(took, timeout)
}

// judged returns the finding about round trips, of which there is at least one.
func judged(took []time.Duration, timeout time.Duration) Finding {
	slices.Sort(took)
	half, most := took[len(took)/2], took[(len(took)-1)*99/100]
	f := Finding{Check: "store", Level: OK, What: fmt.Sprintf("Redis answers in %s (median) and %s (99 of 100)", half.Round(time.Microsecond), most.Round(time.Microsecond))}
	if most > timeout/2 {
		f.Level, f.Why, f.Do = Warn, fmt.Sprintf("a decision waits at most %s; then on_store_error decides", timeout), "move Redis closer, or raise store.redis.timeout"
	}
	if half > timeout {
		f.Level = Fail
	}
	return f
}

// memory examines whether the servers evict keys, or are almost full.
func memory(ctx context.Context, s *redis.Store) (all []Finding) {
	servers, err := s.Memory(ctx)
	if err != nil {
		return []Finding{{"store", Warn, "cannot check maxmemory-policy: " + err.Error(), "a Redis that evicts keys forgets who is over the limit", "grant the user +info, or make sure that the policy is noeviction"}}
	}
	for n := range servers {
		m := &servers[n]
		f := Finding{Check: "store", Level: OK, What: fmt.Sprintf("%s: maxmemory-policy %s, %d bytes used", m.Address, m.Policy, m.Used)}
		switch {
		case m.Evicts() && m.Max > 0:
			f.Level, f.Why, f.Do = Fail, "when Redis is full, an exhausted key that is evicted has its whole limit again", "set maxmemory-policy noeviction"
		case m.Evicts():
			f.Level, f.Why, f.Do = Warn, "once maxmemory is set, exhausted keys are evicted and have their whole limit again", "set maxmemory-policy noeviction"
		case m.Max > 0 && m.Used >= m.Max:
			f.Level, f.Why, f.Do = Fail, "it is full, maxmemory is "+strconv.FormatInt(m.Max, 10)+": new keys cannot be counted, and on_store_error of each rule decides", "raise maxmemory"
		case m.Max > 0 && m.Used > m.Max/10*9:
			f.Level, f.Why, f.Do = Warn, "it is almost full; then new keys cannot be counted", "raise maxmemory"
		}
		all = append(all, f)
	}
	return all
}
