package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
)

// site is some nodes with one store, and the history of the current round.
type site struct {
	name    string
	t       *testing.T
	nodes   []*node
	rand    *rand.Rand // of the faults
	seed    uint64
	vague   bool  // nodes remember refusals
	reach   int64 // of History
	slack   int64 // of History, if the clocks may differ
	faults  []fault
	unasked func() bool // whether the store may have lost something without a fault; nil: never
	began   time.Time
	aligned int64 // Unix time of began, in microseconds

	round  int
	counts counts

	mu      sync.Mutex
	history history.History
	lost    atomic.Int64 // how often the store may have lost something
	lostAt  atomic.Int64 // when it last has
}

// counts are the totals of a run.
type counts struct {
	rounds, ops, unknown, made, faults, keys, undecided int
	reasons                                             map[string]int
}

// now returns the time of a history.
func (s *site) now() int64 { return s.aligned + time.Since(s.began).Microseconds() }

// add puts an op into the history.
func (s *site) add(op history.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	op.ID = len(s.history.Ops) + 1
	s.history.Ops = append(s.history.Ops, op)
	return op.ID
}

// mark notes a fault, for people.
func (s *site) mark(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.Faults = append(s.history.Faults, history.Mark{At: s.now(), Name: name})
}

// forgot records what the store may have lost between call and now.
func (s *site) forgot(kind history.Kind, call, since int64) {
	s.lost.Add(1)
	s.lostAt.Store(s.now())
	s.add(history.Op{Kind: kind, Client: callers, Call: call, Return: s.now(), Since: since})
}

const (
	callers = 10
	keys    = 2 // of each limit in a round
	round   = 5 * time.Second
)

// targets are what callers request, and the limits that then apply.
var targets = []struct { //nolint:gochecknoglobals // a table
	limit string
	rules []string
	kind  history.Kind
}{
	{"token", []string{"token"}, history.Take},
	{"leaky", []string{"leaky"}, history.Take},
	{"fixed", []string{"fixed"}, history.Take},
	{"log", []string{"log"}, history.Take},
	{"window", []string{"window"}, history.Take},
	{"weighted", []string{"weighted"}, history.Take},
	{"strict", []string{"strict"}, history.Take},
	{"lenient", []string{"lenient"}, history.Take},
	{"pair", []string{"pair-token", "pair-log"}, history.Take},
	{"reserved", []string{"reserved"}, history.Reserve},
	{"reserved-fixed", []string{"reserved-fixed"}, history.Reserve},
	{"places", []string{"places"}, history.Acquire},
}

// limits are those of ruleFile.
func limits() []history.Limit {
	const s = 1_000_000
	return []history.Limit{
		{Name: "token", Algorithm: history.TokenBucket, Count: 5, Period: 2 * s, Burst: 6},
		{Name: "leaky", Algorithm: history.LeakyBucket, Count: 4, Period: s, Burst: 6},
		{Name: "fixed", Algorithm: history.FixedWindow, Count: 6, Period: 2 * s},
		{Name: "log", Algorithm: history.SlidingLog, Count: 6, Period: 2 * s},
		{Name: "window", Algorithm: history.SlidingWindow, Count: 6, Period: 2 * s},
		{Name: "weighted", Algorithm: history.SlidingBuckets, Count: 6, Period: 2 * s, Buckets: 10, Edge: "weighted"},
		{Name: "strict", Algorithm: history.SlidingBuckets, Count: 6, Period: 2 * s, Buckets: 10, Edge: "strict"},
		{Name: "lenient", Algorithm: history.SlidingBuckets, Count: 6, Period: 2 * s, Buckets: 10, Edge: "lenient"},
		{Name: "pair-token", Algorithm: history.TokenBucket, Count: 3, Period: s, Burst: 5},
		{Name: "pair-log", Algorithm: history.SlidingLog, Count: 5, Period: 2 * s},
		{Name: "reserved", Algorithm: history.SlidingLog, Count: 8, Period: 2 * s},
		{Name: "reserved-fixed", Algorithm: history.FixedWindow, Count: 8, Period: 2 * s},
		{Name: "places", Algorithm: history.Places, Count: 4, Period: 3 * s / 2},
	}
}

// caller makes one call after the other.
type caller struct {
	*site
	id    int
	rand  *rand.Rand
	doors map[string]door
	held  []holding
}

// holding is a reservation or lease to settle.
type holding struct {
	op         int
	target     int
	key, token string
	cost       int64
	lost       int64 // site.lost then
}

// run makes calls until done is closed.
func (c *caller) run(done <-chan struct{}) {
	for {
		pause := time.Duration(c.rand.Int64N(int64(40 * time.Millisecond)))
		if retry := c.once(); retry > 0 && c.rand.IntN(8) == 0 {
			pause = retry + time.Duration(c.rand.Int64N(int64(time.Millisecond)))
		}
		timer := time.NewTimer(min(pause, 2500*time.Millisecond))
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// once makes a call, and returns how long it was told to wait.
func (c *caller) once() time.Duration {
	i := c.rand.IntN(len(targets))
	target := &targets[i]
	q := question{kind: target.kind, limit: target.limit, cost: 1 + c.rand.Int64N(2), id: fmt.Sprintf("r%d-%d", c.round, c.rand.IntN(keys))}
	op := history.Op{Client: c.id, Limits: target.rules}
	x := c.pick(i)
	switch {
	case x != nil:
		c.settling(&q, &op, x)
	case c.rand.IntN(10) == 0 && target.kind != history.Acquire:
		q.kind = history.Peek
	}
	op.Kind, op.Cost = q.kind, q.cost
	if x == nil {
		op.Key = target.limit + " " + q.id
	}
	n := c.nodes[c.rand.IntN(len(c.nodes))]
	d, err := c.door(n, &op)
	if err != nil {
		return 0
	}
	deaths := n.deaths.Load()
	op.Call = c.now()
	r, err := d.ask(&q)
	op.Return = c.now()
	if errors.Is(err, errNotSent) || err != nil && deaths%2 == 1 && n.deaths.Load() == deaths {
		return 0 // no node to call
	}
	c.note(&op, i, &r, err)
	if op.Answer != nil && !op.Answer.Allowed {
		return time.Duration(op.Answer.Retry) * time.Millisecond
	}
	return 0
}

// note records the result of an op.
func (c *caller) note(op *history.Op, target int, r *reply, err error) {
	switch {
	case err != nil:
		op.Note = strings.Map(func(c rune) rune { return max(c, ' ') }, err.Error())
	case r.answer == nil:
		op.Note = r.reason
	default:
		op.Answer = r.answer
		op.Answer.Vague = op.Answer.Vague || c.vague && !op.Answer.Allowed && op.Kind != history.Peek
	}
	if (strings.HasPrefix(r.reason, "400") || strings.HasPrefix(r.reason, "ERR")) && !c.forgives(r.reason) {
		c.t.Errorf("%s: %s is answered: %s", c.name, op.Kind, r.reason)
	}
	lost := c.lost.Load()
	id := c.add(*op)
	if r.token != "" && op.Answer != nil && op.Answer.Allowed {
		c.held = append(c.held, holding{op: id, target: target, key: op.Key, token: r.token, cost: op.Cost, lost: lost})
	}
}

// secretsReturn is for how long the store may lack the secrets of tokens that it has lost: until
// a process that knows them writes them back, within a second, and later on a busy machine. One
// that starts meanwhile has a new secret, and answers 400 as documented.
const secretsReturn = 5_000_000

// forgives reports whether a token may be unknown to a node that has issued none like it.
func (c *caller) forgives(reason string) bool {
	return strings.Contains(reason, "is unknown: it was not issued") && c.now()-c.lostAt.Load() < secretsReturn
}

// pick returns a reservation or lease of that target, if one should be settled now.
func (c *caller) pick(target int) *holding {
	if c.rand.IntN(2) == 0 {
		return nil
	}
	for i, x := range c.held {
		if x.target != target {
			continue
		}
		c.held = slices.Delete(c.held, i, i+1)
		if x.lost != c.lost.Load() {
			return nil // the store may have lost its record
		}
		return &x
	}
	return nil
}

// settling returns the call that settles a reservation or lease.
func (c *caller) settling(q *question, op *history.Op, x *holding) {
	q.token, op.Of, op.Was, op.Key = x.token, x.op, x.cost, x.key
	switch first := c.rand.IntN(3) == 0; {
	case targets[x.target].kind == history.Acquire && first:
		q.kind, q.cost = history.Renew, x.cost
	case targets[x.target].kind == history.Acquire:
		q.kind, q.cost = history.Release, 0
	case first:
		q.kind, q.cost = history.Cancel, 0
	default:
		q.kind, q.cost = history.Commit, c.rand.Int64N(4)
	}
	if c.rand.IntN(5) == 0 {
		c.held = append(c.held, *x) // to try again
	}
}

// door is one way to call a node, each with a separate connection for this caller.
func (c *caller) door(n *node, op *history.Op) (door, error) {
	ways := []string{"http"}
	switch op.Kind {
	case history.Take, history.Peek:
		ways = []string{"http", "resp", "grpc"}
	case history.Acquire:
		ways = []string{"http", "resp"}
	default: // the Redis protocol settles nothing
	}
	op.Node, op.Door = n.name, ways[c.rand.IntN(len(ways))]
	name := op.Node + op.Door
	if d := c.doors[name]; d != nil {
		return d, nil
	}
	var d door
	var err error
	switch op.Door {
	case "http":
		d = newHTTPDoor(n.http.Addr)
	case "resp":
		d = &respDoor{address: n.resp.Addr}
	default:
		d, err = newGRPCDoor(n.grpc.Addr)
	}
	if err == nil {
		c.doors[name] = d
	}
	return d, err
}

// ended prepares the history of a round for the check: calls without an answer may have been
// done until now.
func (s *site) ended() *history.History {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.history
	s.history = history.History{}
	if n := len(h.Clock); n > 0 { // the next round starts with the current clock
		s.history.Clock = []history.Shift{{Least: h.Clock[n-1].Least, Most: h.Clock[n-1].Most}}
	}
	end := s.now()
	h.Seed, h.Limits = s.seed, limits()
	for i := range h.Ops {
		op := &h.Ops[i]
		s.counts.ops++
		if op.Key != "" && op.Answer == nil {
			op.Return = end
			s.counts.unknown++
			if op.Note != "" {
				s.counts.reasons[strings.Join(strings.Fields(op.Note)[:min(2, len(strings.Fields(op.Note)))], " ")]++
			}
		}
	}
	slices.SortFunc(h.Ops, func(a, b history.Op) int { return cmp.Compare(a.Call, b.Call) })
	return &h
}
