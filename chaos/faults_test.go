package chaos

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/chaos/history"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// fault breaks something. It works again when do returns.
type fault struct {
	name string
	do   func()
}

// opening is a way to set up a site.
type opening struct {
	name     string
	parallel bool
	start    func(t *testing.T, s *site)
}

// sites are all sites.
func sites(headgate, stepped string) []opening {
	return []opening{
		{"memory", true, func(t *testing.T, s *site) { s.memory(t, headgate) }},
		{"memory-clock", true, func(t *testing.T, s *site) { s.steppedMemory(t, stepped) }},
		{"redis", true, func(t *testing.T, s *site) { s.redis(t, headgate, 0) }},
		{"redis-remembering", true, func(t *testing.T, s *site) { s.redis(t, headgate, 16384) }},
		{"redis-clock", true, func(t *testing.T, s *site) { s.steppedRedis(t, headgate) }},
		{"sentinel", true, func(t *testing.T, s *site) { s.sentinel(t, headgate) }},
	}
}

// memory is a node that keeps counts itself, and saves them.
func (s *site) memory(t *testing.T, bin string) {
	t.Helper()
	n := startNode(t, bin, "memory", "{memory: {snapshot: DIR/state, snapshot_interval: 1s}}")
	s.nodes = []*node{n}
	s.faults = append(s.nodeFaults(n), fault{"kill", func() { s.crash(n) }})
}

// crash kills a node and starts it again. What it has taken since its last snapshot may be
// lost.
func (s *site) crash(n *node) {
	call := s.now()
	n.kill()
	since := s.aligned
	if info, err := os.Stat(n.snapshot); err == nil {
		since = info.ModTime().UnixMicro() - saving
	}
	s.forgot(history.Lost, call, since)
	n.start()
}

// saving is how long a snapshot may take on a busy machine.
const saving = 200_000

// nodeFaults are faults of a node that lose nothing.
func (s *site) nodeFaults(n *node) []fault {
	some := func() time.Duration {
		return 100*time.Millisecond + time.Duration(s.rand.Int64N(int64(700*time.Millisecond)))
	}
	return []fault{
		{"restart", func() { n.stop(); n.start() }},
		{"stall", func() { n.signal(syscall.SIGSTOP); wait(some()); n.signal(syscall.SIGCONT) }},
		{"reload", n.reload},
		{"callers reset", func() {
			for _, w := range n.wires() {
				w.Reset()
			}
		}},
		{"callers half open", func() { n.wires()[s.rand.IntN(3)].HalfOpen() }},
		{"callers stalled", func() { w := n.wires()[s.rand.IntN(3)]; w.Stall(); wait(some()); w.Heal() }},
		{"nothing", func() { wait(some()) }},
	}
}

// redis is some nodes with one Redis, each with a separate connection that can be broken.
func (s *site) redis(t *testing.T, bin string, remember int) {
	t.Helper()
	server := redistest.Standalone(t, "--appendonly", "yes", "--appendfsync", "everysec")
	s.onRedis(t, bin, server, remember)
	s.faults = append(s.faults,
		fault{"redis killed", func() { server.Kill(); wait(50 * time.Millisecond); server.Restart() }},
		fault{"redis stalled", func() { server.Pause(); wait(300 * time.Millisecond); server.Resume() }},
		fault{"redis emptied", func() {
			call := s.now()
			server.Do("FLUSHALL")
			s.forgot(history.Emptied, call, 0)
		}},
		fault{"scripts flushed", func() { server.Do("SCRIPT", "FLUSH") }},
	)
}

// reach is how far off the time of a refunded take may be, because a node knows it from its
// own clock.
const reach = 70_000

// onRedis starts nodes on a server.
func (s *site) onRedis(t *testing.T, bin string, server *redistest.Server, remember int) {
	t.Helper()
	s.vague, s.reach = remember > 0, reach
	for i := range 2 {
		wire := redistest.NewProxy(t, server.Addr)
		n := startNode(t, bin, fmt.Sprintf("node-%d", i), fmt.Sprintf("{redis: {url: \"redis://%s\", timeout: 150ms, deny_cache: %d}}", wire.Addr, remember))
		s.nodes = append(s.nodes, n)
		s.faults = append(s.faults, s.nodeFaults(n)...)
		s.faults = append(s.faults,
			fault{"node killed", func() { n.kill(); n.start() }},
			fault{"wire cut", func() { wire.Cut(); wait(300 * time.Millisecond); wire.Heal() }},
			fault{"wire stalled", func() { wire.Stall(); wait(500 * time.Millisecond); wire.Heal() }},
			fault{"wire slow", func() { wire.Delay(20 * time.Millisecond); wait(500 * time.Millisecond); wire.Heal() }},
			fault{"wire reset", wire.Reset},
			fault{"wire half open", wire.HalfOpen},
		)
	}
}

// sentinel is some nodes with a Redis that is replaced by a replica.
func (s *site) sentinel(t *testing.T, bin string) {
	t.Helper()
	set := redistest.Sentinel(t)
	s.reach = reach
	for i := range 2 {
		n := startNode(t, bin, fmt.Sprintf("node-%d", i), fmt.Sprintf(
			"{redis: {url: \"redis+sentinel://%s,%s,%s/%s\", timeout: 150ms, deny_cache: 0}}",
			set.Addrs()[0], set.Addrs()[1], set.Addrs()[2], redistest.MasterName))
		s.nodes = append(s.nodes, n)
		s.faults = append(s.faults, s.nodeFaults(n)...)
	}
	epoch := set.Epoch()
	s.unasked = func() bool {
		known := epoch
		epoch = set.Epoch()
		return epoch != known
	}
	servers := append([]*redistest.Server{set.Primary}, set.Replicas...)
	primary := func() *redistest.Server {
		for _, x := range servers {
			if x.Addr == set.PrimaryAddr() {
				return x
			}
		}
		return set.Primary
	}
	fail := fault{"fail-over", func() {
		old := primary()
		began := s.now()
		old.Kill()
		s.losing(began, func() bool { return set.PrimaryAddr() != old.Addr })
		began = s.now()
		old.Restart() // it acts as the primary until the sentinels have told it
		s.losing(began, func() bool { return follows(old) })
		epoch = set.Epoch()
	}}
	asked := fault{"fail-over by hand", func() {
		old := primary()
		began := s.now()
		if _, err := set.Sentinels[0].Command("SENTINEL", "FAILOVER", redistest.MasterName); err != nil {
			return // one is still in progress
		}
		s.losing(began, func() bool { return set.PrimaryAddr() != old.Addr && follows(old) })
		epoch = set.Epoch()
	}}
	s.faults = append(s.faults, fail, asked, asked)
}

// follows reports whether a server has become a replica.
func follows(s *redistest.Server) bool {
	info, err := s.Command("INFO", "replication")
	text, _ := info.(string)
	return err == nil && strings.Contains(text, "role:slave")
}

// lag is how far a replica on this machine may be behind.
const lag = 500_000

// losing waits until over reports a single primary again that the nodes use. Until then two
// primaries do not know of each other's takes.
func (s *site) losing(since int64, over func() bool) {
	for end := time.Now().Add(30 * time.Second); !over() && time.Now().Before(end); {
		wait(30 * time.Millisecond)
	}
	wait(time.Second)
	s.forgot(history.Lost, since, since-lag)
}

// clock is a wall clock that a process uses.
type clock struct {
	file *os.File
	site *site
	now  int64
}

func newClock(t *testing.T, s *site) *clock {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c := &clock{f, s, 0}
	c.write(0)
	return c
}

func (c *clock) write(ahead int64) {
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0); err != nil {
		c.site.t.Error(err)
	}
}

// set puts it ahead of the real clock, or behind.
func (c *clock) set(ahead int64) {
	c.write(ahead)
	c.now = ahead
}

// steppedMemory is a node whose wall clock is set for a moment, by seconds or by years. Its
// internal clock stays, or follows so slowly that it is within the slack.
func (s *site) steppedMemory(t *testing.T, bin string) {
	t.Helper()
	c := newClock(t, s)
	n := startNode(t, bin, "memory", "{memory: {snapshot: DIR/state, snapshot_interval: 1s}}", "CHAOS_CLOCK="+c.file.Name())
	s.nodes, s.slack = []*node{n}, 60_000
	s.faults = s.nodeFaults(n)
	for _, by := range []time.Duration{5 * time.Second, -5 * time.Second, 40 * time.Second, -40 * time.Second, time.Hour, -time.Hour, -48 * time.Hour, 87_600 * time.Hour} {
		s.faults = append(s.faults, fault{"clock set by " + by.String(), func() {
			c.set(by.Microseconds())
			wait(100*time.Millisecond + time.Duration(s.rand.Int64N(int64(500*time.Millisecond))))
			c.set(0)
		}})
	}
}

// steppedRedis is some nodes with a Redis whose wall clock is set.
func (s *site) steppedRedis(t *testing.T, bin string) {
	t.Helper()
	c := newClock(t, s)
	library := filepath.Join(t.TempDir(), "clock.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O2", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	wrapper := filepath.Join(t.TempDir(), "redis")
	text := fmt.Sprintf("#!/bin/sh\nLD_PRELOAD=%s CHAOS_CLOCK=%s exec %s \"$@\"\n", library, c.file.Name(), redistest.Bin(t))
	if err := os.WriteFile(wrapper, []byte(text), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	before := os.Getenv("HEADGATE_REDIS_BIN")
	if err := os.Setenv("HEADGATE_REDIS_BIN", wrapper); err != nil { // t.Setenv does not work in parallel tests
		t.Fatal(err)
	}
	server := redistest.Standalone(t)
	_ = os.Setenv("HEADGATE_REDIS_BIN", before)
	s.onRedis(t, bin, server, 0)
	for range 8 {
		s.faults = append(s.faults, fault{"clock set", func() {
			s.step(c, s.rand.Int64N(6_000_000)-2_000_000)
		}})
	}
}

// step sets the clock, which is then somewhere between before and after.
func (s *site) step(c *clock, ahead int64) {
	s.shift(min(c.now, ahead), max(c.now, ahead))
	if ahead < c.now {
		s.add(history.Op{Kind: history.Set, Client: callers, Call: s.now(), Return: s.now(), Since: s.now() + c.now + 2000})
	}
	c.set(ahead)
	s.shift(ahead, ahead)
}

func (s *site) shift(least, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.Clock = append(s.history.Clock, history.Shift{From: s.now(), Least: least, Most: most})
}
