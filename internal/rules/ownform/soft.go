package ownform

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/soft"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// parseSoft reads the part of a limit above which requests are marked.
func (p *Parser) parseSoft(n *yamltext.Node, r *rules.Rule) {
	number, percent := strings.CutSuffix(n.Text, "%")
	v, err := strconv.ParseUint(number, 10, 8)
	switch {
	case n.Kind != yamltext.Text && n.Kind != yamltext.Number:
		p.Errorf(n, "for example soft: 80%", "\"soft\" must be from 1%% to 99%%, not %s", n.Kind)
	case !percent && err == nil && v >= 1 && v <= 99:
		p.Errorf(n, "write soft: "+n.Text+"%", "\"soft\" must be a percentage, not %s", clip.Quote(n.Text))
	case !percent || err != nil || v > 100:
		p.Errorf(n, "for example soft: 80%", "\"soft\" must be from 1%% to 99%%, not %s", clip.Quote(n.Text))
	case v == 0:
		p.Errorf(n, "for example soft: 80%", "\"soft\" of 0%% would mark every request")
	case v == 100:
		p.Errorf(n, "for a rule that marks requests above 100% instead of refusing them, write on_limit: pass", "\"soft\" of 100%% would mark no request: above that they are refused")
	default:
		r.Soft = int(v)
	}
}

// CheckMarks refuses soft and on_limit: pass where they do not work. Everything else that r
// shares with rules of other forms must be known.
func (p *Parser) CheckMarks(f yamltext.Fields, r *rules.Rule) {
	limit := r.Limit.Rule()
	if n := f.Get("soft"); n != nil {
		switch {
		case limit.Unlimited:
			p.Errorf(n, "remove it, or give the rule a rate", "\"soft\" does not work without a limit: it is a part of one")
		case limit.Shared():
			p.Errorf(n, "remove one of them", "\"soft\" does not work with regions: shared: no region knows what the others have used")
		case limit.Valid() && limit.Limit > 0 && soft.Of(limit.Most(), r.SoftPart()) == 0:
			p.Warnf(n, "", "every request is marked: %s of %d is less than 1", n.Text, limit.Most())
		}
	}
	n := f.Get("on_limit")
	if n == nil || r.OnLimit.Action != rules.Pass {
		return
	}
	refuse := func(hint, with string) { p.Errorf(n, hint, "action: pass does not work with %s", with) }
	switch {
	case limit.Unlimited:
		refuse("remove it, or give the rule a rate", "an unlimited rate: no request is over it")
	case limit.Shared():
		refuse("remove one of them", "regions: shared: no region knows what the others have used")
	case r.Limit.Algorithm() == headgate.LeakyBucket:
		refuse("use token_bucket, without delay_after and max_wait", "algorithm: leaky_bucket: requests would still wait for their turn")
	case limit.CountRefused:
		refuse("remove count_denied", "count_denied: it refuses nothing")
	case limit.BlockAge() > 0:
		refuse("remove one of them", "sync: blocks: every request that passes has to be counted")
	case r.OnStoreError == rules.StoreErrorDeny:
		refuse("use on_store_error: allow or local", "on_store_error: deny: it never refuses")
	}
}
