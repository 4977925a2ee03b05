package ownform

import (
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
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
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

// onLimitForm is an on_limit that is being read.
type onLimitForm struct {
	body, kind *yamltext.Node
	wait       time.Duration
	queue      rules.Queueing
}

// onLimitKeys are the keys of on_limit.
func (p *Parser) onLimitKeys(o *rules.OnLimit, l *onLimitForm) form.Mapping {
	l.queue = rules.DefaultQueueing()
	action := form.Type{Schema: `"enum":["reject","delay","shadow_ban","queue","pass"]`, Default: o.Action.String()}
	answers := []string{rules.Reject.String(), rules.Delay.String(), rules.ShadowBan.String(), rules.Queue.String()}
	return form.Mapping{
		Def: "onLimit", Doc: "What happens to a request over the limit. See docs/more/outcomes.md.", Short: &action, By: "action", Word: rules.Reject.String(),
		Rows: append([]form.Row{
			{
				Key: "action", Doc: "reject: refuse. delay: requests wait, and those beyond the queue are refused. shadow_ban: answer as if the request had passed. queue: keep the request and send it later. pass: let it pass, marked.",
				Type: action.By("`reject`, `delay`, `shadow_ban`, `queue`, `pass`", func(n *yamltext.Node) { p.parseAction(n, "action", o) }), See: "more/outcomes.md",
			},
			{Key: "status", Doc: "The HTTP status: for shadow_ban also from 200.", Only: answers, Type: form.Type{
				Schema: `"type":"integer","minimum":200,"maximum":599`, Default: "429, for shadow_ban 200",
			}.By("300 to 599", func(n *yamltext.Node) { p.parseStatus(n, o) })},
			{
				Key: "body", Only: answers, Doc: "Replaces the problem+json body: one text of up to 64 KiB, or one for each media type. Variables such as {{.RetryAfter}} are filled in.",
				Type: form.Ref("body").By("text, or a mapping", func(n *yamltext.Node) { l.body = n }),
			},
			{
				Key: "content_type", Doc: "The content type of body.", Only: answers,
				Type: form.Type{Schema: `"type":"string","minLength":1,"pattern":"^[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$"`, Default: "text/plain; charset=utf-8"}.By("text", func(n *yamltext.Node) { l.kind = n }),
			},
			{
				Key: "headers", Doc: "Headers to add to the answer; not Content-Length and the like.", Only: answers,
				Type: form.Ref("answerHeaders").By("`{X-Reason: maintenance}`", func(n *yamltext.Node) { o.Headers = p.headerMap(n) }),
			},
			{
				Key: "retry_after_jitter", Doc: "Adds a random time to Retry-After: up to a percentage of it, or up to a duration.",
				Type: form.Type{Schema: `"type":"string","pattern":"^(([1-9][0-9]?|100)%|([0-9]+(\\.[0-9]*)?(us|µs|μs|ms|s|m|h))+)$"`}.By("`10%`, `5s`", func(n *yamltext.Node) { p.parseJitter(n, &o.Jitter) }),
				Only: []string{rules.Reject.String(), rules.Delay.String(), rules.Queue.String()},
			},
			{
				Key: "max_wait", Doc: "Requests that would have to wait longer are refused.", Only: []string{rules.Delay.String()},
				Type: form.Duration(time.Millisecond, maxWaiting, &l.wait, ""),
			},
			{
				Key: "latency", Doc: "The time until the answer.", Only: []string{rules.ShadowBan.String()},
				Type: form.Type{Schema: `"type":"string","pattern":"^([0-9]+(\\.[0-9]*)?(us|µs|μs|ms|s|m|h))+( *(±|\\+-) *([0-9]+(\\.[0-9]*)?(us|µs|μs|ms|s|m|h))+)?$"`}.
					By("`120ms`, `120ms±30ms`", func(n *yamltext.Node) { p.parseLatency(n, &o.Latency) }),
			},
		}, p.queueKeys(&l.queue)...),
		Extra: `"dependentRequired":{"content_type":["body"]}`,
		Together: []string{
			`{"if":{"not":{"required":["action"],"properties":{"action":{"const":"shadow_ban"}}}},"then":{"properties":{"status":{"minimum":300}}}}`,
			`{"if":{"required":["body"],"properties":{"body":{"type":"object"}}},"then":{"properties":{"content_type":false}}}`,
		},
	}
}

// parseOnLimit reads on_limit, an action alone or a mapping, into r, whose
// limit is known.
func (p *Parser) parseOnLimit(n *yamltext.Node, r *rules.Rule) {
	o, l := &r.OnLimit, onLimitForm{}
	keys := p.onLimitKeys(o, &l)
	var f yamltext.Fields
	switch n.Kind {
	case yamltext.Number:
		p.Errorf(n, "write on_limit: {status: "+n.Text+"}", "\"on_limit\" must be an action or a mapping, not a number")
		return
	case yamltext.Map:
		f = form.Read(p.Report, n, "on_limit", keys.Rows)
		form.Stray(f, keys.Rows, o.Action.String(), func(row *form.Row, at *yamltext.Node) {
			p.Errorf(at, "", "%q does not apply to action: %s", row.Key, o.Action)
		})
	default:
		p.parseAction(n, "on_limit", o)
	}
	if l.body != nil {
		p.parseBodies(l.body, l.kind, o)
	} else if l.kind != nil {
		p.Errorf(l.kind, "", "\"content_type\" needs a body")
	}
	if wait := f.Get("max_wait"); wait == nil || l.wait > 0 {
		p.makeWait(n, wait, l.wait, r)
	}
	p.makeQueue(n, &l.queue, r)
}

// parseStatus reads the status of an answer, whose action is known.
func (p *Parser) parseStatus(n *yamltext.Node, o *rules.OnLimit) {
	lowest := int64(300)
	if o.Action == rules.ShadowBan {
		lowest = 200
	}
	form.ReadOne(p.Report, "status", n, form.Integer(lowest, 599, &o.Status))
	o.Stated = true
}

// parseAction reads what to do with a request over the limit.
func (p *Parser) parseAction(n *yamltext.Node, key string, o *rules.OnLimit) {
	word, ok := p.Word(n, key)
	if !ok {
		return
	}
	var known []string
	for a := rules.Reject; a <= rules.Pass; a++ {
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

// parseBodies reads body, one text or one for each type, and content_type.
func (p *Parser) parseBodies(n, kind *yamltext.Node, o *rules.OnLimit) {
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
	d, err := form.ParseDuration(text, time.Millisecond, maxWaiting)
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
	if l.Base, err = form.ParseDuration(strings.TrimSpace(base), time.Microsecond, maxLatency); err == nil && varies {
		l.Spread, err = form.ParseDuration(strings.TrimSpace(spread), time.Microsecond, l.Base)
	}
	if err != nil {
		p.Errorf(n, "for example 120ms or 120ms±30ms", "\"latency\": %v", err)
		*l = rules.Latency{}
	}
}

// makeWait gives the limit of r a queue, if its action is to delay.
// n has the longest wait, and is nil if there is none.
func (p *Parser) makeWait(at, n *yamltext.Node, wait time.Duration, r *rules.Rule) {
	if r.OnLimit.Action != rules.Delay || !r.Limit.Rule().Valid() || r.Limit.Rule().Unlimited {
		return
	}
	if n != nil {
		at = n
	}
	limit := r.Limit
	switch {
	case limit.Algorithm() == headgate.LeakyBucket:
		if n != nil {
			limit = limit.WithMaxWait(wait)
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
	case limit.Rule().BlockAge() > 0:
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
	burst := l.Burst()
	hi, lo := bits.Mul64(uint64(l.N()), uint64(wait/time.Microsecond))
	places := int64(store.MaxLimit)
	if period := uint64(l.Period() / time.Microsecond); hi < period {
		quotient, _ := bits.Div64(hi, lo, period)
		places = int64(min(quotient, store.MaxLimit))
	}
	return l.WithAlgorithm(headgate.LeakyBucket).WithBurst(min(burst+places, store.MaxLimit)).WithDelayAfter(burst).WithMaxWait(wait)
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
