package admin

import (
	"net/http"

	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/store/blocks"
)

// RuleBlocks is one rule with sync: blocks in the answer of GET /v1/blocks. Its counts
// are of all tiers of the rule; its bound is of this tier.
type RuleBlocks struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Rate   string `json:"rate"` // which tells tiers apart

	httpapi.Blocks
}

// listBlocks answers GET /v1/blocks.
func (d reports) listBlocks(_ http.ResponseWriter, r *http.Request) (any, error) {
	domain := r.URL.Query().Get("domain")
	if _, err := rulesNamed(d.Engine.Rules(), domain, ""); err != nil {
		return nil, err
	}
	out := struct {
		Rules []RuleBlocks `json:"rules"`
	}{Rules: []RuleBlocks{}}
	var now []blocks.Stats
	if d.Blocks != nil {
		now = d.Blocks()
	}
	for _, rule := range d.Engine.Rules().Rules() {
		if domain != "" && rule.Domain != domain {
			continue
		}
		if b := httpapi.BlocksOf(rule.Limit, rule.Scope, now); b != nil {
			out.Rules = append(out.Rules, RuleBlocks{Domain: rule.Domain, Rule: rule.Name, File: rule.File, Line: rule.Line, Rate: rateText(rule.Limit), Blocks: *b})
		}
	}
	return out, nil
}
