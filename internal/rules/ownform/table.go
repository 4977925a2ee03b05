package ownform

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/keytable"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/tablefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

const (
	// mostLimits is how many combinations of rate and burst a table may have.
	mostLimits = math.MaxUint16 + 1
	unlimited  = "unlimited"
	deny       = "deny" // no request passes
)

// rateKeys are the keys of a rate that is a mapping.
func (t *tableForm) rateKeys() form.Mapping {
	return form.Mapping{Def: "rateFrom", Doc: "Where each key has a rate of its own.", Rows: []form.Row{
		{
			Key: "table", Doc: "A file with a row for each key: its columns are key, rate and burst. CSV, JSON or YAML, by its name. The path is relative to this file.", See: "rules/limits-by-customer.md",
			Type: form.Ref("tableName").Is("the name of a file"),
		},
		{Key: "from", Doc: "Instead of a table: the claim of the verified token that has the rate.", Type: form.Ref("claim").Is("`jwt:CLAIM`")},
		{Key: "max", Doc: "With from: what a claim that gives more gets.", Type: form.Ref("someRate").Is("`1000/minute`")},
		{Key: "default", Doc: "The rate of keys that are not in the table, or of requests without the claim.", Type: form.Ref("defaultRate").Is("`100/minute`, `unlimited`, `deny`").Or(form.Required)},
	}, Extra: `"required":["default"],"oneOf":[{"required":["table"]},{"required":["from","max"]}]`, Together: []string{
		form.Without(`"required":["table"]`, []string{"from", "max"}),
		`{"if":{"required":["from"]},"then":{"properties":{"default":{"not":{"type":"string","pattern":"^\\s*[uU][nN][lL][iI][mM][iI][tT][eE][dD]\\s*$"}}}}}`,
	}}
}

// OpenTable opens a table file. It returns an error for anything but a regular file.
type OpenTable func(path string) (io.ReadCloser, error)

// tableForm is a rate that is read from a table.
type tableForm struct {
	*Parser
	f      yamltext.Fields // the keys of the rule
	at     *yamltext.Node  // the name of the table
	rule   *rules.Rule
	others headgate.Limit // for keys that are not in the table
	table  *rules.Table
	claim  *claimForm // if the rate is not in a table but in a claim

	parts    []tablefile.Column // first those of the key, then rate and burst
	report   *yamltext.Report   // of the rule file
	places   map[[3]string]int  // of rate, burst and zone among the limits
	lacking  int                // the first line whose limit leaves regions without a part; 0 for none
	zone     string             // the column of the client's own time zone; empty if there is none
	clients  *client.Resolver
	composed []byte
}

// tabled returns the table of a rule whose rate is one, or nil. The limit of the rule is
// then one with its algorithm and options: it is not known yet who is in the table.
func (p *Parser) tabled(f yamltext.Fields, r *rules.Rule) *tableForm {
	n := f.Get("rate")
	if n == nil || n.Kind != yamltext.Map || f.Get("concurrency") != nil { // of which parseLimitOf tells
		return nil
	}
	t := &tableForm{Parser: p, f: f, rule: r, report: p.Report, places: map[[3]string]int{}, table: &rules.Table{}}
	before := p.Errors
	inner := p.Fields(n, "rate", form.Keys(t.rateKeys().Rows))
	switch {
	case inner.Get("from") != nil:
		t.readClaim(n, inner)
	case p.Errors == before || inner.Get("table") != nil:
		t.readName(n, inner)
	}
	t.readDefault(n, inner.Get("default"))
	return t
}

// readName reads which file the table is in.
func (t *tableForm) readName(n *yamltext.Node, inner yamltext.Fields) {
	if most, ok := inner["max"]; ok {
		t.Errorf(most.Key, exampleClaim, "\"max\" applies only to a rate from a claim")
	}
	if t.at = inner.Get("table"); t.at == nil {
		if !yamltext.HasKey(n, "table") && !yamltext.HasKey(n, "from") {
			t.Errorf(n, "for example rate: {table: customers.csv, default: 100/minute}", "rate has neither \"table\" nor \"from\"")
		}
		return
	}
	name, ok := t.Word(t.at, "table")
	if !ok {
		return
	}
	t.table.Name, t.table.File = name, name
	if !filepath.IsAbs(name) {
		t.table.File = filepath.Join(filepath.Dir(t.File), name)
	}
	if !tablefile.Known(name) {
		t.Errorf(t.at, "", "the name of a table ends in .csv, .json, .yaml or .yml, not %s", clip.Quote(cmp.Or(filepath.Ext(name), name)))
	}
}

// defaulted says what has the default.
func (t *tableForm) defaulted() string {
	if t.claim != nil {
		return "requests without the claim"
	}
	return "keys that are not in the table"
}

// readDefault reads the limit for keys that are not in the table, and the shape of the
// others.
func (t *tableForm) readDefault(at, n *yamltext.Node) {
	if n == nil {
		if !yamltext.HasKey(at, "default") {
			t.Errorf(at, "for example default: 100/minute, default: unlimited or default: deny", "rate has no \"default\", the rate of %s", t.defaulted())
		}
		return
	}
	keys := maps.Clone(t.f)
	keys["rate"] = yamltext.Pair{Key: t.f["rate"].Key, Value: n}
	before := t.Errors
	switch {
	case isWord(n.Text, unlimited) || isWord(n.Text, deny):
		delete(keys, "period")
		keys["rate"] = yamltext.Pair{Key: t.f["rate"].Key, Value: &yamltext.Node{Kind: yamltext.Text, Text: t.someRate(), Line: n.Line, Column: n.Column}}
		t.table.Shape = t.parseRateAndOptions(keys, at)
		if t.others = headgate.Unlimited(); isWord(n.Text, deny) {
			t.others = headgate.Per(0, time.Minute).WithAlgorithm(t.table.Shape.Algorithm())
		}
	default:
		t.table.Shape = t.parseRateAndOptions(keys, at)
		t.others = t.table.Shape
	}
	if t.Errors == before {
		t.rule.Limit = t.table.Shape
	}
}

// someRate returns a rate that every option of a rule goes with: as many as any
// delay_after needs, though a sliding log cannot have more, and in steps no more than
// the burst holds.
func (t *tableForm) someRate() string {
	count, unit := int64(store.MaxLog), "minute"
	if t.f.Get("refill") != nil {
		unit = "day" // the longest step
		if t.f.Get("burst") != nil {
			count = 1
		}
	}
	return fmt.Sprintf("%d/%s", count, unit)
}

// isWord reports whether a rate is a word, in any case.
func isWord(text, word string) bool { return strings.EqualFold(strings.TrimSpace(text), word) }

// place returns where the limit of a row is among the limits of the table.
func (t *tableForm) place(rateText, burst, zone string, line int, wrong *tablefile.Mistakes) (int, error) {
	id := [3]string{rateText, burst, zone}
	if i, ok := t.places[id]; ok {
		return i, nil
	}
	keys := maps.Clone(t.f)
	if zone != "" {
		pair, err := t.zoneOfRow(zone, !wrong.Full())
		if err != nil {
			return 0, err
		}
		keys["timezone"] = pair
	}
	limit, err := t.limit(keys, strings.TrimSpace(rateText), strings.TrimSpace(burst))
	if err != nil {
		return 0, err
	}
	i := len(t.table.Limits)
	if i == mostLimits {
		return 0, fmt.Errorf("the table has more than %d combinations of %s", mostLimits, t.combined())
	}
	t.table.Limits = append(t.table.Limits, limit)
	if t.lacking == 0 && t.lacksParts(limit) {
		t.lacking = line
	}
	t.places[[3]string{strings.Clone(rateText), strings.Clone(burst), strings.Clone(zone)}] = i
	return i, nil
}

// combined says of what rows have combinations.
func (t *tableForm) combined() string {
	if t.zone != "" {
		return "rate, burst and " + t.zone
	}
	return "rate and burst"
}

// limit returns the limit of the rule, by its keys, with another rate and, if not empty,
// another burst.
func (t *tableForm) limit(keys yamltext.Fields, rateText, burst string) (headgate.Limit, error) {
	switch {
	case (isWord(rateText, unlimited) || isWord(rateText, deny)) && burst != "":
		return headgate.Limit{}, fmt.Errorf("%s has no burst", rateText)
	case isWord(rateText, unlimited):
		return headgate.Unlimited(), nil
	case isWord(rateText, deny):
		return headgate.Per(0, time.Minute).WithAlgorithm(t.table.Shape.Algorithm()), nil
	}
	node := func(kind yamltext.Kind, text string) *yamltext.Node {
		return &yamltext.Node{Kind: kind, Text: text, Line: t.at.Line, Column: t.at.Column}
	}
	keys["rate"] = yamltext.Pair{Key: t.f["rate"].Key, Value: node(yamltext.Text, rateText)}
	if burst != "" {
		n, err := rate.ParseCount(burst)
		if err != nil {
			return headgate.Limit{}, fmt.Errorf("invalid burst: %w", err)
		}
		keys["burst"] = yamltext.Pair{Key: t.at, Value: node(yamltext.Number, fmt.Sprint(n))}
	}
	p := &Parser{Report: &yamltext.Report{}, zones: t.zones, Regions: t.Regions, names: t.names}
	r := &rules.Rule{OnLimit: t.rule.OnLimit}
	r.Limit = p.parseRateAndOptions(keys, t.at)
	if n := t.f.Get("on_limit"); n != nil && p.Errors == 0 && r.OnLimit.Action == rules.Delay {
		p.parseOnLimit(n, r)
	}
	if p.Errors > 0 {
		for _, d := range p.Sorted() {
			if d.Severity == diagnostic.SeverityError {
				return headgate.Limit{}, errors.New(d.Message)
			}
		}
	}
	return r.Limit, nil
}

// check makes sure that the rule can have a table, once everything else is known.
func (t *tableForm) check() {
	switch {
	case t.claim != nil:
		t.claim.check()
	case t.at != nil && t.rule.KeyParts() == 0:
		t.Errorf(t.at, "add a key, such as key: header:X-Api-Key", "a table needs a key: its rows are for single keys")
	}
	if c := t.rule.CostFrom; c != nil {
		if n := t.f.Get("cost"); !yamltext.HasKey(n, "max") {
			c.Max = store.MaxLimit // and not what fits into the default
		}
	}
	if t.OpenTable == nil && t.at != nil && t.claim == nil {
		t.Errorf(t.at, "", "tables can be read only for rules that are in a file")
	}
}

// enlist completes a claim, or has the table read with those of other rules.
func (t *tableForm) enlist() {
	if t.claim != nil {
		t.claim.finish()
	} else {
		t.tables = append(t.tables, t)
	}
}

// readTables reads the tables of all rules.
func (p *Parser) readTables() {
	for _, t := range p.tables {
		t.read()
	}
}

// read reads the table of a rule.
func (t *tableForm) read() {
	start := time.Now() //nolint:forbidigo // measures this process
	file, err := t.OpenTable(t.table.File)
	if err != nil {
		t.report.Errorf(t.at, "the path is relative to the folder of this rule file", "the table %s cannot be read: %v", clip.Quote(t.table.Name), err)
		return
	}
	if t.clients, err = client.New(client.Config{}); err != nil {
		t.report.Errorf(t.at, "", "%v", err)
		return
	}
	t.columns()
	wrong := &tablefile.Mistakes{File: t.table.File}
	rows := keytable.NewBuilder()
	tablefile.Read(file, t.parts, wrong, func(row tablefile.Row) { t.row(row, rows, wrong) })
	_ = file.Close() // it was only read
	t.table.Rows = rows.Table(func(first, again keytable.Row) {
		wrong.Addf(int(again.Line), 1, "", "duplicate key, first on line %d", first.Line)
	})
	if wrong.Any() {
		t.report.Errors++
		t.TableProblems = append(t.TableProblems, wrong.List()...)
		return
	}
	if t.table.Rows.Len() == 0 {
		t.report.Warnf(t.at, "", "the table %s has no rows: every key has the default", clip.Quote(t.table.Name))
	}
	t.warnOfParts()
	t.table.Took = time.Since(start) //nolint:forbidigo // as above
	t.Rules.SetTable(t.rule, t.table, t.others)
	t.places = nil
}

// columns sets the columns to read: those of the key under the names that the rule has for
// them, then rate and burst.
func (t *tableForm) columns() {
	for _, a := range t.rule.Key {
		c := tablefile.Column{Name: a.String()}
		if a.Hashed {
			c.Others = append(c.Others, a.Plain().String())
		}
		if len(t.rule.Key) == 1 {
			c.Name, c.Others = "key", append(c.Others, c.Name)
		}
		t.parts = append(t.parts, c)
	}
	t.parts = append(t.parts, tablefile.Column{Name: "rate"}, tablefile.Column{Name: "burst", Optional: true})
	if t.zone != "" {
		t.parts = append(t.parts, tablefile.Column{Name: t.zone, Optional: true, Header: true})
	}
}

// row adds a row.
func (t *tableForm) row(row tablefile.Row, rows *keytable.Builder, wrong *tablefile.Mistakes) {
	n := len(t.rule.Key)
	parts := make([]rules.KeyPart, n)
	for i := range parts {
		cell := &row.Cells[i]
		var err error
		if parts[i], err = t.keyPart(t.rule.Key[i], cell.Text); err != nil {
			wrong.Addf(cell.Line, cell.Column, "", "%s: %v", t.parts[i].Name, err)
			return
		}
	}
	key, err := t.rule.ComposeKey(parts)
	if err != nil {
		wrong.Addf(row.Cells[0].Line, row.Cells[0].Column, "", "invalid key: %v", err)
		return
	}
	rateCell, burst := &row.Cells[n], &row.Cells[n+1]
	var zone tablefile.Cell
	if t.zone != "" {
		zone = row.Cells[n+2]
	}
	place, err := t.place(rateCell.Text, burst.Text, zone.Text, rateCell.Line, wrong)
	if err != nil {
		at := rateCell
		switch {
		case zone.Given && strings.HasPrefix(err.Error(), "unknown timezone"):
			at = &zone
		case burst.Given && strings.Contains(err.Error(), "burst"):
			at = burst
		}
		wrong.Addf(at.Line, at.Column, "", "%v", err)
		return
	}
	t.composed = append(t.composed[:0], key...)
	rows.Add(t.composed, keytable.Row{Value: uint16(place), Line: uint32(row.Line)})
}

// keyPart reads a part of a key as people write it, in a table as with headgate keys: a
// client's address or its network, the value of a hashed attribute or its digest.
func (t *tableForm) keyPart(a rules.KeyAttribute, text string) (rules.KeyPart, error) {
	if strings.TrimSpace(text) != text {
		return rules.KeyPart{}, fmt.Errorf("%s begins or ends with a space", clip.Quote(text))
	}
	part := rules.ParseKeyPart(text)
	if a.Hashed {
		part = rules.ParseHashedPart(text)
	}
	if part.Digest || a.Kind != rules.ClientIP {
		return part, nil
	}
	group, err := t.groupOf(text)
	return rules.KeyPart{Value: group}, err
}

// groupOf returns the text that doors count a client by, given its address or that text.
func (t *tableForm) groupOf(text string) (string, error) {
	if text == client.Unknown {
		return text, nil
	}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return t.clients.Group(address), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return "", fmt.Errorf("%s is not an IP address", clip.Quote(text))
	}
	group := t.clients.Group(network.Addr())
	if network.Masked().String() != group {
		return "", fmt.Errorf("clients there are counted by %s, not by %s", group, text)
	}
	return group, nil
}

// IsTable reports whether a file is the table of a rule, or a list.
func (p *Parser) IsTable(path string) bool {
	for _, t := range p.tables {
		if filepath.Clean(path) == filepath.Clean(t.table.File) {
			return true
		}
	}
	return p.isListFile(path)
}
