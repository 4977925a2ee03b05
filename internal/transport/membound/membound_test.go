package membound_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/transport/membound"
)

// caller is slow, or not, since it was created.
type caller struct {
	*membound.Account
	since time.Time
	fast  bool
	ended bool
}

func (c *caller) Slow(now time.Time, held int64) int64 {
	if c.fast {
		return 0
	}
	return held * now.Sub(c.since).Milliseconds()
}

func (c *caller) Evict() { c.ended = true }

func open(b *membound.Bound, addr string) *caller {
	c := &caller{since: time.Now()}
	c.Account = b.Open(c, netip.MustParseAddr(addr))
	return c
}

// networks treats each IPv4 address as a client, except loopback.
func networks(addr netip.Addr) (netip.Prefix, bool) {
	return netip.PrefixFrom(addr, 32), !addr.IsLoopback()
}

const mib = 1 << 20

// The holder that has held most for longest is ended, never a quick one. A caller is
// refused only if there is no slow holder.
func TestTheSlowMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membound.New(membound.Options{Most: 10 * mib})
		works, slow := open(b, "127.0.0.1"), open(b, "127.0.0.1")
		works.fast = true
		if !works.Take(6*mib) || !slow.Take(2*mib) {
			t.Fatal("no room")
		}
		time.Sleep(3 * time.Second)
		later := open(b, "127.0.0.1")
		if !later.Take(2 * mib) {
			t.Fatal("no room")
		}
		time.Sleep(2 * time.Second)
		if n := open(b, "127.0.0.1"); !n.Take(2*mib) || !slow.ended || later.ended {
			t.Errorf("slow %t, later %t; want slow to be ended", slow.ended, later.ended)
		}
		if slow.Take(1) {
			t.Error("one that was ended takes more")
		}
		if n := open(b, "127.0.0.1"); !n.Take(2*mib) || !later.ended {
			t.Error("the next one does not make room")
		}
		if n := open(b, "127.0.0.1"); n.Take(2 * mib) {
			t.Error("memory was taken although no holder is slow")
		}
		if works.ended || b.Held() != 10*mib || b.Evicted() != 2 {
			t.Errorf("works %t, %d held, %d evicted", works.ended, b.Held(), b.Evicted())
		}
		works.Close()
		works.Close()
		if b.Held() != 4*mib {
			t.Errorf("%d held", b.Held())
		}
	})
}

// One that holds little for some time, as a client that waits for an event, does not give way
// while others hold much.
func TestWhoHoldsLittleStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membound.New(membound.Options{Most: 8 * mib, Client: networks})
		waits := open(b, "192.0.2.1")
		if !waits.Take(mib / 16) {
			t.Fatal("no room")
		}
		time.Sleep(10 * time.Second)
		var many []*caller
		for i := range 4 * 64 {
			c := open(b, netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i%4)}).String())
			c.Take(mib / 4)
			many = append(many, c)
			time.Sleep(100 * time.Millisecond)
		}
		if n := open(b, "192.0.2.2"); !n.Take(mib/4) || waits.ended {
			t.Error("one that holds little gave way, or nobody")
		}
		ended := 0
		for _, c := range many {
			if c.ended {
				ended++
			}
		}
		if ended < 31 {
			t.Errorf("%d of those that hold much were ended, want at least 31", ended)
		}
	})
}

// The slowest holder cannot free memory by ending others.
func TestTheSlowestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membound.New(membound.Options{Most: 10 * mib})
		slow, other := open(b, "127.0.0.1"), open(b, "127.0.0.1")
		slow.Take(8 * mib)
		other.Take(1 * mib)
		time.Sleep(2 * time.Second)
		if slow.Take(2*mib) || other.ended || slow.ended {
			t.Errorf("other %t, slow %t", other.ended, slow.ended)
		}
	})
}

// Large holders are ended for small ones sooner than for large ones.
func TestSmallOnesWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membound.New(membound.Options{Most: 10 * mib})
		large := open(b, "127.0.0.1")
		large.Take(10 * mib)
		time.Sleep(100 * time.Millisecond)
		if open(b, "127.0.0.1").Take(2*mib) || large.ended {
			t.Error("a large one makes room for one of a fifth after a tenth of a second")
		}
		if !open(b, "127.0.0.1").Take(mib) || !large.ended {
			t.Error("a large one makes no room for one of a tenth after a tenth of a second")
		}
	})
}

// A client has a quarter of the memory. It frees memory at its own cost, and does not
// affect others.
func TestShareOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membound.New(membound.Options{Most: 40 * mib, Client: networks})
		first := open(b, "192.0.2.1")
		if !first.Take(10 * mib) {
			t.Fatal("no room")
		}
		if open(b, "192.0.2.1").Take(mib) {
			t.Error("more than its share")
		}
		other := open(b, "192.0.2.2")
		if !other.Take(10 * mib) {
			t.Error("the other has no room")
		}
		local := open(b, "127.0.0.1")
		if !local.Take(20 * mib) {
			t.Error("this machine has a share")
		}
		local.fast = true
		time.Sleep(2 * time.Second)
		if second := open(b, "192.0.2.1"); !second.Take(5*mib) || !first.ended || other.ended {
			t.Errorf("first %t, other %t; want the first to be ended", first.ended, other.ended)
		}
	})
}

// Memory that is already held always counts. If it exceeds the limit, a holder is ended:
// the slowest, or the one that holds most if none is slow. Within the share of a client
// only slow ones are.
func TestWhatIsKeptAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membound.New(membound.Options{Most: 40 * mib, Client: networks})
		young := open(b, "192.0.2.1")
		young.Took(15 * mib)
		if young.ended {
			t.Error("ended for its share, though it is not slow")
		}
		other := open(b, "192.0.2.2")
		other.Took(30 * mib)
		if !other.ended || young.ended {
			t.Errorf("other %t, young %t; want the other to be ended", other.ended, young.ended)
		}
		other.Took(-mib) // it does not know yet
		time.Sleep(2 * time.Second)
		next := open(b, "192.0.2.1")
		next.Took(mib)
		if !young.ended || next.ended || b.Held() != mib {
			t.Errorf("young %t, next %t, %d held", young.ended, next.ended, b.Held())
		}
	})
}

// TakeFree takes what is free, and ends nobody for more.
func TestTakeFree(t *testing.T) {
	b := membound.New(membound.Options{Most: 100})
	slow, other := new(idle), new(idle)
	a, c := b.Open(slow, netip.Addr{}), b.Open(other, netip.Addr{})
	if !a.TakeFree(60) || c.TakeFree(41) || !c.TakeFree(40) || a.TakeFree(1) || slow.ended || other.ended {
		t.Errorf("%d bytes are held; ended: %t, %t", b.Held(), slow.ended, other.ended)
	}
	if a.Close(); a.TakeFree(1) || b.Held() != 40 {
		t.Errorf("%d bytes are held", b.Held())
	}
}

// idle is a holder that is slow at all times.
type idle struct{ ended bool }

func (*idle) Slow(_ time.Time, held int64) int64 { return held * time.Hour.Milliseconds() }
func (i *idle) Evict()                           { i.ended = true }
