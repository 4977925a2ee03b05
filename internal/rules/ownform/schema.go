package ownform

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/features"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// Mappings returns the mappings of rules, by their tables: for the schema and the docs.
func Mappings() []form.Mapping {
	p, r := &Parser{}, NewRule("", "", &yamltext.Node{})
	l, globs := &LimitForm{Parser: p}, form.Ref("globs")
	all := []form.Mapping{
		p.ruleKeys(&ruleForm{rule: r}),
		p.matchKeys(&matchForm{Match: &rules.Match{}}),
		{Def: "condition", Doc: "A value or a list of values, of which any may match (* matches any characters), or a mapping with is, not and present.", Short: &globs, Rows: p.conditionKeys(&rules.ValueMatch{}, &lists{}), Extra: `"minProperties":1`},
		p.tierKeys(),
		(&tierForm{Parser: p}).tiersKeys(),
		p.costKeys(&costForm{bounds: rules.CostFrom{Default: 1, Min: 1}}),
		p.chargeOnKeys(&chargeForm{}),
		p.priorityKeys(&rules.Priorities{}),
		p.fairKeys(&rules.Fair{Horizon: 10 * time.Second}),
		p.classRuleKeys(&rules.Priorities{}, &rules.ClassRule{}),
		p.onLimitKeys(&r.OnLimit, &onLimitForm{}),
		p.storeErrorKeys(r),
		l.syncKeys(&store.Blocks{}, new(bool)),
		l.regionKeys(&store.Regions{}, new(bool)),
		(&tableForm{Parser: p}).rateKeys(),
		p.zoneKeys(&zoneForm{}),
		allowKeys(),
		p.denyKeys(&listID{status: deniedStatus}),
		p.listFileKeys(new(string)),
	}
	for _, f := range features.All() {
		if f.Keys != nil {
			all = append(all, f.Keys())
		}
	}
	return all
}

// limitTogether are the schemas of what the keys of a rule refuse of each other.
func limitTogether() []string {
	keys := append(LimitKeys()[1:], distinctNames()...)
	return []string{`{"$ref":"#/$defs/ownLimit"}`, form.Without(isUnlimited, append(slices.Clip(keys), "soft")), concurrencyAlone(append(LimitKeys(), distinctNames()...))}
}

// isUnlimited is the JSON Schema of a rate that is unlimited.
const isUnlimited = `"required":["rate"],"properties":{"rate":{"type":"string","pattern":"^\\s*[uU][nN][lL][iI][mM][iI][tT][eE][dD]\\s*$"}}`

// concurrencyAlone is the JSON Schema of a limit of concurrency, without the keys of a rate.
func concurrencyAlone(keys []string) string {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "regions" })
	return `{"allOf":[` + form.Without(`"required":["concurrency"]`, keys) +
		`,{"if":{"required":["concurrency"]},"then":{"properties":{"regions":{"anyOf":[{"const":"separate"},{"type":"object","required":["home"]}]}}}}]}`
}
