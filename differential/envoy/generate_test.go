package envoy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// domain is a random rule file, and the parts of requests to it.
type domain struct {
	name   string
	random *rand.Rand
	yaml   strings.Builder
	// units are those of this domain; few, so that counts collide.
	units []string
	nodes []*node
}

// node is a descriptor of the file.
type node struct {
	key, value string
	below      []*node
}

var (
	keys   = []string{"a", "a_b", "u", "path", "k*"}
	values = []string{"", "", "1", "x_1", "b_c", "c", "files", "files/1", "files*", "files/*", "*", "fi*", "2001:db8::1"} // a star at the end alone: the others are wildcards since March 2026, after the pinned version
	sent   = []string{"", "1", "x_1", "b_c", "c", "files", "files/1", "files/2", "filet", "other", "*", "fi*", "f*s", "*es", "2001:db8::1", strings.Repeat("long", 100)}
	limits = []uint32{0, 1, 2, 3, 3, 5, 10, 20, 100, 4294967295}
)

func newDomain(name string, seed uint64) *domain {
	d := &domain{name: name, random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // to be repeated
	all := []string{"minute", "hour", "DAY", "Week", "month", "YEAR"}
	if d.random.IntN(20) == 0 {
		all = []string{"second"}
	}
	for range 2 {
		d.units = append(d.units, d.pick(all))
	}
	fmt.Fprintf(&d.yaml, "domain: %s\ndescriptors:\n", name)
	d.nodes = d.level("  ", 3)
	return d
}

func (d *domain) pick(from []string) string { return from[d.random.IntN(len(from))] }
func (d *domain) one(in int) bool           { return d.random.IntN(in) == 0 }

// level writes descriptors, no two of which have the same composite key.
func (d *domain) level(indent string, deeper int) []*node {
	var nodes []*node
	taken := map[string]bool{}
	for range 1 + d.random.IntN(6) {
		n := &node{key: d.pick(keys), value: d.pick(values)}
		composite := n.key
		if n.value != "" {
			composite += "_" + n.value
		}
		if taken[composite] {
			continue
		}
		taken[composite] = true
		nodes = append(nodes, n)
		fmt.Fprintf(&d.yaml, "%s- key: %q\n", indent, n.key)
		if n.value != "" {
			fmt.Fprintf(&d.yaml, "%s  value: %q\n", indent, n.value)
		}
		if strings.HasSuffix(composite, "*") && d.one(3) {
			fmt.Fprintf(&d.yaml, "%s  share_threshold: true\n", indent)
		}
		for _, flag := range []string{"detailed_metric", "value_to_metric"} {
			if d.one(8) {
				fmt.Fprintf(&d.yaml, "%s  %s: true\n", indent, flag)
			}
		}
		if !d.one(5) {
			d.limit(indent + "  ")
		}
		if deeper > 1 && d.one(3) {
			fmt.Fprintf(&d.yaml, "%s  descriptors:\n", indent)
			n.below = d.level(indent+"  ", deeper-1)
		}
	}
	return nodes
}

// limit writes a rate_limit, and the modes next to it. Names of quotas start with quota, by
// which answers show them.
func (d *domain) limit(indent string) {
	name := fmt.Sprintf("n%d", d.random.IntN(4))
	quota := d.one(8)
	if quota {
		name = "quota-" + name
		fmt.Fprintf(&d.yaml, "%squota_mode: true\n", indent)
	}
	if !quota && d.one(6) {
		fmt.Fprintf(&d.yaml, "%sshadow_mode: true\n", indent)
	}
	fmt.Fprintf(&d.yaml, "%srate_limit:\n", indent)
	if !quota && d.one(10) {
		fmt.Fprintf(&d.yaml, "%s  unlimited: true\n", indent)
	} else {
		fmt.Fprintf(&d.yaml, "%s  unit: %s\n%s  requests_per_unit: %d\n", indent, d.pick(d.units), indent, limits[d.random.IntN(len(limits))])
	}
	if quota || d.one(2) {
		fmt.Fprintf(&d.yaml, "%s  name: %s\n", indent, name)
	} else {
		name = ""
	}
	if other := fmt.Sprintf("n%d", d.random.IntN(4)); other != name && d.one(4) {
		fmt.Fprintf(&d.yaml, "%s  replaces: [{name: %s}]\n", indent, other)
	}
}

// request makes a request, mostly of existing descriptors.
func (d *domain) request() *envoy.RateLimitRequest {
	r := &envoy.RateLimitRequest{Domain: d.name}
	if d.one(100) {
		r.Domain = "nobody's"
	}
	if d.one(4) {
		r.HitsAddend = [...]uint32{1, 2, 3, 6, 1000, 4294967295}[d.random.IntN(6)]
	}
	for range 1 + d.random.IntN(4)*d.random.IntN(2) {
		r.Descriptors = append(r.Descriptors, d.descriptor())
	}
	if d.one(10) { // the same count twice
		r.Descriptors = append(r.Descriptors, r.GetDescriptors()[0])
	}
	return r
}

func (d *domain) descriptor() *common.RateLimitDescriptor {
	out := &common.RateLimitDescriptor{}
	nodes := d.nodes
	for range 3 {
		if len(nodes) == 0 && !d.one(20) {
			break
		}
		e := &common.RateLimitDescriptor_Entry{Key: d.pick(keys), Value: d.pick(sent)}
		var at *node
		if len(nodes) > 0 && !d.one(8) {
			at = nodes[d.random.IntN(len(nodes))]
			e.Key = at.key
			if at.value != "" && !d.one(4) {
				e.Value = strings.Replace(at.value, "*", d.pick([]string{"", "1", "x", "*"}), 1+d.random.IntN(2))
			}
		}
		out.Entries = append(out.Entries, e)
		nodes = nil
		if at != nil {
			nodes = at.below
		}
		if d.one(4) {
			break
		}
	}
	if d.one(200) {
		out.Entries = nil
	}
	if d.one(4) {
		out.HitsAddend = wrapperspb.UInt64([...]uint64{0, 0, 0, 1, 2, 3, 5, 50, 1 << 20, 1 << 45}[d.random.IntN(10)])
	}
	if d.one(8) {
		unit := typev3.RateLimitUnit(typev3.RateLimitUnit_value[strings.ToUpper(d.pick(d.units))])
		if strings.EqualFold(d.units[0], "week") {
			unit = 7 // of the answers; the requests' enumeration has none
		}
		if unit == 0 {
			unit = typev3.RateLimitUnit_DAY
		}
		requests := limits[d.random.IntN(len(limits))]
		if name := unitName(unit); !meets(name, d.units[0], time.Now()) && !meets(name, d.units[1], time.Now()) {
			out.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
		}
	}
	return out
}

// unitName returns the name of a unit, including the week, which the enumeration of requests
// does not have.
func unitName(unit typev3.RateLimitUnit) string {
	if unit == 7 {
		return "week"
	}
	return unit.String()
}

// meets reports whether the windows of two different units start at the same second, such as
// an hour's and a day's in the first hour of a day. In the original they then share a count
// (docs/connect/envoy.md, "a count of two units").
func meets(one, other string, now time.Time) bool {
	if strings.EqualFold(one, other) {
		return false
	}
	return slices.ContainsFunc(beginnings(one, now.UTC()), func(at int64) bool {
		return slices.Contains(beginnings(other, now.UTC()), at)
	})
}

// beginnings returns when the current window of a unit may have started: by the calendar, or
// by the number of seconds that the original assumes for the unit.
func beginnings(unit string, now time.Time) []int64 {
	multiple := func(days int64) int64 { return now.Unix() / (days * 86400) * days * 86400 }
	day := now.Truncate(24 * time.Hour)
	switch strings.ToLower(unit) {
	case "second":
		return []int64{now.Unix()}
	case "minute":
		return []int64{now.Truncate(time.Minute).Unix()}
	case "hour":
		return []int64{now.Truncate(time.Hour).Unix()}
	case "week":
		return []int64{multiple(7), day.AddDate(0, 0, -(int(now.Weekday())+6)%7).Unix()}
	case "month":
		return []int64{multiple(30), day.AddDate(0, 0, 1-now.Day()).Unix()}
	case "year":
		return []int64{multiple(365), day.AddDate(0, 0, 1-now.YearDay()).Unix()}
	}
	return []int64{day.Unix()}
}

// TestMeets: two units meet where both start.
func TestMeets(t *testing.T) {
	for _, row := range []struct {
		one, other, at string
		want           bool
	}{
		{"HOUR", "DAY", "2026-11-23T00:56:10Z", true},
		{"hour", "day", "2026-11-23T01:00:00Z", false},
		{"hour", "HOUR", "2026-11-23T00:56:10Z", false},
		{"minute", "hour", "2026-11-23T01:00:59Z", true},
		{"week", "day", "2026-11-23T12:00:00Z", true}, // a Monday
		{"day", "week", "2026-11-26T12:00:00Z", true}, // a Thursday, as the first of 1970
		{"day", "week", "2026-11-24T12:00:00Z", false},
		{"month", "day", "2026-12-01T12:00:00Z", true},
		{"year", "month", "2027-01-31T12:00:00Z", true},
		{"year", "month", "2027-02-01T12:00:00Z", false},
	} {
		at, err := time.Parse(time.RFC3339, row.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := meets(row.one, row.other, at); got != row.want {
			t.Errorf("%s and %s at %s: %t", row.one, row.other, row.at, got)
		}
	}
}
