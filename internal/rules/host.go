package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// hostPattern is a host, or, with a suffix such as ".example.com", all hosts
// below it.
type hostPattern struct {
	source string
	exact  string
	suffix string
}

// ParseHost reads example.com or *.example.com. It returns also the text that two
// patterns share which are the same.
func ParseHost(source string) (Pattern, string, error) {
	host := strings.ToLower(strings.TrimSuffix(source, "."))
	switch {
	case strings.Contains(host, "//"):
		return nil, "", fmt.Errorf("the host %s must be a name without a scheme", clip.Quote(source))
	case isAddress(host):
		return newHost(hostPattern{source: source, exact: strings.Trim(host, "[]")})
	case strings.Contains(host, ":"):
		return nil, "", fmt.Errorf("the host %s has a port; leave it out, it does not count", clip.Quote(source))
	}
	name, wild := strings.CutPrefix(host, "*.")
	if strings.Contains(name, "*") {
		return nil, "", fmt.Errorf("the host %s may have a * only as its first label, such as *.example.com", clip.Quote(source))
	}
	if len(name) > 253 || !isHostName(name) {
		return nil, "", fmt.Errorf("%s is not a host name (names beyond ASCII are written in their xn-- form)", clip.Quote(source))
	}
	if wild {
		return newHost(hostPattern{source: source, suffix: "." + name})
	}
	return newHost(hostPattern{source: source, exact: name})
}

func newHost(p hostPattern) (Pattern, string, error) { return &p, p.exact + "*" + p.suffix, nil }

func isAddress(host string) bool {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

func isHostName(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func (p *hostPattern) literal() (string, bool) { return p.exact, p.suffix == "" }

func (p *hostPattern) pieces() []string { return []string{p.exact + p.suffix} }

// match reports whether p covers a host that cleanHost returned.
func (p *hostPattern) match(host string) bool {
	if p.suffix == "" {
		return host == p.exact
	}
	return strings.HasSuffix(host, p.suffix) // nginx takes .example.com for *.example.com too
}

// cleanHost returns host in lower case, without port, brackets and trailing
// dot. It appends to scratch only if something has to be lowered.
func cleanHost(host string, scratch []byte) (string, []byte) {
	if strings.HasPrefix(host, "[") {
		if i := strings.IndexByte(host, ']'); i > 0 {
			host = host[1:i]
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 && (strings.IndexByte(host[i+1:], ':') < 0 || !isAddress(host)) {
		// An IPv6 address without brackets has several colons; a name with two
		// ports is still that name.
		host = host[:i]
	}
	host = strings.TrimRight(host, ".")
	return mapASCII(host, 'A', 'Z', 'a'-'A', scratch)
}

// cleanMethod returns method in upper case.
func cleanMethod(method string, scratch []byte) (string, []byte) {
	return mapASCII(method, 'a', 'z', 'A'-'a', scratch)
}

// mapASCII adds by to every byte from low to high. It returns text itself if
// there is none, and otherwise appends to scratch.
func mapASCII(text string, low, high byte, by int, scratch []byte) (string, []byte) {
	changes := false
	for i := range len(text) {
		if c := text[i]; c >= low && c <= high {
			changes = true
			break
		}
	}
	if !changes {
		return text, scratch
	}
	start := len(scratch)
	scratch = append(scratch, text...)
	for i, c := range scratch[start:] {
		if c >= low && c <= high {
			scratch[start+i] = byte(int(c) + by)
		}
	}
	return view(scratch[start:]), scratch
}
