package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// continent is three regions with two processes each.
type continent struct {
	t       *testing.T
	bin     string
	names   []string
	servers map[string]*redistest.Server
	wires   map[[2]string][]*redistest.Proxy // from, to: one of each process; none if they are connected directly
	nodes   map[string][]*node
	rules   map[string]string // of a region, if they are not regionRules
	faults  []regionFault
	played  int
}

// regionFault breaks something while limits are used. Everything works again when do
// returns.
type regionFault struct {
	name  string
	short bool // it is in CI
	// loses is how many tokens of the window can be lost on their way, and count as used: a
	// message that was never read, or what a process that died had not written yet.
	loses int64
	// apart says that no region can read another for all of the fault, so that each must
	// have its part.
	apart bool
	// planted says that one region does not share: the test must find that.
	planted bool
	do      func(s *tour)
}

func newContinent(t *testing.T, bin string) *continent {
	t.Helper()
	return &continent{t: t, bin: bin, names: []string{eu, us, ap}, servers: make(map[string]*redistest.Server), wires: make(map[[2]string][]*redistest.Proxy), nodes: make(map[string][]*node)}
}

// start starts the processes of a region.
func (c *continent) start(name, store string, url func(other string) string) {
	c.t.Helper()
	for range processesOfRegion {
		var peers []string
		for _, other := range c.names {
			if other != name {
				peers = append(peers, fmt.Sprintf("%s: %q", other, url(other)))
			}
		}
		config := fmt.Sprintf("%s\nregions: {name: %s, peers: {%s}}", store, name, strings.Join(peers, ", "))
		c.nodes[name] = append(c.nodes[name], startNodeWith(c.t, c.bin, name, cmp.Or(c.rules[name], regionRules), config))
	}
	c.heal()
}

// startWith starts all processes, those of eu with the servers at that address, without
// proxies.
func (c *continent) startWith(address string) {
	c.t.Helper()
	at := func(name string) string {
		if name == eu {
			return address
		}
		return "redis://" + c.servers[name].Addr
	}
	for _, name := range c.names {
		c.start(name, fmt.Sprintf("{redis: {url: %q, timeout: 300ms}}", at(name)), at)
	}
}

func (c *continent) each(do func(from, to string, w *redistest.Proxy)) {
	for between, wires := range c.wires {
		for _, w := range wires {
			do(between[0], between[1], w)
		}
	}
}

// heal makes the wires work, as slowly as they are.
func (c *continent) heal() {
	c.each(func(_, _ string, w *redistest.Proxy) {
		w.Heal()
		w.Delay(betweenRegions)
	})
}

func (c *continent) end() {
	for _, name := range c.names {
		for _, n := range c.nodes[name] {
			n.kill()
		}
	}
}

// acting returns the process that gives and receives for a region.
func (c *continent) acting(name string) *node {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); wait(20 * time.Millisecond) {
		for _, n := range c.nodes[name] {
			if len(c.metric(n, "headgate_region_reachable")) > 0 {
				return n
			}
		}
	}
	c.t.Fatalf("no process acts for %s", name)
	return nil
}

// metric returns the values of a node's metric.
func (c *continent) metric(n *node, metric string) (values []float64) {
	c.t.Helper()
	text, err := n.get("/metrics", 10*time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == metric || strings.HasPrefix(name, metric+"{") {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				c.t.Fatal(err)
			}
			values = append(values, number)
		}
	}
	return values
}

// tour is one fault, and a new key of each limit.
type tour struct {
	*continent
	name    string
	id      string
	limits  map[string]map[string]*tally // by limit and region
	stopped chan struct{}
	bounds  exported
	from    int64        // when the fault began, in Unix microseconds
	to      int64        // when it ended
	forgot  []string     // regions that have lost their counts
	before  int64        // what they had used before
	last    atomic.Int64 // when a request of the long window was admitted last, in Unix microseconds
}

var regionLimits = []string{"day", "short", "tokens"} //nolint:gochecknoglobals // a list

// play runs callers, breaks something when a quarter of the window is used, and waits
// until nothing of it is left for anybody.
func (c *continent) play(fault *regionFault, w io.Writer) {
	c.t.Helper()
	c.played++
	s := &tour{continent: c, name: fault.name, id: fmt.Sprintf("id-%d", c.played), stopped: make(chan struct{}), limits: make(map[string]map[string]*tally)}
	began := time.Now()
	var callers sync.WaitGroup
	for _, limit := range regionLimits {
		s.limits[limit] = make(map[string]*tally)
		for _, name := range c.names {
			s.limits[limit][name] = new(tally)
		}
	}
	for _, limit := range regionLimits {
		for _, name := range c.names {
			for _, n := range c.nodes[name] {
				if limit != "day" || name != ap { // what ap has of it must be given
					callers.Go(func() { s.call(name, n, limit) })
				}
			}
		}
	}
	s.watch(&callers)
	s.until("a quarter of the window is used", func() bool { return s.admitted("day") >= dayLimit/4 })
	s.from = time.Now().UnixMicro()
	fault.do(s)
	s.to = time.Now().UnixMicro()
	s.until("nothing is left", func() bool {
		return time.Now().UnixMicro()-max(s.last.Load(), s.to) > restAfter.Microseconds()
	})
	close(s.stopped)
	callers.Wait()
	s.hasNews()
	s.judge(w, fault, time.Since(began))
}

// pace is how long a caller waits between requests: eu wants most of everything.
func pace(region string) time.Duration {
	switch region {
	case eu:
		return 8 * time.Millisecond
	case us:
		return 20 * time.Millisecond
	}
	return 80 * time.Millisecond
}

// call makes calls of one process until the tour ends.
func (s *tour) call(region string, n *node, limit string) {
	d := &respDoor{address: n.resp.Addr}
	defer d.close()
	of := s.limits[limit][region]
	cost := int64(1)
	if limit == "tokens" {
		cost = 2
	}
	for {
		select {
		case <-s.stopped:
			return
		case <-time.After(pace(region)):
		}
		call := time.Now().UnixMicro()
		r, err := d.ask(&question{kind: history.Take, limit: limit, id: s.id, cost: cost})
		back := time.Now().UnixMicro()
		switch {
		case errors.Is(err, errNotSent):
		case err != nil, r.reason == "fail_closed": // the store may have counted it
			of.unknown.Add(cost)
		case r.answer != nil && r.answer.Allowed:
			of.add(passed{call, back, cost})
			if limit == "day" {
				s.last.Store(back)
			}
		case r.answer != nil:
			of.refuse(passed{call, back, cost})
		default:
			s.t.Errorf("%s: %s: answer %q", s.name, limit, r.reason)
			return
		}
	}
}

// admitted returns what all regions admitted of a limit.
func (s *tour) admitted(limit string) (sum int64) {
	for _, a := range s.limits[limit] {
		sum += a.admitted.Load()
	}
	return sum
}

// used returns what a region may have counted of the long window.
func (s *tour) used(region string) int64 {
	a := s.limits["day"][region]
	return a.admitted.Load() + a.unknown.Load()
}

// whole returns what all regions admitted of a limit, together.
func (s *tour) whole(limit string) *tally {
	all := new(tally)
	for _, a := range s.limits[limit] {
		for _, p := range a.log {
			all.add(p)
		}
		all.unknown.Add(a.unknown.Load())
	}
	return all
}

// until waits for something that must happen soon.
func (s *tour) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(60 * time.Second); !is(); wait(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: waiting until %s: %d of the window", s.name, what, s.admitted("day"))
		}
	}
}

// hasNews waits until every region has news of the others.
func (s *tour) hasNews() {
	s.t.Helper()
	for _, name := range s.names {
		s.until(name+" has news of all", func() bool {
			for _, n := range s.nodes[name] {
				is := s.metric(n, "headgate_region_reachable")
				if len(is) == len(s.names)-1 && !slices.Contains(is, 0) {
					return true
				}
			}
			return false
		})
	}
}

// fullest returns the most that was certainly admitted in one of the windows of two
// seconds: of the requests whose call and answer are both in it.
func (a *tally) fullest() (most int64) {
	in := make(map[int64]int64)
	for _, p := range a.log {
		if w := p.call / shortPeriod; w == p.back/shortPeriod {
			in[w] += p.cost
			most = max(most, in[w])
		}
	}
	return most
}

// latency returns how long admitted requests took, in milliseconds: the mean and the 99th
// percentile.
func latency(all ...*tally) (mean, p99 float64) {
	var took []int64
	sum := int64(0)
	for _, a := range all {
		for _, p := range a.log {
			took = append(took, p.back-p.call)
			sum += p.back - p.call
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return float64(sum) / float64(len(took)) / 1000, float64(took[len(took)*99/100]) / 1000
}
