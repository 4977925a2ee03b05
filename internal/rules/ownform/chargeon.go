package ownform

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// chargeForm is a charge_on that is being read.
type chargeForm struct {
	statuses []rules.Statuses
	codes    []rules.Code
	headers  []rules.ValueMatch
	cancel   bool
}

// chargeOnKeys are the keys of charge_on.
func (p *Parser) chargeOnKeys(c *chargeForm) form.Mapping {
	return form.Mapping{
		Def: "chargeOn", Doc: "Which answers count. A request is charged before it is forwarded, and gets its charge back if none of the conditions holds for its answer.",
		Rows: []form.Row{
			{
				Key: "status", Doc: "HTTP statuses that count, such as 401 or 4xx; a list for several.",
				Type: form.Many("status").By("`401`, `4xx`, or a list", func(n *yamltext.Node) { c.statuses = p.parseStatuses(n) }),
			},
			{
				Key: "grpc", Doc: "gRPC codes that count, such as UNAUTHENTICATED; a list for several.",
				Type: form.Many("code").By("`UNAUTHENTICATED`, or a list", func(n *yamltext.Node) { c.codes = p.parseCodes(n) }),
			},
			{
				Key: "headers", Doc: "Headers of the answer, with conditions as under match; case is ignored in names. Of a header that is repeated, any value.",
				Type: named("fieldName", `"minProperties":1`).By("`{X-Login: failed}`", func(n *yamltext.Node) { c.headers = p.parseAnswerHeaders(n) }),
			},
			{
				Key: "on_abort", Doc: "Whether the charge is kept or cancelled if nobody has seen the answer, for example because the client hung up.",
				Type: form.Switch(&c.cancel, "keep", "cancel"),
			},
		},
		Extra: `"anyOf":[{"required":["status"]},{"required":["grpc"]},{"required":["headers"]}]`,
	}
}

// parseChargeOn reads charge_on: which answers count. The limit and the cost of r must
// be known. tiers is nil without tiers.
func (p *Parser) parseChargeOn(f yamltext.Fields, r *rules.Rule, tiers *tierForm) {
	n := f.Get("charge_on")
	if n == nil {
		return
	}
	at := f["charge_on"].Key
	switch {
	case r.CostAfter != nil:
		p.Errorf(at, "use one of them", "\"charge_on\" does not work with from_response: both say what a request costs after its answer")
		return
	case r.Concurrent():
		p.Errorf(at, "limit the rate instead", "\"charge_on\" does not work with concurrency: a slot is taken until the request ends, whatever its answer")
		return
	case r.Limit.Rule().Unlimited && tiers != nil:
		return // other tiers have a limit
	case r.Limit.Rule().Unlimited:
		p.Errorf(at, "remove it", "\"charge_on\" has no effect without a limit")
		return
	}
	before := p.Errors
	var c chargeForm
	form.Read(p.Report, n, "charge_on", p.chargeOnKeys(&c).Rows)
	if n.Kind != yamltext.Map {
		return
	}
	if len(c.statuses)+len(c.codes)+len(c.headers) == 0 && p.Errors == before {
		p.Errorf(n, "for example charge_on: {status: [401, 403]}", "charge_on has no condition: no answer would count")
	}
	r.CostAfter = &rules.CostAfter{Abort: rules.AbortEstimate, On: rules.NewChargeOn(c.statuses, c.codes, c.headers)}
	if c.cancel {
		r.CostAfter.Abort = rules.AbortFixed
	}
}

// items returns the scalars of one value or a list.
func (p *Parser) items(n *yamltext.Node, key, kind string) []*yamltext.Node {
	items := []*yamltext.Node{n}
	if n.Kind == yamltext.List {
		items = n.Items
		if len(items) == 0 {
			p.Errorf(n, "", "the list of %q is empty", key)
		}
	}
	var out []*yamltext.Node
	for _, item := range items {
		if item.Kind == yamltext.Text || item.Kind == yamltext.Number {
			out = append(out, item)
			continue
		}
		p.Errorf(item, "", "%q must be %s, not %s", key, kind, item.Kind)
	}
	return out
}

// parseStatuses reads statuses and classes such as 4xx.
func (p *Parser) parseStatuses(n *yamltext.Node) (list []rules.Statuses) {
	for _, item := range p.items(n, "status", "a status such as 401 or 4xx") {
		s, ok := statusOf(item.Text)
		switch {
		case !ok:
			p.Errorf(item, "write a status from 200 to 599, or a class such as 4xx", "invalid status %s", clip.Quote(item.Text))
		case slices.Contains(list, s):
			p.Warnf(item, "", "the status %s is listed twice", s)
		default:
			list = append(list, s)
		}
	}
	return list
}

// statusOf parses a status from 200 to 599, or a class of them.
func statusOf(text string) (rules.Statuses, bool) {
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok {
		if len(class) != 1 || class < "2" || class > "5" {
			return rules.Statuses{}, false
		}
		first := int(class[0]-'0') * 100
		return rules.Statuses{First: first, Last: first + 99}, true
	}
	status, err := strconv.Atoi(text)
	if err != nil || len(text) != 3 || status < 200 || status > 599 {
		return rules.Statuses{}, false
	}
	return rules.Statuses{First: status, Last: status}, true
}

// parseCodes reads the names of gRPC codes.
func (p *Parser) parseCodes(n *yamltext.Node) (list []rules.Code) {
	for _, item := range p.items(n, "grpc", "the name of a gRPC code, such as UNAUTHENTICATED") {
		code, ok := rules.ParseCode(item.Text)
		number, err := strconv.ParseInt(item.Text, 10, 64)
		switch known := rules.CodeNames(); {
		case ok && slices.Contains(list, code):
			p.Warnf(item, "", "the gRPC code %s is listed twice", code)
		case ok:
			list = append(list, code)
		case err == nil && number >= 0 && number < int64(len(known)):
			p.Errorf(item, "write "+rules.CodeOf(number).String(), "a gRPC code is written by its name, not %s", item.Text)
		default:
			p.Unknown(item, "gRPC code", "", known, "")
		}
	}
	return list
}

// parseAnswerHeaders reads the conditions on the header of answers, in the form of those
// of match.
func (p *Parser) parseAnswerHeaders(n *yamltext.Node) (list []rules.ValueMatch) {
	if n.Kind != yamltext.Map {
		p.Errorf(n, "for example headers: {X-Login: failed}", "\"headers\" must be a mapping (name: value), not %s", n.Kind)
		return nil
	}
	if len(n.Pairs) > maxConditions {
		p.Errorf(n, "", "charge_on has more than %d headers", maxConditions)
		return nil
	}
	for _, field := range n.Pairs {
		a, err := rules.NamedAttribute(rules.Header, field.Key.Text)
		if err != nil {
			p.Errorf(field.Key, "", "%v", err)
			continue
		}
		if slices.ContainsFunc(list, func(v rules.ValueMatch) bool { return v.Attribute == a }) {
			p.Errorf(field.Key, "put all values in one list", "%s is given twice", clip.Quote(a.Name))
			continue
		}
		v := rules.ValueMatch{Attribute: a}
		p.parseValue(field.Value, &v)
		list = append(list, v)
	}
	return list
}
