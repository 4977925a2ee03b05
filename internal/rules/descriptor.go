package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// Entry is one step of a descriptor, such as remote_address, 198.51.100.7.
type Entry struct{ Key, Value string }

// Descriptor is a request with the ordered entries of one Envoy descriptor. For
// Headgate's own rules, each entry is the attribute named by its key, such as path,
// method, host or header:X-Plan. An entry remote_address is the client's address,
// unless there is a client_ip. If a key appears twice, the first entry counts.
type Descriptor struct{ Entries []Entry }

// OrderedRequest is a Request that also has the entries of a descriptor. Descriptor
// rules use the entries, in order, and ignore the attributes.
type OrderedRequest interface {
	Request
	// Descriptor returns the entries, the outermost first.
	Descriptor() []Entry
}

// Descriptor implements [OrderedRequest].
func (d *Descriptor) Descriptor() []Entry { return d.Entries }

// Attribute implements [Request].
func (d *Descriptor) Attribute(a Attribute) (value string, ok bool) {
	for i := range d.Entries {
		if e := &d.Entries[i]; a.isCalled(e.Key) {
			return e.Value, true
		}
	}
	if a.Kind == ClientIP {
		return d.Attribute(Attribute{Kind: Other, Name: RemoteAddress})
	}
	return "", false
}

// RemoteAddress is the key under which Envoy sends the client's address.
const RemoteAddress = "remote_address"

// ClientIP implements [Request].
func (d *Descriptor) ClientIP() netip.Addr {
	text, ok := d.Attribute(Attribute{Kind: ClientIP})
	if !ok {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// isCalled reports whether rules write a as key. Case does not count in the
// names of headers.
func (a Attribute) isCalled(key string) bool {
	switch a.Kind {
	case Other:
		return a.Name == key
	case Header, Query, Cookie, JWT:
		prefix := a.Kind.String()
		if len(key) != len(prefix)+1+len(a.Name) || key[len(prefix)] != ':' || !strings.HasPrefix(key, prefix) {
			return false
		}
		name := key[len(prefix)+1:]
		return name == a.Name || a.Kind == Header && strings.EqualFold(name, a.Name)
	case Method, Path, Host, ClientIP:
	}
	return a.Kind.String() == key
}

// ParseDescriptor reads a descriptor as one writes it on a command line:
// key=value,key=value, the outermost entry first. A backslash takes the meaning
// from a comma, an equals sign in a key, or a backslash after it. A key alone
// has an empty value.
func ParseDescriptor(text string) ([]Entry, error) {
	if text == "" {
		return nil, errors.New("the descriptor is empty: want key=value,key=value")
	}
	var entries []Entry
	var part strings.Builder
	e, inValue := Entry{}, false
	end := func() error {
		if inValue {
			e.Value = part.String()
		} else {
			e.Key = part.String()
		}
		if e.Key == "" {
			return fmt.Errorf("entry %d of the descriptor %s has no key: want key=value,key=value", len(entries)+1, clip.Quote(text))
		}
		entries = append(entries, e)
		e, inValue = Entry{}, false
		part.Reset()
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			part.WriteByte(text[i])
		case c == '=' && !inValue:
			e.Key, inValue = part.String(), true
			part.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			part.WriteByte(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return entries, nil
}

// maxMetricValue is how many bytes of a value are in the name of a metric.
const maxMetricValue = 64

// SplitsMetric reports whether the rule asks for metrics by the values of its
// descriptors, which AppendMetric then names.
func (r *Rule) SplitsMetric() bool { return r.DetailedMetric || len(r.MetricValues) > 0 }

// AppendMetric appends to b the name of the metric, of those that the rule asks
// for, that a request of these entries belongs to: the path of the descriptor as
// envoyproxy/ratelimit writes it, such as tenant_a.user_bob. It has the values of
// the entries where detailed_metric or value_to_metric asks for them and
// share_threshold does not count them together. It is short, of one line and
// valid UTF-8 whatever they are. It is only for requests that the rule applies to.
func (r *Rule) AppendMetric(b []byte, entries []Entry) []byte {
	for i, s := range r.steps {
		if i > 0 {
			b = append(b, '.')
		}
		e := Entry{s.Key, s.Value}
		if s.Kind == BareStep {
			e.Value = ""
		}
		if i < len(entries) && s.Kind != SharedStep && (r.DetailedMetric || s.ValueToMetric) {
			e = entries[i]
		}
		b = clip.Append(b, e.Key, maxMetricValue)
		if e.Value != "" {
			b = clip.Append(append(b, '_'), e.Value, maxMetricValue)
		}
	}
	return b
}
