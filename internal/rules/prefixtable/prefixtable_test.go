package prefixtable_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/rules/prefixtable"
)

// table makes a table of prefixes, whose rows have their places in the list as lines.
func table(prefixes ...string) *prefixtable.Table {
	var b prefixtable.Builder
	for i, p := range prefixes {
		b.Add(netip.MustParsePrefix(p), prefixtable.Row{Line: uint32(i + 1)})
	}
	return b.Table()
}

func TestFind(t *testing.T) {
	set := table("10.0.0.0/8", "203.0.113.7/32", "10.1.0.0/16", "255.255.255.255/32", "2001:db8::/32", "2001:db8:1::/48", "ff::1/128")
	if set.Len() != 5 {
		t.Errorf("%d prefixes, want 5: two are inside others", set.Len())
	}
	for address, line := range map[string]uint32{
		"10.0.0.0": 1, "10.1.2.3": 1, "10.255.255.255": 1, "9.255.255.255": 0, "11.0.0.0": 0, "0.0.0.0": 0,
		"203.0.113.7": 2, "203.0.113.6": 0, "203.0.113.8": 0, "255.255.255.255": 4, "255.255.255.254": 0,
		"2001:db8::": 5, "2001:db8:1::5": 5, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff": 5, "2001:db9::": 0, "2001:db7:ffff::": 0,
		"ff::1": 7, "ff::2": 0, "::": 0, "::ffff:10.0.0.1": 0,
	} {
		p, row, ok := set.Find(netip.MustParseAddr(address))
		if row.Line != line || ok != (line > 0) || set.Has(netip.MustParseAddr(address)) != ok {
			t.Errorf("Find(%s) = %s, %v, %v, want line %d", address, p, row, ok, line)
		}
	}
	if _, _, ok := set.Find(netip.Addr{}); ok {
		t.Error("the zero Addr is in no prefix")
	}
	var none *prefixtable.Table
	if _, _, ok := none.Find(netip.MustParseAddr("10.0.0.1")); ok || none.Len() != 0 || none.Size() != 0 {
		t.Error("a nil table is empty")
	}
	if _, _, ok := none.Overlapping(netip.MustParsePrefix("::/0")); ok {
		t.Error("a nil table overlaps nothing")
	}
}

func TestEverything(t *testing.T) {
	set := table("0.0.0.0/0", "::/0", "10.0.0.0/8")
	for _, address := range []string{"0.0.0.0", "255.255.255.255", "10.0.0.1", "::", "ffff::1"} {
		if _, _, ok := set.Find(netip.MustParseAddr(address)); !ok {
			t.Errorf("%s is not found", address)
		}
	}
	if set.Len() != 2 {
		t.Errorf("%d prefixes, want 2", set.Len())
	}
}

func TestContainingAndOverlapping(t *testing.T) {
	set := table("10.0.0.0/9", "10.128.0.0/9", "2001:db8:0:1::5/128")
	for prefix, want := range map[string][2]bool{
		"10.0.0.0/9": {true, true}, "10.3.0.0/16": {true, true},
		"10.0.0.0/8":          {false, true}, // two together
		"0.0.0.0/0":           {false, true},
		"9.0.0.0/8":           {false, false},
		"11.0.0.0/8":          {false, false},
		"2001:db8:0:1::/64":   {false, true},
		"2001:db8:0:2::/64":   {false, false},
		"2001:db8:0:1::5/128": {true, true},
	} {
		p := netip.MustParsePrefix(prefix)
		_, _, contains := set.Containing(p)
		_, _, overlaps := set.Overlapping(p)
		if got := [2]bool{contains, overlaps}; got != want {
			t.Errorf("%s: contained, overlapping %v, want %v", prefix, got, want)
		}
	}
}

// A scan of all prefixes is the oracle, in spaces so small that prefixes often contain
// each other.
func TestAgainstAScan(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var list []netip.Prefix
		var b prefixtable.Builder
		address := func() netip.Addr {
			if random.IntN(2) == 0 {
				return netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))})
			}
			return netip.AddrFrom16([16]byte{7: byte(random.IntN(4)), 8: byte(random.IntN(3)) << 6, 15: byte(random.IntN(4))})
		}
		prefix := func() netip.Prefix {
			a := address()
			p, err := a.Prefix(a.BitLen() - random.IntN(7)*random.IntN(2)*(1+random.IntN(11)*(a.BitLen()/128)))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		for i := range random.IntN(12) * random.IntN(12) {
			list = append(list, prefix())
			b.Add(list[i], prefixtable.Row{Line: uint32(i)})
		}
		set := b.Table()
		p := prefix()
		contains, overlaps := false, false
		for _, q := range list {
			contains = contains || q.Bits() <= p.Bits() && q.Contains(p.Addr())
			overlaps = overlaps || q.Overlaps(p)
		}
		if has := set.Has(p.Addr()); has != slices.ContainsFunc(list, func(q netip.Prefix) bool { return q.Contains(p.Addr()) }) {
			t.Fatalf("%v: Has(%s) = %v", list, p.Addr(), has)
		}
		found, row, ok := set.Containing(p)
		if ok != contains || ok && (list[row.Line] != found || !found.Contains(p.Addr())) {
			t.Fatalf("%v: Containing(%s) = %s, %v, %v", list, p, found, row, ok)
		}
		if found, row, ok := set.Overlapping(p); ok != overlaps || ok && list[row.Line] != found {
			t.Fatalf("%v: Overlapping(%s) = %s, %v, %v", list, p, found, row, ok)
		}
	}
}

func BenchmarkHas(b *testing.B) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		b.Run(name, func(b *testing.B) {
			const n = 1_000_000
			random := rand.New(rand.NewPCG(1, 2))
			var builder prefixtable.Builder
			addresses := make([]netip.Addr, 1<<16)
			for i := range n {
				x := random.Uint64()
				a := netip.AddrFrom4([4]byte{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24)})
				bits := 24 + int(x>>32%9)
				if v6 {
					a, bits = netip.AddrFrom16([16]byte{0x20, byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24), byte(x >> 32), byte(x >> 40)}), 48+int(x>>48%17)
				}
				p, err := a.Prefix(bits)
				if err != nil {
					b.Fatal(err)
				}
				builder.Add(p, prefixtable.Row{Line: uint32(i)})
				addresses[i%len(addresses)] = a
			}
			set := builder.Table()
			b.ReportMetric(float64(set.Size())/float64(set.Len()), "B/entry")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !set.Has(addresses[i%len(addresses)]) {
					b.Fatal("not found")
				}
			}
		})
	}
}
