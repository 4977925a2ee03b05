package rules

import (
	"slices"
	"strconv"
)

// maxBody is the largest body of an answer in bytes.
const maxBody = 64 << 10

func onLimitKeys() []string {
	return []string{"action", "status", "body", "content_type", "headers"}
}

// parseOnLimit reads on_limit: an action alone, or a mapping.
func (p *parser) parseOnLimit(n *node, o *OnLimit) {
	if n.kind != mapKind {
		p.parseAction(n, "on_limit")
		return
	}
	f := p.fields(n, "on_limit", onLimitKeys())
	if n := f.get("action"); n != nil {
		p.parseAction(n, "action")
	}
	if n := f.get("status"); n != nil {
		if status, ok := p.integer(n, "status", 300, 599); ok {
			o.Status = int(status)
		}
	}
	if n := f.get("body"); n != nil {
		o.Body, _ = p.word(n, "body")
		o.ContentType = "text/plain; charset=utf-8"
		if len(o.Body) > maxBody {
			p.errorf(n, "", "the body is larger than %d KiB", maxBody>>10)
		}
	}
	if n := f.get("content_type"); n != nil {
		p.parseContentType(n, f, o)
	}
	if n := f.get("headers"); n != nil {
		o.Headers = p.headerMap(n)
	}
}

func (p *parser) parseContentType(n *node, f fields, o *OnLimit) {
	value, ok := p.word(n, "content_type")
	switch {
	case !ok:
	case !isHeaderValue(value):
		p.errorf(n, "", "the content type has characters that no header may have")
	case f.get("body") == nil:
		p.errorf(n, "", "\"content_type\" needs a body")
	default:
		o.ContentType = value
	}
}

// parseAction reads what to do with a request over the limit.
func (p *parser) parseAction(n *node, key string) {
	word, ok := p.word(n, key)
	if !ok || word == "reject" {
		return
	}
	if slices.Contains([]string{"delay", "shadow_ban", "queue"}, word) {
		p.errorf(n, "use reject", "the action %s is not supported by this version", quote(word))
		return
	}
	near := didYouMean(word, []string{"reject"})
	hint := ""
	if near == "" {
		hint = "known is reject"
	}
	p.errorf(n, hint, "unknown action %s%s", quote(word), near)
}

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
