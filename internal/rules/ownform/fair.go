package ownform

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

const fairExample = `for example fair: {among: "header:X-Api-Key", weights: {by: "header:X-Plan", pro: 5, default: 1}, horizon: 10s}`

// fairRow is the key fair of a rule.
func fairRow() form.Row {
	return form.Row{
		Key: "fair", Doc: "Shares the limit fairly, by weight, among the values of an attribute.", See: "more/fair.md",
		Type: form.Ref("fair").Is("a mapping"),
	}
}

// fairKeys are the keys of fair.
func (p *Parser) fairKeys(fair *rules.Fair) form.Mapping {
	return form.Mapping{
		Def: "fair", Doc: "How a limit is shared.", Rows: []form.Row{
			{
				Key: "among", Doc: "The attribute whose values have a share each. Requests without it share one.", Missing: ", whose values share the limit", Example: `for example among: "header:X-Api-Key"`,
				Type: form.Ref("attribute").By("an attribute", func(n *yamltext.Node) { p.fairAttribute(n, "among", &fair.Among) }).Or(form.Required),
			},
			{
				Key: "weights", Doc: "The attribute in by chooses the weight of a share, by its value; default for all other values.",
				Type: form.Type{Schema: `"type":"object","required":["by"],"minProperties":2,"properties":{"by":{"$ref":"#/$defs/attribute"}},"additionalProperties":{"type":["integer","string"],"minimum":1,"maximum":1000}`}.
					By("`{by: \"header:X-Plan\", pro: 5, default: 1}`", func(n *yamltext.Node) { p.parseWeights(n, fair) }).Or("1 for all"),
			},
			{
				Key: "horizon", Doc: "For how long idleness counts: who has been idle that long may catch up.",
				Type: form.Duration(store.LeastHorizon, store.MostHorizon, &fair.Horizon, "for example horizon: 10s"),
			},
		},
	}
}

func (p *Parser) fairAttribute(n *yamltext.Node, what string, into *rules.Attribute) bool {
	text, ok := p.Word(n, what)
	if !ok {
		return false
	}
	a, err := rules.ParseAttribute(text)
	if err != nil {
		p.Errorf(n, "", "%v", err)
		return false
	}
	p.CheckEntry(n, a)
	*into = a
	return true
}

// parseWeights reads weights.
func (p *Parser) parseWeights(n *yamltext.Node, fair *rules.Fair) {
	if n.Kind != yamltext.Map || !yamltext.HasKey(n, "by") {
		p.Errorf(n, `for example weights: {by: "header:X-Plan", pro: 5, default: 1}`, "\"weights\" must be a mapping with \"by\", the attribute that chooses the weight")
		return
	}
	for _, pair := range n.Pairs {
		if pair.Key.Text == "by" {
			var by rules.Attribute
			if p.fairAttribute(pair.Value, "by", &by) {
				fair.By = &by
			}
			continue
		}
		weight, ok := p.Integer(pair.Value, pair.Key.Text, 1, store.MaxWeight)
		switch {
		case !ok:
		case pair.Key.Text == "default":
			fair.Default = weight
		default:
			fair.Weights = append(fair.Weights, rules.FairWeight{Value: pair.Key.Text, Weight: weight})
		}
	}
	if len(n.Pairs) == 1 {
		p.Errorf(n, "for example pro: 5", "\"weights\" has no weights")
	}
}

// parseFair reads fair of a rule whose limit is known.
func (p *Parser) parseFair(rf *ruleForm, own bool) { //nolint:revive // a fact about the rule
	at, ok := rf.f["fair"]
	r := rf.rule
	if !ok || p.cannotBeFair(at.Key, rf, own) {
		return
	}
	fair, before := &rules.Fair{Default: 1, Horizon: 10 * time.Second}, p.Errors
	if at.Value.Kind != yamltext.Map {
		p.Errorf(at.Value, fairExample, "\"fair\" must be a mapping, not %s", at.Value.Kind)
		return
	}
	form.Read(p.Report, at.Value, "fair", p.fairKeys(fair).Rows)
	limit := r.Limit.Rule()
	if p.Errors > before || !limit.Valid() {
		return
	}
	each := int64(1)
	if r.CostFrom == nil && r.CostAfter == nil {
		each = max(r.Cost, 1)
	}
	tokens, most := store.InHorizon(limit, fair.Horizon), store.InHorizon(limit, store.MostHorizon)
	switch {
	case most/each < store.LeastFair:
		p.Errorf(at.Key, "raise the rate, or remove \"fair\"", "the limit refills only %d in 24h, the longest horizon: two shares of ten requests need %d", most, store.LeastFair*each)
		return
	case limit.Burst/each < store.LeastFairBurst:
		p.Errorf(at.Key, fmt.Sprintf("set burst: %d or more", 100*each), "\"fair\" reads the shares off what is left of the burst: %d is too little, at least %d are needed", limit.Burst, store.LeastFairBurst*each)
		return
	case tokens/each < store.LeastFair:
		p.Errorf(at.Key, "choose a longer horizon, up to 24h", "the limit refills only %d in a horizon of %s: two shares of ten requests need %d", tokens, form.Short(fair.Horizon), store.LeastFair*each)
		return
	case tokens/each < 10*store.LeastFair:
		p.Warnf(at.Key, "choose a longer horizon", "with more than %d keys at a time a share is less than ten requests in a horizon of %s: they will not be even", tokens/each/10, form.Short(fair.Horizon))
	}
	if slices.ContainsFunc(r.Key, func(a rules.KeyAttribute) bool { return a.Attribute == fair.Among && a.Segment == 0 }) {
		p.Warnf(at.Key, "remove it from \"key\"", "each %s has a limit of its own, because it is in \"key\": there is nobody to share it with", fair.Among)
	}
	compiled, err := store.NewFair(limit, fair.Horizon)
	if err != nil {
		p.Errorf(at.Key, "", "%v", err)
		return
	}
	fair.Compiled, r.Fair = compiled, fair
}

// cannotBeFair refuses fair where it does not work.
func (p *Parser) cannotBeFair(at *yamltext.Node, rf *ruleForm, own bool) bool {
	r, limit, before := rf.rule, rf.rule.Limit.Rule(), p.Errors
	refuse := func(hint, with string) { p.Errorf(at, hint, "\"fair\" does not work with %s", with) }
	switch {
	case rf.tiers != nil:
		refuse("write weights, such as weights: {by: \"header:X-Plan\", pro: 5}", "tiers: one limit is shared by all")
	case own:
		refuse("write one rate", "a rate of each key: one limit is shared by all")
	case limit.Unlimited:
		refuse("remove it, or give the rule a rate", "an unlimited rate: there is nothing to share")
	case limit.Valid() && limit.Algorithm != headgate.TokenBucket:
		refuse("use token_bucket", "algorithm: "+limit.Algorithm.String())
	case limit.Age > 0:
		refuse("remove sync: the store decides each request", "sync: blocks: other servers do not see what a block is used for")
	case limit.Shared():
		refuse("give the limit a home, such as regions: {home: eu}", "a limit that regions share: each has a part")
	case r.Headroom != nil || rf.f["headroom"].Key != nil:
		refuse("write two limits", "headroom: what a class must leave is no part of a share")
	case r.OnLimit.Action == rules.Queue:
		refuse("remove one of them", "action: queue: the line of a key is one for all")
	case r.Soft > 0 || r.OnLimit.Action == rules.Pass:
		refuse("write two limits", "soft or on_limit: pass: what is left of the limit depends on the share")
	}
	return p.Errors > before
}
