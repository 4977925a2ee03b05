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
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/internal/rules/zone"
)

// zoneKeys are the keys of a timezone that is a mapping.
func (p *Parser) zoneKeys(z *zoneForm) form.Mapping {
	name := form.Ref("zone").Or("UTC")
	return form.Mapping{
		Def: "zoneFrom", Doc: "Where the request, or its row in the table of the rule, has the zone of the client.", Rows: []form.Row{
			{Key: "from", Doc: "The part of the request that has the name of the zone.", Type: form.Ref("given").By("an attribute", func(n *yamltext.Node) { z.from = n })},
			{
				Key: "column", Doc: "The column of the rule's table that has the name of the zone.", See: "rules/limits-by-customer.md",
				Type: form.Type{Schema: `"type":"string","minLength":1,"not":{"enum":["key","rate","burst"]}`}.By("the name of a column", func(n *yamltext.Node) { z.column = p.zoneColumn(n) }),
			},
			{Key: "default", Doc: "The zone of requests without one.", Type: name}, // ownZoneOf reads it
		},
		Extra: `"minProperties":1,"oneOf":[{"required":["from"]},{"required":["column"]}]`,
	}
}

// zoneColumn reads the name of a column.
func (p *Parser) zoneColumn(n *yamltext.Node) string {
	name, _ := p.Word(n, "column")
	if slices.Contains([]string{"key", "rate", "burst"}, name) {
		p.Errorf(n, "for example column: timezone", "the column %s of a table has no time zone", clip.Quote(name))
		return ""
	}
	return name
}

// exampleZone is how a rule takes the zone from a request.
const exampleZone = `for example timezone: "jwt:zoneinfo", or timezone: {from: "jwt:zoneinfo", default: Europe/Berlin}`

// isOwnZone reports whether a timezone is not a zone but says where to find one.
func isOwnZone(n *yamltext.Node) bool {
	return n != nil && (n.Kind == yamltext.Map || n.Kind == yamltext.Text && strings.Contains(n.Text, ":"))
}

// zoneForm is a timezone that the client, or the table of the rule, gives.
type zoneForm struct {
	at     *yamltext.Node
	from   *yamltext.Node // what part of the request
	column string         // the name of the column, or empty
}

// ownZone reads where the client's own time zone is to be found, if the rule says so, and
// returns nil if it does not. What the zone is without one, LimitForm reads.
func (p *Parser) ownZone(f yamltext.Fields, r *rules.Rule) *zoneForm {
	n := f.Get("timezone")
	if !isOwnZone(n) || f.Get("concurrency") != nil {
		return nil
	}
	z := &zoneForm{at: n, from: n}
	if n.Kind == yamltext.Map {
		before := p.Errors
		z.from = nil
		f := form.Read(p.Report, n, "timezone", p.zoneKeys(z).Rows)
		column, ok := f["column"]
		switch {
		case z.from != nil && ok:
			z.column = ""
			p.Errorf(column.Key, "remove one of them", "timezone has both \"from\" and \"column\"")
			return z
		case ok:
			return z
		case z.from == nil:
			if p.Errors == before {
				p.Errorf(n, exampleZone, "timezone has no \"from\", which part of the request has the name of the zone")
			}
			return z
		}
	}
	a, ok := p.attributeOf(z.from, "from", func(a rules.Attribute) (message, hint string) {
		return fmt.Sprintf("%s is not the name of a time zone", a), exampleZone
	})
	if ok {
		if zones := p.requestZones(n); zones != nil {
			p.Rules.SetGiven(r, &rules.Given{Zone: &rules.GivenZone{From: a, Zones: zones, Default: time.UTC}})
		}
	}
	return z
}

// attributeOf reads an attribute that callers give. refused says what is wrong with one that
// every request has.
func (p *Parser) attributeOf(n *yamltext.Node, key string, refused func(a rules.Attribute) (message, hint string)) (rules.Attribute, bool) {
	text, ok := p.Word(n, key)
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
		message, hint := refused(a)
		p.Errorf(n, hint, "%s", message)
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
