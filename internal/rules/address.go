package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/headgate/headgate/internal/base/clip"
)

// addressSet is a set of addresses as prefixes: a scan for a few of them, a
// table for many.
type addressSet struct {
	prefixes []netip.Prefix
	table    *bart.Lite
}

// tableFrom is from how many prefixes a table beats a scan.
const tableFrom = 8

// SomeAddress stands in for an unknown client address. Every condition on addresses
// holds for it, so that clients cannot bypass a rule by hiding. It is the unspecified
// address, which no client has.
func SomeAddress() netip.Addr { return netip.IPv6Unspecified() }

func newAddressSet(prefixes []netip.Prefix) addressSet {
	s := addressSet{prefixes: prefixes}
	if len(prefixes) >= tableFrom {
		s.table = &bart.Lite{}
		for _, p := range prefixes {
			s.table.Insert(p)
		}
	}
	return s
}

func (s *addressSet) contains(a netip.Addr) bool {
	if s.table != nil {
		return s.table.Contains(a)
	}
	for _, p := range s.prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// ParsePrefix reads an address or a CIDR prefix. IPv4 written inside IPv6
// becomes IPv4, as a request's address does.
func ParsePrefix(source string) (netip.Prefix, error) {
	if !strings.Contains(source, "/") {
		a, err := netip.ParseAddr(source)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("invalid address %s: want an IP address or prefix, such as 192.0.2.7 or 10.0.0.0/8", clip.Quote(source))
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(source)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("invalid IP prefix %s: want one such as 10.0.0.0/8", clip.Quote(source))
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s mixes IPv4 and IPv6; write an IPv4 prefix", clip.Quote(source))
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits set after its prefix length, did you mean %q?", clip.Quote(source), m)
	}
	return p, nil
}
