package rules

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/zone"
)

// Given says which parts of a rule's limit the request gives. It is immutable, except for
// what it remembers of requests, and safe for concurrent use.
//
// A request is limited by a variant of the rule, as with a [Table]. There may be one for
// each row, each zone and each rate, so they are made when a request needs them, and only
// some are kept: a variant has a place by what it is made of, and gives way to another one
// with the same place. While it has its place, finding it allocates nothing.
type Given struct {
	Zone *GivenZone // nil if requests give no zone
	Rate *GivenRate // nil if they give no rate

	variants []atomic.Pointer[Rule] // a power of two
}

// GivenZone is a calendar window in the client's own time zone; see headgate.Limit.WithZone.
type GivenZone struct {
	From    Attribute      // holds the name of the zone
	Zones   *zone.Table    // the zones that there are
	Default *time.Location // for requests without one; the zone of the rule's own Limit
}

// How many variants a rule keeps: one for each zone, and with a table or rates some
// thousand. A variant takes about 1.5 KB.
const (
	fewVariants  = 1 << 10
	manyVariants = 1 << 12
)

// What Rule.zone may be instead of the number of a zone: the request named none, or one
// that does not exist. Then the limit has the rule's own zone.
const (
	noZone      = -1
	unknownZone = -2
)

// SetGiven lets requests give parts of the limit of a rule.
func (b *Builder) SetGiven(r *Rule, g *Given) { r.given = g }

// begin makes room for variants of r.
func (g *Given) begin(r *Rule) {
	size := fewVariants
	if r.table != nil || g.Rate != nil {
		size = manyVariants
	}
	g.variants = make([]atomic.Pointer[Rule], size)
	if g.Rate != nil {
		g.Rate.seed = maphash.MakeSeed()
	}
}

// GivenBy returns what requests give of the limit of r, or nil.
func (r *Rule) GivenBy() *Given { return r.given }

// UnknownZone reports whether r is the variant for requests that name a time zone that
// does not exist.
func (r *Rule) UnknownZone() bool { return r.zone == unknownZone }

// forRequest returns the variant of r that limits a request under a key, or r.
func (r *Rule) forRequest(key string, f *facts) *Rule {
	row, g := r.ForKey(key), r.given
	if r.table != nil && f.unclearIn(r.Key) {
		row = r.table.strictest
	}
	if g == nil {
		return row
	}
	zone, rate := noZone, ""
	if g.Rate != nil {
		rate = g.Rate.claimed(f)
	}
	if g.Zone != nil && (g.Rate != nil || row.Limit.Rule().OwnZone) {
		zone = g.Zone.number(f)
	}
	return g.variant(row, zone, rate)
}

// number returns the number of the zone that a request names.
func (z *GivenZone) number(f *facts) int {
	v := f.get(z.From)
	if !v.ok {
		return noZone
	}
	if i, ok := z.Zones.Find(v.text); ok {
		return i
	}
	return unknownZone
}

// variant returns the variant of a row, or of the rule itself, for a zone and a rate.
func (g *Given) variant(row *Rule, zone int, rate string) *Rule {
	if zone >= 0 && g.Zone.Zones.At(zone).String() == g.Zone.Default.String() {
		zone = noZone
	}
	if zone == noZone && rate == "" {
		return row
	}
	place := uint(zone) + uint(row.row)*0x9e3779b1
	if g.Rate != nil {
		place += g.Rate.place(rate)
	}
	slot := &g.variants[place&uint(len(g.variants)-1)]
	if v := slot.Load(); v != nil && v.row == row.row && v.zone == zone && v.rate == rate {
		return v
	}
	limit, used := row.Limit, rateTaken
	if rate != "" {
		rate = strings.Clone(rate) // it belongs to the request
		limit, used = g.Rate.limit(rate, limit)
	}
	if zone >= 0 && limit.Rule().OwnZone {
		limit = limit.WithZone(g.Zone.Zones.At(zone))
	}
	v := row.variant(limit)
	v.zone, v.rate, v.used = zone, rate, used
	slot.Store(v)
	return v
}

// GivenText returns what a request has given of the limit of r, for [Rule.WithGiven].
func (r *Rule) GivenText() string {
	rate := r.givenRate()
	if r.zone < 0 || r.given == nil || r.given.Zone == nil {
		return rate
	}
	return rate + "@" + r.given.Zone.Zones.At(r.zone).String()
}

// WithGiven returns the variant of r for what an earlier request gave, as far as the rule
// still takes it from requests.
func (r *Rule) WithGiven(text string) *Rule {
	g := r.given
	if text == "" || g == nil {
		return r
	}
	number := noZone
	rate, name := splitGiven(text)
	if g.Rate == nil || len(rate) > longestRate {
		rate = ""
	}
	if name != "" && g.Zone != nil && (rate != "" || r.Limit.Rule().OwnZone) {
		if i, ok := g.Zone.Zones.Find(name); ok {
			number = i
		}
	}
	return g.variant(r, number, rate)
}

// like returns a copy of g for a rule that replaces another for a few keys, with a rate of
// its own.
func (g *Given) like() *Given {
	if g == nil || g.Zone == nil {
		return nil
	}
	return &Given{Zone: g.Zone, variants: make([]atomic.Pointer[Rule], 1)}
}

// zoneFrom says which time zone a limit has and where that comes from, if requests give it.
func (r *Rule) zoneFrom(f *facts) string {
	if r.given == nil || r.given.Zone == nil || !r.Limit.Rule().OwnZone {
		return ""
	}
	name, from := r.Limit.Rule().Zone.String(), r.given.Zone.From
	v := f.get(from)
	if !v.ok {
		return fmt.Sprintf("%s, the default: the request has no %s", name, from)
	}
	if _, ok := r.given.Zone.Zones.Find(v.text); !ok {
		return fmt.Sprintf("%s, the default: %s in %s is not a time zone", name, clip.Quote(v.text), from)
	}
	return fmt.Sprintf("%s, from %s", name, from)
}

// repeats reports whether two rules, of which requests may give nothing, take the same
// from them.
func (g *Given) repeats(other *Given) bool {
	if g == nil || other == nil {
		return g == other
	}
	zone, rate := g.Zone == other.Zone, g.Rate == other.Rate
	if g.Zone != nil && other.Zone != nil {
		zone = g.Zone.From == other.Zone.From
	}
	if g.Rate != nil && other.Rate != nil {
		rate = g.Rate.From == other.Rate.From && g.Rate.Max.Equal(other.Rate.Max) && g.Rate.Shape.Equal(other.Rate.Shape)
	}
	return zone && rate
}
