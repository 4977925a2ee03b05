package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// healthEvery is how often it is looked whether Redis is full, policyEvery
	// how often whether it evicts.
	healthEvery = time.Second
	policyEvery = time.Minute
	// roomyAfter is how long Redis must not have been full to be well again:
	// longer than the circuit breaker waits between two probes.
	roomyAfter = 10 * time.Second
)

// storeHealth is what there is to know about the memory of Redis.
type storeHealth struct {
	mu      sync.Mutex
	answers uint64    // that it was full, as of the last look
	fullAt  time.Time // when that rose last
	full    bool
	asked   time.Time // about the policy
	policy  string    // that was warned of
	denied  bool      // whether it was said that it may not be asked
}

// watchStore says once when Redis is full, and when it is well again; and once
// if it evicts keys.
func (a *App) watchStore() {
	a.lookAtStore(time.Now())
	a.every(healthEvery, func() { a.lookAtStore(time.Now()) })
}

func (a *App) lookAtStore(now time.Time) {
	h := &a.storeHealth
	h.mu.Lock()
	defer h.mu.Unlock()
	answers := a.safe.Stats().Full
	switch {
	case answers > h.answers:
		h.answers, h.fullAt = answers, now
		if !h.full {
			h.full = true
			a.log.Error("the store is out of memory: it cannot count new keys, each rule's on_store_error decides",
				"hint", "raise Redis' maxmemory; on_store_error: local goes on limiting meanwhile")
		}
	case h.full && now.Sub(h.fullAt) >= roomyAfter:
		h.full = false
		a.log.Info("the store has memory again", "after_answers", h.answers)
	}
	if h.asked.IsZero() || now.Sub(h.asked) >= policyEvery {
		h.asked = now
		a.lookAtPolicy()
	}
}

// lookAtPolicy warns of a Redis that evicts; storeHealth.mu is held.
func (a *App) lookAtPolicy() {
	h := &a.storeHealth
	servers, err := a.shared.Memory(context.Background())
	if err != nil {
		if a.safe.Stats().State == closedCircuit && !h.denied {
			h.denied = true
			a.log.Info("it is not known whether the store evicts keys", "err", err, "hint", "allow the user +info, or see to maxmemory-policy noeviction")
		}
		h.asked = time.Time{} // soon again
		return
	}
	policy := ""
	for i := range servers {
		if servers[i].Evicts() {
			policy = servers[i].Policy
		}
	}
	if policy != "" && policy != h.policy {
		a.log.Warn("the store evicts keys when it is full: a key that was exhausted then has its whole limit again",
			"maxmemory_policy", policy, "hint", "set maxmemory-policy noeviction")
	}
	h.policy = policy
}

// isFull reports whether Redis has been out of memory just now.
func (h *storeHealth) isFull() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full
}

// storeHealthMetrics tells of a Redis that is full.
func (a *App) storeHealthMetrics(c *askedCollector) {
	full := c.gauge("headgate_store_full", "1 while the store is out of memory and cannot count new keys.")
	c.ask(func(out chan<- prometheus.Metric) { full(out, oneIf(a.storeHealth.isFull())) })
}
