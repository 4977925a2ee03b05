package ownform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/internal/rules/zone"
)

// ZoneKeys returns the keys of a timezone that is a mapping.
func ZoneKeys() []string { return []string{"from", "column", "default"} }

// exampleZone is how a rule takes the zone from a request.
const exampleZone = `for example timezone: "jwt:zoneinfo", or timezone: {from: "jwt:zoneinfo", default: Europe/Berlin}`

// isOwnZone reports whether a timezone is not a zone but says where to find one.
func isOwnZone(n *yamltext.Node) bool {
	return n != nil && (n.Kind == yamltext.Map || n.Kind == yamltext.Text && strings.Contains(n.Text, ":"))
}

// zoneForm is a timezone that the client, or the table of the rule, gives.
type zoneForm struct {
	at     *yamltext.Node
	column string // the name of the column, or empty
}

// ownZone reads where the client's own time zone is to be found, if the rule says so, and
// returns nil if it does not. What the zone is without one, LimitForm reads.
func (p *Parser) ownZone(f yamltext.Fields, r *rules.Rule) *zoneForm {
	n := f.Get("timezone")
	if !isOwnZone(n) || f.Get("concurrency") != nil {
		return nil
	}
	form := &zoneForm{at: n}
	from := n
	if n.Kind == yamltext.Map {
		before := p.Errors
		inner := p.Fields(n, "timezone", ZoneKeys())
		column := inner.Get("column")
		from = inner.Get("from")
		switch {
		case from != nil && column != nil:
			p.Errorf(inner["column"].Key, "remove one of them", "timezone has both \"from\" and \"column\"")
			return form
		case column != nil:
			form.column, _ = p.Word(column, "column")
			if slices.Contains([]string{"key", "rate", "burst"}, form.column) {
				p.Errorf(column, "for example column: timezone", "the column %s of a table has no time zone", clip.Quote(form.column))
				form.column = ""
			}
			return form
		case from == nil:
			if p.Errors == before {
				p.Errorf(n, exampleZone, "timezone has no \"from\", which part of the request has the name of the zone")
			}
			return form
		}
	}
	if a, ok := p.zoneSource(from); ok {
		if zones := p.requestZones(n); zones != nil {
			p.Rules.SetGiven(r, &rules.Given{Zone: &rules.GivenZone{From: a, Zones: zones, Default: time.UTC}})
		}
	}
	return form
}

// zoneSource reads the part of requests that has the name of a zone.
func (p *Parser) zoneSource(n *yamltext.Node) (rules.Attribute, bool) {
	text, ok := p.Word(n, "from")
	if !ok {
		return rules.Attribute{}, false
	}
	a, err := rules.ParseAttribute(text)
	if err != nil {
		p.Errorf(n, "", "%v", err)
		return a, false
	}
	switch a.Kind {
	case rules.Method, rules.Path, rules.Host, rules.ClientIP:
		p.Errorf(n, exampleZone, "%s is not the name of a time zone", a)
		return a, false
	case rules.Other, rules.Header, rules.Query, rules.Cookie, rules.JWT:
	}
	p.CheckEntry(n, a)
	return a, true
}

// requestZones returns the zones that requests may name.
func (p *Parser) requestZones(at *yamltext.Node) *zone.Table {
	if p.zoneTable == nil {
		zones, err := zone.Load()
		if err != nil {
			p.Errorf(at, "", "%v", err)
			return nil
		}
		p.zoneTable = zones
	}
	return p.zoneTable
}

// check makes sure that the rule can have the zone, once its limit is known. table is nil
// if the rule has none.
func (z *zoneForm) check(p *Parser, r *rules.Rule, table *tableForm) {
	if g := r.GivenBy(); g != nil && r.Limit.Rule().Zone != nil {
		g.Zone.Default = r.Limit.Rule().Zone
	}
	switch {
	case z.column == "":
	case table == nil || table.claim != nil:
		p.Errorf(z.at, "add rate: {table: customers.csv, default: 200/day}, or write from: with a part of the request", "\"column\" needs a table: the rate of this rule is not in one")
	default:
		table.zone = z.column
	}
}

// ownZoneOf returns the zone of a rule whose clients have their own: that of requests
// without one.
func (l *LimitForm) ownZoneOf(n *yamltext.Node) *time.Location {
	if !l.Own {
		l.Errorf(n, "use an IANA time zone name, such as Europe/Berlin", "\"timezone\" must be a time zone here: only a rule under limits can take it from the request")
		return time.UTC
	}
	if n.Kind == yamltext.Map {
		if zone := n.Value("default"); zone != nil && zone.Kind != yamltext.Null {
			return l.Zone(zone)
		}
	}
	return time.UTC
}

// zoneOfRow returns the timezone of a row as that of a rule. more is false if nobody
// will see the error.
func (t *tableForm) zoneOfRow(name string, more bool) (yamltext.Pair, error) { //nolint:revive // a fact, not a choice
	zones := t.requestZones(t.at)
	if zones == nil {
		return yamltext.Pair{}, errors.New("this machine has no time zone database")
	}
	if _, ok := zones.Find(name); !ok {
		hint := ""
		if more {
			hint = nearest.DidYouMean(name, zone.Names())
		}
		return yamltext.Pair{}, fmt.Errorf("unknown timezone %s%s", clip.Quote(name), hint)
	}
	text := &yamltext.Node{Kind: yamltext.Text, Text: name, Line: t.at.Line, Column: t.at.Column}
	key := &yamltext.Node{Kind: yamltext.Text, Text: "default", Line: t.at.Line, Column: t.at.Column}
	n := &yamltext.Node{Kind: yamltext.Map, Pairs: []yamltext.Pair{{Key: key, Value: text}}, Line: t.at.Line, Column: t.at.Column}
	return yamltext.Pair{Key: t.f["timezone"].Key, Value: n}, nil
}
