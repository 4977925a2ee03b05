package ownform

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/base/clip"
	"github.com/headgate/headgate/internal/base/nearest"
	"github.com/headgate/headgate/internal/request/spelling"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/body"
	"github.com/headgate/headgate/internal/rules/rate"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// headerMap reads the headers of an answer.
func (p *Parser) headerMap(n *yamltext.Node) map[string]string {
	if n.Kind != yamltext.Map {
		p.Errorf(n, "", "\"headers\" must be a mapping (name: value), not %s", n.Kind)
		return nil
	}
	headers := make(map[string]string, len(n.Pairs))
	for _, field := range n.Pairs {
		name, ok := rules.CanonicalHeader(field.Key.Text)
		switch {
		case !ok:
			p.Errorf(field.Key, "", "invalid header name %s", clip.Quote(field.Key.Text))
		case slices.Contains(framingHeaders(), name):
			p.Errorf(field.Key, "", "the header %s cannot be set: the server controls it", name)
		case name == "Content-Type":
			p.Errorf(field.Key, "", "to set Content-Type, use content_type next to the body")
		case field.Value.Kind == yamltext.List || field.Value.Kind == yamltext.Map || field.Value.Kind == yamltext.Null:
			p.Errorf(field.Value, "", "the header %s must be text, not %s", name, field.Value.Kind)
		case !isHeaderValue(field.Value.Text):
			p.Errorf(field.Value, "", "the value of the header %s has characters that are not allowed in headers", name)
		default:
			headers[name] = field.Value.Text
		}
	}
	return headers
}

// framingHeaders returns headers that would break the answer's framing.
func framingHeaders() []string {
	return []string{"Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

// isHeaderValue reports whether text can be the value of a header: it has no control
// characters, which could end the header early.
func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

const (
	maxBody     = 64 << 10    // the largest body of an answer in bytes
	maxVariants = 16          // how many bodies one answer may have
	maxLatency  = time.Minute // the longest delay of an answer
	maxWaiting  = time.Hour   // the longest max_wait, and the longest jitter
)

func onLimitKeys() []string {
	return append([]string{"action", "status", "body", "content_type", "headers", "retry_after_jitter", "max_wait", "latency"}, queueKeys()...)
}

// parseOnLimit reads on_limit, an action alone or a mapping, into r, whose
// limit is known.
func (p *Parser) parseOnLimit(n *yamltext.Node, r *rules.Rule) {
	o := &r.OnLimit
	if n.Kind == yamltext.Number {
		p.Errorf(n, "write on_limit: {status: "+n.Text+"}", "\"on_limit\" must be an action or a mapping, not a number")
		return
	}
	if n.Kind != yamltext.Map {
		p.parseAction(n, "on_limit", o)
		p.makeWait(n, nil, r)
		p.parseQueueing(n, nil, r)
		return
	}
	f := p.Fields(n, "on_limit", onLimitKeys())
	if n := f.Get("action"); n != nil {
		p.parseAction(n, "action", o)
	}
	p.refuseOfAction(f, o.Action)
	lowest, status := int64(300), int64(o.Status)
	if o.Action == rules.ShadowBan {
		lowest = 200
	}
	p.IntegerOf(f, "status", lowest, 599, &status)
	o.Status = int(status)
	if n := f.Get("body"); n != nil {
		p.parseBodies(n, f, o)
	} else if n := f.Get("content_type"); n != nil {
		p.Errorf(n, "", "\"content_type\" needs a body")
	}
	if n := f.Get("headers"); n != nil {
		o.Headers = p.headerMap(n)
	}
	if n := f.Get("retry_after_jitter"); n != nil {
		p.parseJitter(n, &o.Jitter)
	}
	if n := f.Get("latency"); n != nil {
		p.parseLatency(n, &o.Latency)
	}
	p.makeWait(n, f, r)
	p.parseQueueing(n, f, r)
}

// parseAction reads what to do with a request over the limit.
func (p *Parser) parseAction(n *yamltext.Node, key string, o *rules.OnLimit) {
	word, ok := p.Word(n, key)
	if !ok {
		return
	}
	var known []string
	for a := rules.Reject; a <= rules.Queue; a++ {
		known = append(known, a.String())
	}
	at := slices.Index(known, word)
	if at < 0 {
		p.Unknown(n, "action", "", known, "")
		return
	}
	if o.Action = rules.Action(at); o.Action == rules.ShadowBan {
		o.Status = 200
	}
}

// refuseOfAction reports keys that belong to another action.
func (p *Parser) refuseOfAction(f yamltext.Fields, a rules.Action) {
	owner := func(key string, actions ...rules.Action) {
		if field, ok := f[key]; ok && !slices.Contains(actions, a) {
			p.Errorf(field.Key, "", "%q does not apply to action: %s", key, a)
		}
	}
	owner("retry_after_jitter", rules.Reject, rules.Delay, rules.Queue)
	owner("max_wait", rules.Delay)
	owner("latency", rules.ShadowBan)
	for _, key := range queueKeys() {
		owner(key, rules.Queue)
	}
}

// parseBodies reads body, one text or one for each type, and content_type.
func (p *Parser) parseBodies(n *yamltext.Node, f yamltext.Fields, o *rules.OnLimit) {
	kind := f.Get("content_type")
	if n.Kind != yamltext.Map {
		contentType := "text/plain; charset=utf-8"
		if kind != nil {
			contentType = p.contentType(kind, contentType)
		}
		p.addBody(n, "body", contentType, o)
		if len(o.Bodies) == 0 {
			return
		}
		if text, static := o.Bodies[0].Template.Static(); static {
			o.Body, o.ContentType, o.Bodies = text, contentType, nil
		}
		return
	}
	if kind != nil {
		p.Errorf(kind, "", "\"content_type\" cannot be combined with a body for each type")
	}
	if len(n.Pairs) == 0 || len(n.Pairs) > maxVariants {
		p.Errorf(n, "", "\"body\" must have from 1 to %d types, such as json and html", maxVariants)
		return
	}
	seen := map[string]bool{}
	for _, field := range n.Pairs {
		contentType := ""
		switch name := field.Key.Text; {
		case name == "json":
			contentType = "application/json"
		case name == "html":
			contentType = "text/html; charset=utf-8"
		case name == "text":
			contentType = "text/plain; charset=utf-8"
		case isMediaType(name):
			contentType = strings.ToLower(name)
		default:
			p.Errorf(field.Key, "use json, html, text, or a media type such as application/xml", "unknown body type %s%s",
				clip.Quote(name), nearest.DidYouMean(name, []string{"json", "html", "text"}))
			continue
		}
		plain, _, _ := strings.Cut(contentType, ";")
		if seen[plain] {
			p.Errorf(field.Key, "", "duplicate body for %s", plain)
			continue
		}
		seen[plain] = true
		p.addBody(field.Value, field.Key.Text, contentType, o)
	}
}

// isMediaType reports whether text is a media type without parameters.
func isMediaType(text string) bool {
	kind, sub, ok := strings.Cut(text, "/")
	return ok && spelling.IsToken(kind) && spelling.IsToken(sub) && !strings.Contains(text, "*")
}

func (p *Parser) contentType(n *yamltext.Node, otherwise string) string {
	value, ok := p.Word(n, "content_type")
	switch {
	case !ok:
	case !isHeaderValue(value):
		p.Errorf(n, "", "the content type has characters that are not allowed in headers")
	default:
		return value
	}
	return otherwise
}

// addBody reads and checks one body.
func (p *Parser) addBody(n *yamltext.Node, key, contentType string, o *rules.OnLimit) {
	text, ok := p.Word(n, key)
	if !ok {
		return
	}
	if len(text) > maxBody {
		p.Errorf(n, "", "the body is larger than %d KiB", maxBody>>10)
		return
	}
	template, err := body.Parse(text, body.EscapeOf(contentType))
	if err != nil {
		var names []string
		for _, name := range body.Variables() {
			names = append(names, "{{."+name+"}}")
		}
		p.Errorf(n, "use one of "+strings.Join(names, ", "), "%v", err)
		return
	}
	if _, static := template.Static(); !static && body.EscapeOf(contentType) == body.JSON {
		if !template.IsJSON() {
			p.Errorf(n, "", "the body is not valid JSON once its variables are filled in")
			return
		}
	}
	o.Bodies = append(o.Bodies, body.Variant{ContentType: contentType, Template: template})
}

// duration parses a duration, such as 120ms or 1.5s.
func duration(text string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || text[0] < '0' || text[0] > '9' || strings.Contains(text, "ns") || d%time.Microsecond != 0 {
		return 0, fmt.Errorf("invalid duration %s: want a number and a unit, such as 250ms or 2m", clip.Quote(text))
	}
	if d < low || d > high {
		return 0, fmt.Errorf("%s must be from %s to %s", text, rate.Short(low), rate.Short(high))
	}
	return d, nil
}

// durationOf reads the duration under a key, and reports whether there is one.
func (p *Parser) durationOf(f yamltext.Fields, key string, low, high time.Duration, into *time.Duration) bool {
	n := f.Get(key)
	if n == nil {
		return false
	}
	text, ok := p.Span(n, key)
	if !ok {
		return false
	}
	d, err := duration(text, low, high)
	if err != nil {
		p.Errorf(n, "", "%q: %v", key, err)
		return false
	}
	*into = d
	return true
}

// parseJitter reads a percentage or a duration.
func (p *Parser) parseJitter(n *yamltext.Node, j *rules.Jitter) {
	text, ok := p.Span(n, "retry_after_jitter")
	if !ok {
		return
	}
	if number, percent := strings.CutSuffix(text, "%"); percent {
		v, err := strconv.ParseUint(number, 10, 8)
		if err != nil || v < 1 || v > 100 {
			p.Errorf(n, "", "\"retry_after_jitter\" must be from 1%% to 100%%, or a duration such as 5s, not %s", clip.Quote(text))
			return
		}
		j.Percent = int64(v)
		return
	}
	d, err := duration(text, time.Millisecond, maxWaiting)
	if err != nil {
		p.Errorf(n, "or use a percentage such as 10%", "\"retry_after_jitter\": %v", err)
		return
	}
	j.Most = d
}

// parseLatency reads a duration and, after ± or +-, how much it varies.
func (p *Parser) parseLatency(n *yamltext.Node, l *rules.Latency) {
	text, ok := p.Span(n, "latency")
	if !ok {
		return
	}
	base, spread, varies := strings.Cut(strings.ReplaceAll(text, "+-", "±"), "±")
	var err error
	if l.Base, err = duration(strings.TrimSpace(base), time.Microsecond, maxLatency); err == nil && varies {
		l.Spread, err = duration(strings.TrimSpace(spread), time.Microsecond, l.Base)
	}
	if err != nil {
		p.Errorf(n, "for example 120ms or 120ms±30ms", "\"latency\": %v", err)
		*l = rules.Latency{}
	}
}

// makeWait gives the limit of r a queue, if its action is to delay.
func (p *Parser) makeWait(at *yamltext.Node, f yamltext.Fields, r *rules.Rule) {
	if r.OnLimit.Action != rules.Delay || !r.Limit.Valid() || r.Limit.IsUnlimited() {
		return
	}
	var wait time.Duration
	n := f.Get("max_wait")
	if n != nil {
		if at = n; !p.durationOf(f, "max_wait", time.Millisecond, maxWaiting, &wait) {
			return
		}
	}
	limit := r.Limit
	switch {
	case limit.Algorithm() == headgate.LeakyBucket:
		if n != nil {
			limit = limit.MaxWait(wait)
		}
	case r.Concurrent():
		p.Errorf(at, "", "action: delay does not work with concurrency: the time until a slot is free is unknown")
		return
	case limit.Algorithm() == headgate.Distinct:
		p.Errorf(at, "use reject or shadow_ban", "action: delay does not work with count: distinct: waiting does not make a value known")
		return
	case limit.Algorithm() != headgate.TokenBucket:
		p.Errorf(at, "use algorithm: leaky_bucket, or token_bucket with a max_wait", "action: delay does not work with algorithm: %s", limit.Algorithm())
		return
	case limit.Rule().RefillEvery > 0:
		p.Errorf(at, "remove one of them", "action: delay does not work with refill: a queue drains continuously, not in steps")
		return
	case limit.BlockAge() > 0:
		p.Errorf(at, "remove one of them", "action: delay does not work with sync: blocks: a queue has to know every request")
		return
	case n == nil:
		p.Errorf(at, "for example on_limit: {action: delay, max_wait: 2s}", "\"max_wait\" is missing, the longest time a request may wait")
		return
	case limit.N() == 0:
		return
	default:
		limit = queueBehind(limit, wait)
		if l := limit.Rule(); l.DelayAfter < l.Burst {
			wait = 0 // the queue is as long as that: it has an effect
		}
	}
	if err := limit.Validate(); err != nil {
		p.Errorf(at, "", "%v", err)
		return
	}
	p.warnOfWait(at, wait, limit)
	r.Limit = limit
}

// queueBehind returns a token bucket as a leaky bucket: the burst is served at once, and
// the queue has as many requests as the rate allows within the wait.
func queueBehind(l headgate.Limit, wait time.Duration) headgate.Limit {
	burst := l.Capacity()
	hi, lo := bits.Mul64(uint64(l.N()), uint64(wait/time.Microsecond))
	places := int64(headgate.MaxLimit)
	if period := uint64(l.Period() / time.Microsecond); hi < period {
		quotient, _ := bits.Div64(hi, lo, period)
		places = int64(min(quotient, headgate.MaxLimit))
	}
	return l.Using(headgate.LeakyBucket).Burst(min(burst+places, headgate.MaxLimit)).DelayAfter(burst).MaxWait(wait)
}

// warnOfWait warns about a wait that changes nothing.
func (p *Parser) warnOfWait(at *yamltext.Node, wait time.Duration, l headgate.Limit) {
	r := l.Rule()
	switch {
	case r.DelayAfter >= r.Burst && r.Burst > 1:
		p.Warnf(at, "", "no request ever waits: the first %d are served at once, and the rest are refused", r.Burst)
	case wait > 0 && r.Late >= r.Capacity-r.Token && r.Capacity-r.Token-r.Free < r.Late-r.Free:
		p.Warnf(at, "", "\"max_wait\" has no effect: the queue is full before a request would wait that long")
	}
}

// parseShare reads the part of a limit that this process enforces on its own.
func (p *Parser) parseShare(field yamltext.Pair, r *rules.Rule) {
	n := field.Value
	v, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case n.Kind != yamltext.Number || err != nil:
		p.Errorf(n, "", "\"share\" must be a number, not %s", clip.Quote(n.Text))
	case !(v > 0 && v <= 1): // also refuses NaN
		p.Errorf(n, "", "\"share\" must be more than 0 and at most 1, not %s", n.Text)
	case r.OnStoreError != rules.StoreErrorLocal:
		p.Errorf(field.Key, "", "\"share\" applies only to policy: local")
	default:
		r.LocalShare = v
	}
}
