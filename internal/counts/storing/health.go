package storing

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/observe/metrics"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/failsafe"
	"github.com/headgate/headgate/store/redis"
)

const (
	// healthEvery is how often to check whether Redis is full, policyEvery how often to
	// check whether it evicts.
	healthEvery = time.Second
	policyEvery = 10 * time.Second
	// wellAfter is how long Redis must have had no errors of a kind to count as
	// recovered: longer than the circuit breaker waits between two probes.
	wellAfter = 10 * time.Second
)

// health is the state of a Redis that answers with errors. The circuit breaker stays
// closed then and does not show them.
type health struct {
	mu      sync.Mutex
	full    trouble
	mute    trouble   // Redis accepts no writes
	refuses trouble   // Redis refuses some requests
	asked   time.Time // when the policy was last requested
	policy  string    // the policy last warned about
	evicted int64     // keys that Redis has evicted since its start
	before  int64     // the same, at the look before
	watched bool      // whether both are known
	evicts  bool      // whether evictions were logged
	denied  bool      // whether the missing permission was logged
	known   bool      // whether its version is known
	moved   uint64    // how often its address led to another server, at the last look
}

// trouble is a period in which Redis answers with errors of one kind.
type trouble struct {
	answers uint64    // at the last look
	at      time.Time // when answers last rose
	is      bool
	tried   uint64 // answers to what Headgate itself tried
	err     error  // the last one
}

// update records the number of such answers, and reports whether the trouble has just
// started or ended.
func (t *trouble) update(answers uint64, now time.Time) (began, ended bool) {
	answers += t.tried
	switch {
	case answers > t.answers:
		t.answers, t.at = answers, now
		began, t.is = !t.is, true
	case t.is && now.Sub(t.at) >= wellAfter:
		ended, t.is = true, false
	}
	return began, ended
}

// watch logs once when Redis is full, read-only or refuses requests, once when it has
// recovered, and once if it evicts keys.
func (s *Store) watch() {
	look := func() { s.checkHealth(time.Time{}.Add(s.Elapsed())) }
	s.tryWriting() // a store that was read-only before the start is one from the start
	look()
	s.Life.Every(healthEvery, look)
}

// tryWriting counts something, so that a store that accepts no writes, and the end of
// that, are seen without a request.
func (s *Store) tryWriting() {
	op := store.Op{Scope: "readyz", Rule: headgate.PerSecond(1000).WithAlgorithm(headgate.FixedWindow).Rule(), Cost: 1}
	_, err := store.Execute(context.Background(), s.shared, op)
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrFull):
		h.full.tried, h.full.err = h.full.tried+1, err
	case errors.Is(err, store.ErrReadOnly):
		h.mute.tried, h.mute.err = h.mute.tried+1, err
	}
}

func (s *Store) checkHealth(now time.Time) {
	h := &s.health
	if h.trouble() != nil {
		s.tryWriting()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	stats := s.safe.Stats()
	h.full.err = cmp.Or(s.safe.Last(store.ErrFull), h.full.err)
	h.mute.err = cmp.Or(s.safe.Last(store.ErrReadOnly), h.mute.err)
	if moved := s.shared.Connections().Moved; moved != h.moved {
		h.moved = moved
		s.Logger.Warn("the address of the store leads to another server now: the connections were moved there", "times", moved)
	}
	switch began, ended := h.full.update(stats.Full, now); {
	case began:
		s.Logger.Error("the store is out of memory and cannot count new keys: on_store_error of each rule applies",
			"hint", "raise maxmemory of Redis; rules with on_store_error: local keep limiting")
	case ended:
		s.Logger.Info("the store has memory again", "after_answers", h.full.answers)
	}
	switch began, ended := h.mute.update(stats.ReadOnly, now); {
	case began:
		s.Logger.Error("the store is read-only: exhausted keys stay refused, for others on_store_error of each rule applies",
			"err", h.mute.err, "hint", "check whether it is a replica, or has lost its replicas or its disk; rules with on_store_error: local keep limiting")
	case ended:
		s.Logger.Info("the store accepts writes again", "after_answers", h.mute.answers)
	}
	switch began, ended := h.refuses.update(stats.Refused, now); {
	case began:
		s.Logger.Error("the store refuses some requests: for these, on_store_error of each rule applies",
			"err", s.safe.Last(store.ErrRefused), "hint", "check the permissions of Headgate's user, and whether another program writes to Headgate's keys")
	case ended:
		s.Logger.Info("the store no longer refuses requests", "after_answers", h.refuses.answers)
	}
	s.lookAtVersion()
	if h.asked.IsZero() || now.Sub(h.asked) >= policyEvery {
		h.asked = now
		s.lookAtPolicy()
	}
}

// lookAtVersion logs that Redis is too old, if it was unreachable at the start;
// health.mu must be held.
func (s *Store) lookAtVersion() {
	h := &s.health
	if h.known || s.safe.Stats().State != failsafe.Closed {
		return
	}
	switch err := s.shared.CheckVersion(context.Background()); {
	case errors.Is(err, redis.ErrTooOld):
		h.known = true
		s.Logger.Error("the store's version is too old: on_store_error of each rule applies", "err", err)
	case err == nil:
		h.known = true
	}
}

// lookAtPolicy warns if Redis evicts keys; health.mu must be held.
func (s *Store) lookAtPolicy() {
	h := &s.health
	servers, err := s.shared.Memory(context.Background())
	if err != nil {
		if errors.Is(err, store.ErrRefused) && !h.denied {
			h.denied = true
			s.Logger.Info("cannot check whether the store evicts keys", "err", err, "hint", "grant the user +info, or make sure that maxmemory-policy is noeviction")
		}
		h.asked = time.Time{} // retry soon
		return
	}
	policy, evicted := evictions(servers)
	if policy != "" && policy != h.policy {
		s.Logger.Warn("the store evicts keys when it is full: an exhausted key that is evicted has its whole limit again",
			"maxmemory_policy", policy, "hint", "set maxmemory-policy noeviction")
	}
	h.policy = policy
	if policy != "" && evicted > 0 && !h.evicts {
		h.evicts = true
		s.Logger.Warn("the store has evicted keys, because it is full: each has its whole limit again",
			"evicted_keys", evicted, "maxmemory_policy", policy, "hint", "raise maxmemory of Redis, and set maxmemory-policy noeviction")
	}
	if h.before = h.evicted; !h.watched {
		h.before, h.watched = evicted, true // what was evicted earlier is no news
	}
	h.evicted = evicted
}

// evictions returns the policy by which one of the servers evicts keys, or "", and how
// many keys they have evicted since their start.
func evictions(servers []redis.Memory) (policy string, evicted int64) {
	for i := range servers {
		evicted += servers[i].Evicted
		if servers[i].Evicts() {
			policy = servers[i].Policy
		}
	}
	return policy, evicted
}

// evicting reports whether Redis has evicted keys just now: since the last look or the
// one before.
func (s *Store) evicting(ctx context.Context) bool {
	servers, err := s.shared.Memory(ctx)
	if err != nil {
		return false
	}
	_, evicted := evictions(servers)
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.watched && evicted > s.health.before
}

// trouble returns why Redis does not count now (it is full or read-only), or nil.
func (h *health) trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.full.is:
		return h.full.err
	case h.mute.is:
		return h.mute.err
	}
	return nil
}

// describeHealth adds the metrics of a Redis that answers with errors.
func (s *Store) describeHealth(c *metrics.Asked) {
	h := &s.health
	full := c.Gauge("headgate_store_full", "1 while the store is out of memory and cannot count new keys.")
	mute := c.Gauge("headgate_store_read_only", "1 while the store answers but accepts no writes.")
	codes := c.Counter("headgate_store_server_errors_total", "Answers of a Redis that may be the wrong one, such as READONLY of a demoted primary, by code. After each, Headgate looks whether its address leads to another.", "code")
	evicted := c.Gauge("headgate_store_evicted_keys", "Keys that Redis has evicted since its start, because it was full; all servers together. Each had its whole limit again.")
	moved := c.Counter("headgate_store_moved_total", "Times that the address of the store led to another server, and the connections were moved there.")
	c.Ask(func(out chan<- prometheus.Metric) {
		if s.shared != nil {
			is := s.shared.Connections()
			for code, n := range is.Errors {
				codes(out, float64(n), code)
			}
			moved(out, float64(is.Moved))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		evicted(out, float64(h.evicted))
		full(out, metrics.OneIf(h.full.is))
		mute(out, metrics.OneIf(h.mute.is))
	})
}
