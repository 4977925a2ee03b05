package rules

import (
	"strconv"

	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// parseShare reads the part of a limit that this process may give out by
// itself.
func (p *parser) parseShare(field yamltext.Pair, r *Rule) {
	n := field.Value
	v, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case n.Kind != yamltext.Number || err != nil:
		p.Errorf(n, "", "\"share\" must be a number, not %s", clip.Quote(n.Text))
	case !(v > 0 && v <= 1): // also refuses NaN
		p.Errorf(n, "", "\"share\" must be more than 0 and at most 1, not %s", n.Text)
	case r.OnStoreError != StoreErrorLocal:
		p.Errorf(field.Key, "", "\"share\" has no meaning beside a policy other than local")
	default:
		r.LocalShare = v
	}
}
