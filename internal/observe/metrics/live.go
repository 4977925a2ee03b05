package metrics

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/observe/sse"
	"github.com/headgate/headgate/internal/observe/top"
	"github.com/headgate/headgate/internal/rules"
)

// MaxTickRules is the maximum of rules in a Tick; the rest are added up.
const MaxTickRules = 1000

// Tick is what happened since the tick before.
type Tick struct {
	T        time.Time  `json:"t"`
	Rules    []RuleTick `json:"rules"`    // rules with requests, the busiest first
	Totals   Totals     `json:"totals"`   // each request counts once, however many rules applied
	Degraded uint64     `json:"degraded"` // decisions without the store
	Store    StoreTick  `json:"store"`    // state of the store
}

// StoreTick is the state of the store.
type StoreTick struct {
	Kind    string `json:"kind"`
	Circuit string `json:"circuit"`
	Keys    int64  `json:"keys"`
}

// RuleTick has the counts of one rule since the tick before.
type RuleTick struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Outcomes
	Near uint64 `json:"near"`
}

// Totals counts all requests since the tick before.
type Totals struct {
	Requests uint64 `json:"requests"`
	Outcomes
	UnknownDomain uint64 `json:"unknown_domain"` // in domains without rules
}

// Outcomes are counts by outcome.
type Outcomes struct {
	Allowed       uint64 `json:"allowed"`
	Refused       uint64 `json:"refused"`
	Delayed       uint64 `json:"delayed"`
	Queued        uint64 `json:"queued"`
	ShadowBanned  uint64 `json:"shadow_banned"`
	ShadowRefused uint64 `json:"shadow_refused"`
	Marked        uint64 `json:"marked"`
}

func outcomes(n *[engine.Outcomes]uint64) Outcomes {
	return Outcomes{
		Allowed: n[engine.Allowed], Refused: n[engine.Refused], Delayed: n[engine.Delayed], Queued: n[engine.Queued],
		ShadowBanned: n[engine.ShadowBanned], ShadowRefused: n[engine.ShadowRefused], Marked: n[engine.Marked],
	}
}

// Sum returns the sum of all outcomes.
func (o *Outcomes) Sum() uint64 {
	return o.Allowed + o.Refused + o.Delayed + o.Queued + o.ShadowBanned + o.ShadowRefused + o.Marked
}

// plus returns the sum of both.
func (o Outcomes) plus(p Outcomes) Outcomes {
	return Outcomes{
		o.Allowed + p.Allowed, o.Refused + p.Refused, o.Delayed + p.Delayed, o.Queued + p.Queued,
		o.ShadowBanned + p.ShadowBanned, o.ShadowRefused + p.ShadowRefused, o.Marked + p.Marked,
	}
}

// totals has the counts that are not of a rule.
type totals struct {
	requests [engine.Doors][engine.Outcomes]uint64
	unknown  [2]uint64
}

func (m *Observer) totals() totals {
	var sum totals
	for i := range m.counters {
		l := &m.counters[i]
		for d := range l.requests {
			for o := range l.requests[d] {
				sum.requests[d][o] += l.requests[d][o].Load()
			}
		}
		for i := range l.unknown {
			sum.unknown[i] += l.unknown[i].Load()
		}
	}
	return sum
}

// Tick returns what happened since the last call. Only one goroutine may call it.
func (m *Observer) Tick(now time.Time) Tick {
	m.mu.Lock()
	defer m.mu.Unlock()
	tick := Tick{T: now.UTC(), Rules: []RuleTick{}}
	for _, c := range m.table.Load().all {
		is, d := c.read(), c.was
		for i := range d {
			d[i] = is[i] - d[i]
		}
		c.was = is
		if d == (sums{}) {
			continue
		}
		tick.Rules = append(tick.Rules, RuleTick{c.domain, c.name, outcomes(d.outcomes()), d[near]})
		for _, n := range d[degraded:] {
			tick.Degraded += n
		}
	}
	tick.Rules = busiest(tick.Rules, MaxTickRules)
	is := m.totals()
	var sum [engine.Outcomes]uint64
	for d := range is.requests {
		for o := range is.requests[d] {
			sum[o] += is.requests[d][o] - m.was.requests[d][o]
		}
	}
	tick.Totals.Outcomes = outcomes(&sum)
	tick.Totals.Requests = tick.Totals.Sum()
	for i := range is.unknown {
		tick.Totals.UnknownDomain += is.unknown[i] - m.was.unknown[i]
	}
	m.was = is
	return tick
}

// Shorten returns t with its n busiest rules, and the others added up.
func (t Tick) Shorten(n int) Tick {
	t.Rules = busiest(slices.Clone(t.Rules), n)
	return t
}

// busiest sorts list and adds up what goes beyond n in one entry.
func busiest(list []RuleTick, n int) []RuleTick {
	slices.SortFunc(list, func(a, b RuleTick) int {
		return cmp.Or(cmp.Compare(b.Sum(), a.Sum()), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule))
	})
	if len(list) <= n {
		return list
	}
	rest := RuleTick{Domain: otherRules, Rule: otherRules}
	for _, r := range list[n-1:] {
		rest.Outcomes, rest.Near = rest.plus(r.Outcomes), rest.Near+r.Near
	}
	return append(list[:n-1:n-1], rest)
}

// Top returns the most frequent keys of a rule, and false if none have been
// counted.
func (m *Observer) Top(r *rules.Rule, by top.By, now time.Time, n int) (top.Top, bool) {
	t := m.table.Load().of(r).top.Load()
	if t == nil {
		return top.Top{}, false
	}
	return t.Top(by, now.UnixMicro(), n), true
}

// Add adds other to t.
func (t *Totals) Add(other *Totals) {
	t.Requests += other.Requests
	t.Outcomes = t.plus(other.Outcomes)
	t.UnknownDomain += other.UnknownDomain
}

// AddTicks adds up the ticks of rules with this domain and name, the busiest first. An
// empty domain or name matches all.
func AddTicks(ticks []Tick, domain, name string) []RuleTick {
	list, at := []RuleTick{}, map[[2]string]int{}
	for i := range ticks {
		for _, r := range ticks[i].Rules {
			if domain != "" && r.Domain != domain || name != "" && r.Rule != name {
				continue
			}
			key := [2]string{r.Domain, r.Rule}
			if j, ok := at[key]; ok {
				list[j].Outcomes, list[j].Near = list[j].plus(r.Outcomes), list[j].Near+r.Near
				continue
			}
			at[key] = len(list)
			list = append(list, r)
		}
	}
	return busiest(list, len(list)+1)
}

// The limits of live views.
const (
	TickEvery    = time.Second // interval of ticks
	historyTicks = 300         // ticks that a new view gets at once: five minutes
	historyRules = 50          // rules in each of these
	// maxLive is the maximum of live views, liveBuffer how many ticks they may be
	// behind.
	maxLive    = 64
	liveBuffer = 30
)

// Live sends a tick every second to all live views. Make it with NewLive.
type Live struct {
	hub      *sse.Hub[struct{}]
	observer *Observer
	clock    func() time.Time
	store    func() StoreTick

	ticks int

	mu      sync.Mutex
	history []Tick // the oldest first
}

// NewLive returns a Live for m. store returns the state of the store.
func NewLive(m *Observer, clock func() time.Time, store func() StoreTick) *Live {
	return &Live{hub: sse.NewHub[struct{}](maxLive, liveBuffer), observer: m, clock: clock, store: store}
}

// Close ends all connections.
func (l *Live) Close() { l.hub.Close() }

// Tick sends what happened since the last call. Call it every TickEvery; it also
// prunes the observer.
func (l *Live) Tick() {
	now := l.clock()
	t := l.observer.Tick(now)
	t.Store = l.store()
	if l.ticks++; l.ticks%60 == 0 {
		l.observer.Prune(now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, t.Shorten(historyRules))
	if len(l.history) > historyTicks {
		l.history = append(l.history[:0:0], l.history[len(l.history)-historyTicks:]...)
	}
	if len(l.hub.Readers()) == 0 {
		return
	}
	if text, err := json.Marshal(&t); err == nil {
		l.hub.Send(sse.Message("tick", text))
	}
}

// Serve sends ticks to w until the client disconnects or the Live closes. It returns
// false, having written nothing, if there are too many views.
func (l *Live) Serve(w http.ResponseWriter, r *http.Request) bool {
	l.mu.Lock() // no tick comes between the history and the first one sent
	unlock := sync.OnceFunc(l.mu.Unlock)
	defer unlock()
	hello := func() []byte {
		defer unlock()
		text, err := json.Marshal(struct {
			T        time.Time `json:"t"`
			Interval int64     `json:"interval_ms"`
			Ticks    []Tick    `json:"ticks"`
		}{l.clock().UTC(), TickEvery.Milliseconds(), append([]Tick{}, l.history...)})
		if err != nil {
			return nil
		}
		return sse.Message("hello", text)
	}
	return l.hub.Serve(w, r, struct{}{}, hello)
}
