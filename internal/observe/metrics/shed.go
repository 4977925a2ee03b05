package metrics

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/store"
)

// shed counts requests that are over no limit of their own, by class and reason. They are
// refused, so a lock costs little.
type shed struct {
	mu     sync.Mutex
	counts map[[2]string]uint64
}

// count counts a request once, whatever limits refused it.
func (s *shed) count(d *engine.Decided) {
	if d.Verdict.Allowed || d.Verdict.Decision.Reason != store.ReasonHeadroom || !d.Takes() {
		return
	}
	results := d.Verdict.Results()
	i := slices.IndexFunc(results, func(r engine.Result) bool { return r.Enforced && r.Decision.Reason == store.ReasonHeadroom })
	if i < 0 {
		return
	}
	s.add(results[i].Class(), store.ReasonHeadroom.String())
}

func (s *shed) add(class, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[[2]string]uint64{}
	}
	s.counts[[2]string{class, reason}]++
}

// adaptive is the reason of requests for which an upstream has no place.
const adaptive = "adaptive"

// Upstream is what is known of an upstream whose limit of requests at once adapts.
type Upstream struct {
	InFlight  int     // requests that wait for the header of its answer
	Service   float64 // seconds that it takes without load; 0 if not yet known
	Shadow    bool    // nothing is shed
	WouldShed int64   // requests, ever; in shadow mode
	Classes   []UpstreamClass
}

// UpstreamClass is a class of requests to an upstream.
type UpstreamClass struct {
	Name  string
	Limit int    // of requests at once, of all classes, up to which one of this class may start
	Shed  uint64 // ever
}

// SetUpstream says what tells the state of an upstream, but for Shed.
func (m *Observer) SetUpstream(state func() Upstream) { m.upstream.Store(&state) }

// Upstream returns the state of the upstream, and false if there is none that adapts.
func (m *Observer) Upstream() (u Upstream, ok bool) {
	state := m.upstream.Load()
	if state == nil {
		return u, false
	}
	u = (*state)()
	m.shed.mu.Lock()
	defer m.shed.mu.Unlock()
	for i := range u.Classes {
		u.Classes[i].Shed = m.shed.counts[[2]string{u.Classes[i].Name, adaptive}]
	}
	return u, true
}

// Unplaced counts a request for which the upstream has no place.
func (m *Observer) Unplaced(class string) { m.shed.add(class, adaptive) }

// collect calls add with each count, in any order.
func (s *shed) collect(add func(class, reason string, n uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, n := range s.counts {
		add(of[0], of[1], n)
	}
}
