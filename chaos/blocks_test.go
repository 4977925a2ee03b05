package chaos

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/testkit/redistest"
)

// blockRules have a limit in blocks that is exact, and one that can be exceeded by a known
// number of tokens. A request that the store does not answer is refused, since what a policy
// lets pass is not the blocks' doing.
const blockRules = `domain: chaos
limits:
  - {name: window, match: {attributes: {limit: window}}, key: [id], rate: 6000/day, algorithm: fixed_window, anchor: first_request, sync: blocks, on_store_error: deny}
  - {name: bucket, match: {attributes: {limit: bucket}}, key: [id], rate: 3000/s, burst: 1500, sync: {mode: blocks, max_age: 1s, max_over: 20%}, on_store_error: deny}
`

const (
	windowLimit            = 6000
	bucketRate, bucketSize = 3000, 1500
	bucketOver             = 300                    // a fifth of bucketSize
	blockAge               = 100 * time.Millisecond // in which that is refilled; in windows it is a second
	fleetSize              = 4
)

// TestBlocksUnderFaults: four processes share limits in blocks while something breaks. No
// limit is exceeded by more than headgate_over_admission_bound_tokens says, and of a window
// is left at most what headgate_under_admission_bound_tokens says. (What a bucket admits
// above its limit is least here, as callers rarely hold all of a block back and then use it
// at once; TestTheBoundIsReached in store/blocks does.)
func TestBlocksUnderFaults(t *testing.T) {
	if settings.blocks == 0 {
		t.Skip("make blocks-faults")
	}
	dir := t.TempDir()
	headgate := build(t, dir, "..", "./cmd/headgate")
	stepped := build(t, dir, ".", "./steppednode")
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() {
		_ = w.Flush()
		t.Logf("\n%s", &table)
	}()
	_, _ = fmt.Fprintln(w, "fault\twindow\tof\tat least\tbucket\tof\tmost above\tbound\tcommands\tper 1000\tseconds\t")
	for _, open := range []func(*testing.T) *fleet{
		func(t *testing.T) *fleet { return onOneRedis(t, headgate) },
		func(t *testing.T) *fleet { return onSentinel(t, headgate) },
		func(t *testing.T) *fleet { return onCluster(t, headgate) },
		func(t *testing.T) *fleet { return withClocks(t, stepped) },
	} {
		f := open(t)
		for range settings.blocks {
			for _, fault := range f.faults {
				f.play(fault, w)
			}
		}
		f.end()
	}
}

// onOneRedis has faults of processes and of their connections.
func onOneRedis(t *testing.T, bin string) *fleet {
	t.Helper()
	server := redistest.Standalone(t)
	f := &fleet{t: t, stores: func() []*redistest.Server { return []*redistest.Server{server} }}
	wires := make([]*redistest.Proxy, fleetSize)
	for i := range wires {
		wires[i] = redistest.NewProxy(t, server.Addr)
		f.start(bin, fmt.Sprintf("{redis: {url: \"redis://%s\", timeout: 150ms}}", wires[i].Addr))
	}
	n, wire := f.nodes[0], wires[0]
	f.faults = []blockFault{
		{name: "none", do: func(*scene) {}},
		{name: "SIGKILL", do: func(s *scene) { s.crash(0) }},
		{name: "SIGTERM", old: true, do: func(*scene) { n.stop(); n.start() }},
		{name: "SIGSTOP past the age", do: func(*scene) {
			n.signal(syscall.SIGSTOP)
			wait(12 * blockAge)
			n.signal(syscall.SIGCONT)
		}},
		{name: "one wire stalled", do: func(*scene) { wire.Stall(); wait(1200 * time.Millisecond); wire.Heal() }},
		{name: "one wire cut", do: func(*scene) { wire.Cut(); wait(300 * time.Millisecond); wire.Heal() }},
		{name: "one wire half open", do: func(*scene) { wire.HalfOpen(); wait(300 * time.Millisecond) }},
		{name: "all wires slow", do: func(*scene) {
			for _, w := range wires {
				w.Delay(20 * time.Millisecond)
			}
			wait(500 * time.Millisecond)
			for _, w := range wires {
				w.Heal()
			}
		}},
		{name: "Redis stalled", do: func(*scene) { server.Pause(); wait(300 * time.Millisecond); server.Resume() }},
		{name: "scripts flushed", do: func(*scene) { server.Do("SCRIPT", "FLUSH") }},
	}
	return f
}

// onSentinel has a fail-over that loses nothing: the primary accepts no writes from before
// its replicas have all of them until it dies. What a replica lacks would be lost for exact
// counts as well.
func onSentinel(t *testing.T, bin string) *fleet {
	t.Helper()
	set := redistest.Sentinel(t)
	servers := append([]*redistest.Server{set.Primary}, set.Replicas...)
	f := &fleet{t: t, stores: func() []*redistest.Server { return servers }}
	for range fleetSize {
		f.start(bin, fmt.Sprintf("{redis: {url: \"redis+sentinel://%s,%s,%s/%s\", timeout: 150ms}}",
			set.Addrs()[0], set.Addrs()[1], set.Addrs()[2], redistest.MasterName))
	}
	f.faults = []blockFault{{name: "Sentinel fail-over", once: true, old: true, do: func(s *scene) {
		s.until("the bucket has admitted a third of what it could", func() bool { // little may come after the fail-over
			return float64(s.bucket.admitted.Load()) >= (bucketSize+float64(bucketRate)*time.Since(s.began).Seconds())/3
		})
		set.Primary.Do("CLIENT", "PAUSE", "20000", "WRITE")
		s.until("replicas have all", func() bool { return set.Primary.Do("WAIT", "2", "100") == "2" })
		s.forgets(set.Primary)
		set.KillPrimary()
		set.AwaitFailover()
	}}}
	return f
}

// onCluster moves the slots of both keys to another primary while they are used.
func onCluster(t *testing.T, bin string) *fleet {
	t.Helper()
	set := redistest.Cluster(t)
	f := &fleet{t: t, stores: func() []*redistest.Server { return set.Primaries }}
	for range fleetSize {
		f.start(bin, fmt.Sprintf("{redis: {url: \"redis+cluster://%s,%s\", timeout: 150ms}}", set.Addrs()[0], set.Addrs()[1]))
	}
	f.faults = []blockFault{{name: "Cluster slot moved", do: func(s *scene) {
		owners := make(map[int]int) // of the slots of both keys, which may be one
		for i, from := range set.Primaries {
			for _, key := range s.keysOn(from) {
				owners[set.Slot(key)] = i
			}
		}
		for slot, i := range owners {
			to := set.Primaries[(i+1)%len(set.Primaries)]
			set.MoveSlot(slot, set.Primaries[i], to, func() { wait(200 * time.Millisecond) })
		}
		if len(owners) == 0 {
			s.t.Errorf("%s: no key was found", s.name)
		}
	}}}
	return f
}

// withClocks has processes whose wall clocks differ by ten seconds, and are set.
func withClocks(t *testing.T, bin string) *fleet {
	t.Helper()
	server := redistest.Standalone(t)
	f := &fleet{t: t, stores: func() []*redistest.Server { return []*redistest.Server{server} }}
	clocks := make([]*clock, fleetSize)
	offset := func(i int) int64 { return (int64(i%3) - 1) * 5_000_000 }
	for i := range clocks {
		clocks[i] = newClock(t, &site{t: t})
		clocks[i].set(offset(i))
		f.start(bin, fmt.Sprintf("{redis: {url: \"redis://%s\", timeout: 150ms}}", server.Addr), "CHAOS_CLOCK="+clocks[i].file.Name())
	}
	f.faults = []blockFault{{name: "clocks off by 5 s", do: func(*scene) {}}, {name: "clocks set by 5 s", do: func(*scene) {
		for i, c := range clocks {
			c.set(-offset(i + 1))
		}
		wait(300 * time.Millisecond)
		for i, c := range clocks {
			c.set(offset(i))
		}
	}}}
	return f
}
