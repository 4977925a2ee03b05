package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// regionRules are limits that three regions share: a window that outlasts every fault, one
// of two seconds, and a bucket. A request that the store does not answer is refused, since
// what a policy lets pass is not the regions' doing.
const regionRules = `domain: chaos
limits:
  - {name: day, match: {attributes: {limit: day}}, key: [id], rate: 1800/day, algorithm: fixed_window, regions: shared, on_store_error: deny}
  - {name: short, match: {attributes: {limit: short}}, key: [id], rate: 300/2s, algorithm: fixed_window, regions: shared, on_store_error: deny}
  - {name: tokens, match: {attributes: {limit: tokens}}, key: [id], rate: 300/s, burst: 600, regions: {slack: 5%}, on_store_error: deny}
`

const (
	dayLimit                         = 1800
	shortLimit, shortPeriod          = 300, 2_000_000 // microseconds
	tokenRate, tokenBurst, tokenOver = 300, 600, 30
	betweenRegions                   = 80 * time.Millisecond // each way
	cutFor                           = 5 * time.Second       // at least one of the short windows is in it, and a second more
	restAfter                        = 2 * time.Second       // without a request that was admitted, nothing is left
	processesOfRegion                = 2
	eu, us, ap                       = "eu", "us", "ap"
)

// TestRegionsUnderFaults: six processes in three regions share limits while something
// breaks: all regions together never admit more above a limit than every server says at
// that time, in headgate_region_over_admission_bound_tokens and GET /v1/regions, and what a
// Redis forgot. While no region reads another, each has its part. When it works again they
// use what is left, all of it unless tokens were lost on the way, and have news of each other
// again. A region that does not share is found: the test can fail.
func TestRegionsUnderFaults(t *testing.T) {
	if settings.regions == "" {
		t.Skip("make regions-faults")
	}
	headgate := build(t, t.TempDir(), "..", "./cmd/headgate")
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() {
		_ = w.Flush()
		t.Logf("\n%s", &table)
	}()
	_, _ = fmt.Fprintln(w, "fault\twindow\tat most\tat least\tworst 2 s\tparts had\tbucket\tabove: window, 2 s, bucket\tservers say, and forgotten\tlocal mean ms\tp99 ms\tseconds\t")
	for _, open := range []func(*testing.T, string) *continent{onPlanted, onThreeServers, onASentinel, onACluster} {
		if c := open(t, headgate); c != nil {
			for i := range c.faults {
				if f := &c.faults[i]; settings.regions == "all" || f.short {
					c.play(f, w)
				}
			}
			c.end()
		}
	}
}

// onPlanted has a region that has the whole limits for itself, which must be found.
func onPlanted(t *testing.T, bin string) *continent {
	t.Helper()
	c := newContinent(t, bin)
	c.rules = map[string]string{eu: strings.NewReplacer("regions: shared", "regions: separate", "regions: {slack: 5%}", "regions: separate").Replace(regionRules)}
	for _, name := range c.names {
		c.servers[name] = redistest.Standalone(t)
	}
	c.startWith("redis://" + c.servers[eu].Addr)
	c.faults = []regionFault{{name: "planted: eu does not share", short: true, planted: true, do: func(*tour) { wait(cutFor) }}}
	return c
}

// onThreeServers has a server in each region, and a wire from each region to each other.
func onThreeServers(t *testing.T, bin string) *continent {
	t.Helper()
	c := newContinent(t, bin)
	c.servers[eu] = redistest.Standalone(t)
	c.servers[us] = redistest.Standalone(t, "--appendonly", "yes", "--appendfsync", "always")
	c.servers[ap] = redistest.Standalone(t)
	for _, name := range c.names {
		c.start(name, fmt.Sprintf("{redis: {url: \"redis://%s\", timeout: 300ms}}", c.servers[name].Addr), func(other string) string {
			p := redistest.NewProxy(t, c.servers[other].Addr)
			between := [2]string{name, other}
			c.wires[between] = append(c.wires[between], p)
			return "redis://" + p.Addr
		})
	}
	c.faults = append(c.wireFaults(), c.processFaults()...)
	return c
}

// wireFaults are those of the connections between regions.
func (c *continent) wireFaults() []regionFault {
	return []regionFault{
		{name: "none", do: func(*tour) {}},
		{name: "5 % loss", short: true, do: func(*tour) { // as connections that are reset
			for end := time.Now().Add(cutFor); time.Now().Before(end); wait(100 * time.Millisecond) {
				c.each(func(_, _ string, w *redistest.Proxy) {
					if rand.IntN(20) == 0 {
						w.Reset()
					}
				})
			}
		}},
		{name: "eu does not read us", do: func(*tour) {
			c.each(func(from, to string, w *redistest.Proxy) {
				if from == eu && to == us {
					w.Cut()
				}
			})
			wait(cutFor)
			c.heal()
		}},
		{name: "eu cut off", do: func(*tour) {
			c.each(func(from, to string, w *redistest.Proxy) {
				if from == eu || to == eu {
					w.Cut()
				}
			})
			wait(cutFor)
			c.heal()
		}},
		{name: "all cut off", short: true, apart: true, do: func(*tour) {
			c.each(func(_, _ string, w *redistest.Proxy) { w.Cut() })
			wait(cutFor)
			c.heal()
		}},
		{name: "all wires silent", apart: true, do: func(*tour) { // no reset: what is sent arrives later
			c.each(func(_, _ string, w *redistest.Proxy) { w.Stall() })
			wait(cutFor)
			c.heal()
		}},
		{name: "all wires half open", do: func(*tour) {
			c.each(func(_, _ string, w *redistest.Proxy) { w.HalfOpen() })
			wait(cutFor)
		}},
		{name: "messages trimmed", loses: dayLimit / 4, do: func(*tour) {
			for end := time.Now().Add(cutFor / 3); time.Now().Before(end); wait(20 * time.Millisecond) {
				for _, s := range c.servers {
					s.Do("XTRIM", "hg:{%regions}:news", "MAXLEN", "0")
				}
			}
		}},
	}
}

// processFaults are those of processes and servers.
func (c *continent) processFaults() []regionFault {
	return []regionFault{
		{name: "SIGKILL", short: true, loses: dayLimit / 6, do: func(*tour) {
			n := c.acting(eu)
			n.kill()
			wait(500 * time.Millisecond)
			n.start()
		}},
		{name: "SIGSTOP", do: func(*tour) {
			n := c.acting(us)
			n.signal(syscall.SIGSTOP)
			wait(cutFor)
			n.signal(syscall.SIGCONT)
		}},
		{name: "a Redis stalled", do: func(*tour) {
			c.servers[us].Pause()
			wait(cutFor / 2)
			c.servers[us].Resume()
		}},
		{name: "a Redis restarted with its data", loses: dayLimit / 6, do: func(*tour) {
			c.servers[us].Kill()
			wait(500 * time.Millisecond)
			c.servers[us].Restart()
		}},
		{name: "a Redis restarted empty", do: func(s *tour) {
			c.servers[eu].Kill()
			s.forgot = append(s.forgot, eu)
			s.before = s.used(eu)
			wait(500 * time.Millisecond)
			c.servers[eu].Restart()
		}, loses: dayLimit / 6},
	}
}

// onASentinel has a region with a primary that is replaced, which loses nothing: it accepts
// no writes from before its replicas have all of them until it dies.
func onASentinel(t *testing.T, bin string) *continent {
	t.Helper()
	if settings.regions != "all" {
		return nil
	}
	c := newContinent(t, bin)
	set := redistest.Sentinel(t)
	c.servers[us], c.servers[ap] = redistest.Standalone(t), redistest.Standalone(t)
	c.startWith("redis+sentinel://" + strings.Join(set.Addrs(), ",") + "/" + redistest.MasterName)
	c.faults = []regionFault{{name: "Sentinel fail-over", loses: dayLimit / 6, do: func(s *tour) {
		set.Primary.Do("CLIENT", "PAUSE", "20000", "WRITE")
		s.until("replicas have all", func() bool { return set.Primary.Do("WAIT", "2", "100") == "2" })
		set.KillPrimary()
		set.AwaitFailover()
	}}}
	return c
}

// onACluster has a region whose nodes move the messages and the keys.
func onACluster(t *testing.T, bin string) *continent {
	t.Helper()
	if settings.regions != "all" {
		return nil
	}
	c := newContinent(t, bin)
	set := redistest.Cluster(t)
	c.servers[us], c.servers[ap] = redistest.Standalone(t), redistest.Standalone(t)
	c.startWith("redis+cluster://" + strings.Join(set.Addrs(), ","))
	owner := func(slot int) int { return slot * len(set.Primaries) / redistest.Slots }
	c.faults = []regionFault{{name: "Cluster slots moved", loses: dayLimit / 6, do: func(s *tour) {
		for _, key := range []string{"hg:{%regions}:news", "{" + s.id + "}"} {
			slot := set.Slot(key)
			from := owner(slot)
			set.MoveSlot(slot, set.Primaries[from], set.Primaries[(from+1)%len(set.Primaries)], func() { wait(200 * time.Millisecond) })
		}
	}}, {name: "Cluster fail-over", loses: dayLimit / 6, do: func(s *tour) {
		slot := set.Slot("hg:{%regions}:lead") // of the messages; it was moved
		i := (owner(slot) + 1) % len(set.Primaries)
		s.until("the replica has all", func() bool { return set.Primaries[i].Do("WAIT", "1", "100") == "1" })
		s.forgot, s.before = append(s.forgot, eu), s.used(eu) // if keys were there as well
		set.KillPrimary(i)
		set.AwaitFailover(i)
	}}}
	return c
}
