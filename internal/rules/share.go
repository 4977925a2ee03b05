package rules

import "strconv"

// parseShare reads the part of a limit that this process may give out by
// itself.
func (p *parser) parseShare(field pair, r *Rule) {
	n := field.value
	v, err := strconv.ParseFloat(n.text, 64)
	switch {
	case n.kind != numberKind || err != nil:
		p.errorf(n, "", "\"share\" must be a number, not %s", quote(n.text))
	case !(v > 0 && v <= 1): // also refuses NaN
		p.errorf(n, "", "\"share\" must be more than 0 and at most 1, not %s", n.text)
	case r.OnStoreError != StoreErrorLocal:
		p.errorf(field.key, "", "\"share\" has no meaning beside a policy other than local")
	default:
		r.LocalShare = v
	}
}
