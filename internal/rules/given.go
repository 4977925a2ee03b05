package rules

import (
	"fmt"
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
// each row and each zone, so they are made when a request needs them, and only some are
// kept: a variant has a place by what it is made of, and gives way to another one with the
// same place. While it has its place, finding it allocates nothing.
type Given struct {
	Zone *GivenZone

	variants []atomic.Pointer[Rule] // a power of two
}

// GivenZone is a calendar window in the client's own time zone; see headgate.Limit.InZone.
type GivenZone struct {
	From    Attribute      // holds the name of the zone
	Zones   *zone.Table    // the zones that there are
	Default *time.Location // for requests without one; the zone of the rule's own Limit
}

// How many variants a rule keeps: one for each zone, and with a table some thousand. A
// variant takes about a kilobyte.
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
	if r.table != nil {
		size = manyVariants
	}
	g.variants = make([]atomic.Pointer[Rule], size)
}

// GivenBy returns what requests give of the limit of r, or nil.
func (r *Rule) GivenBy() *Given { return r.given }

// UnknownZone reports whether r is the variant for requests that name a time zone that
// does not exist.
func (r *Rule) UnknownZone() bool { return r.zone == unknownZone }

// forRequest returns the variant of r that limits a request under a key, or r.
func (r *Rule) forRequest(key string, f *facts) *Rule {
	row := r.ForKey(key)
	if r.given == nil || r.given.Zone == nil || !row.Limit.Rule().OwnZone {
		return row
	}
	z := r.given.Zone
	v := f.get(z.From)
	if !v.ok {
		return row
	}
	i, ok := z.Zones.Find(v.text)
	if !ok {
		i = unknownZone
	}
	return r.given.variant(row, i)
}

// variant returns the variant of a row, or of the rule itself, for a zone.
func (g *Given) variant(row *Rule, zone int) *Rule {
	limit := row.Limit
	if zone >= 0 && g.Zone.Zones.At(zone).String() == limit.Rule().Zone.String() {
		return row
	}
	slot := &g.variants[(uint(zone)+uint(row.row)*0x9e3779b1)&uint(len(g.variants)-1)]
	if v := slot.Load(); v != nil && v.row == row.row && v.zone == zone {
		return v
	}
	if zone >= 0 {
		limit = limit.InZone(g.Zone.Zones.At(zone))
	}
	v := row.variant(limit)
	v.zone = zone
	slot.Store(v)
	return v
}

// GivenText returns what a request has given of the limit of r, for [Rule.WithGiven].
func (r *Rule) GivenText() string {
	if r.zone < 0 || r.given == nil || r.given.Zone == nil {
		return ""
	}
	return "@" + r.given.Zone.Zones.At(r.zone).String()
}

// WithGiven returns the variant of r for what an earlier request gave, as far as the rule
// still takes it from requests.
func (r *Rule) WithGiven(text string) *Rule {
	_, name, _ := strings.Cut(text, "@")
	if name == "" || r.given == nil || r.given.Zone == nil || !r.Limit.Rule().OwnZone {
		return r
	}
	if i, ok := r.given.Zone.Zones.Find(name); ok {
		return r.given.variant(r, i)
	}
	return r
}

// like returns a copy of g for a rule that replaces another for a few keys.
func (g *Given) like() *Given {
	if g == nil {
		return nil
	}
	return &Given{Zone: g.Zone, variants: make([]atomic.Pointer[Rule], 1)}
}

// ZoneFrom says where the time zone of a limit comes from, if requests give it. It is for
// people, such as "jwt:zoneinfo".
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
	if g == nil || other == nil || g.Zone == nil || other.Zone == nil {
		return g == other
	}
	return g.Zone.From == other.Zone.From
}
