package rules

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
	"github.com/headgate/headgate/internal/rules/body"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// OnLimit is a rule's answer to a request over its limit.
type OnLimit struct {
	// Action is what happens to it. With Delay, requests within the limit wait
	// for their turn, and those over it are answered as by Reject.
	Action Action
	// Status is the HTTP status of the answer: 429 by default, of ShadowBan
	// 200.
	Status int
	// Body replaces the problem+json body if not empty.
	Body string
	// ContentType belongs to Body.
	ContentType string
	// Bodies replace the problem+json body if there are any, by what the
	// client accepts. They are there in place of Body if it has variables or
	// there are several.
	Bodies []body.Variant
	// Headers are added to the answer.
	Headers map[string]string
	// Jitter is added to the time after which clients are told to try again.
	Jitter Jitter
	// Latency is how long the answer of ShadowBan takes.
	Latency Latency
	// Queueing is how Queue keeps requests; nil for other actions. What cannot
	// be kept is answered as by Reject.
	Queueing *Queueing
}

// Jitter is a random time added to another: up to Percent of it, or up to Most.
type Jitter struct {
	Percent int64
	Most    time.Duration
}

// Extra returns how much to add to exact, which is not negative. random
// returns a number from 0 to below n, such as math/rand/v2.Int64N.
func (j Jitter) Extra(exact time.Duration, random func(n int64) int64) time.Duration {
	most := int64(j.Most)
	if j.Percent > 0 {
		hi, lo := bits.Mul64(uint64(max(exact, 0)), uint64(j.Percent))
		part, _ := bits.Div64(hi, lo, 100) // Percent ≤ 100, so hi is far below 100
		most = int64(part)
	}
	if most <= 0 {
		return 0
	}
	return time.Duration(random(most + 1))
}

// Latency is a time that varies evenly from Base - Spread to Base + Spread.
type Latency struct{ Base, Spread time.Duration }

// Pick returns one such time. random is as of [Jitter.Extra].
func (l Latency) Pick(random func(n int64) int64) time.Duration {
	if l.Spread <= 0 {
		return l.Base
	}
	return l.Base - l.Spread + time.Duration(random(2*int64(l.Spread)+1))
}

const (
	// maxBody is the largest body of an answer in bytes.
	maxBody = 64 << 10
	// maxVariants is how many bodies one answer may have.
	maxVariants = 16
	// maxLatency is the longest that an answer is held back.
	maxLatency = time.Minute
	// maxWaiting is the longest max_wait, and the longest jitter.
	maxWaiting = time.Hour
)

func onLimitKeys() []string {
	return append([]string{"action", "status", "body", "content_type", "headers", "retry_after_jitter", "max_wait", "latency"}, queueKeys()...)
}

// parseOnLimit reads on_limit, an action alone or a mapping, into r, whose
// limit is known.
func (p *parser) parseOnLimit(n *yamltext.Node, r *Rule) {
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
	if n := f.Get("status"); n != nil {
		lowest := int64(300)
		if o.Action == ShadowBan {
			lowest = 200
		}
		if status, ok := p.Integer(n, "status", lowest, 599); ok {
			o.Status = int(status)
		}
	}
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
func (p *parser) parseAction(n *yamltext.Node, key string, o *OnLimit) {
	word, ok := p.Word(n, key)
	if !ok {
		return
	}
	known := []string{Reject.String(), Delay.String(), ShadowBan.String(), Queue.String()}
	switch word {
	case Reject.String():
	case Delay.String():
		o.Action = Delay
	case ShadowBan.String():
		o.Action, o.Status = ShadowBan, 200
	case Queue.String():
		o.Action = Queue
	default:
		near := nearest.DidYouMean(word, known)
		hint := ""
		if near == "" {
			hint = "known are " + strings.Join(known, ", ")
		}
		p.Errorf(n, hint, "unknown action %s%s", clip.Quote(word), near)
	}
}

// refuseOfAction reports keys that belong to another action.
func (p *parser) refuseOfAction(f yamltext.Fields, a Action) {
	owner := func(key string, actions ...Action) {
		if field, ok := f[key]; ok && !slices.Contains(actions, a) {
			p.Errorf(field.Key, "", "%q has no meaning beside action: %s", key, a)
		}
	}
	owner("retry_after_jitter", Reject, Delay, Queue)
	owner("max_wait", Delay)
	owner("latency", ShadowBan)
	for _, key := range queueKeys() {
		owner(key, Queue)
	}
}

// parseBodies reads body, one text or one for each type, and content_type.
func (p *parser) parseBodies(n *yamltext.Node, f yamltext.Fields, o *OnLimit) {
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
		p.Errorf(kind, "", "\"content_type\" has no meaning beside a body for each type")
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
			p.Errorf(field.Key, "known are json, html, text, or a media type such as application/xml", "unknown type of body %s%s",
				clip.Quote(name), nearest.DidYouMean(name, []string{"json", "html", "text"}))
			continue
		}
		plain, _, _ := strings.Cut(contentType, ";")
		if seen[plain] {
			p.Errorf(field.Key, "", "the body for %s is given twice", plain)
			continue
		}
		seen[plain] = true
		p.addBody(field.Value, field.Key.Text, contentType, o)
	}
}

// isMediaType reports whether text is a media type without parameters.
func isMediaType(text string) bool {
	kind, sub, ok := strings.Cut(text, "/")
	return ok && isToken(kind) && isToken(sub) && !strings.Contains(text, "*")
}

func (p *parser) contentType(n *yamltext.Node, otherwise string) string {
	value, ok := p.Word(n, "content_type")
	switch {
	case !ok:
	case !isHeaderValue(value):
		p.Errorf(n, "", "the content type has characters that no header may have")
	default:
		return value
	}
	return otherwise
}

// addBody reads one body and tries it.
func (p *parser) addBody(n *yamltext.Node, key, contentType string, o *OnLimit) {
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
		p.Errorf(n, "known are "+strings.Join(names, ", "), "%v", err)
		return
	}
	if _, static := template.Static(); !static && body.EscapeOf(contentType) == body.JSON {
		if !template.IsJSON() {
			p.Errorf(n, "", "the body is not JSON once its variables are filled in")
			return
		}
	}
	o.Bodies = append(o.Bodies, body.Variant{ContentType: contentType, Template: template})
}

// duration reads a time, such as 120ms or 1.5s.
func duration(text string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || text[0] < '0' || text[0] > '9' || strings.Contains(text, "ns") || d%time.Microsecond != 0 {
		return 0, fmt.Errorf("%s is not a time, such as 250ms, 1.5s or 2m", clip.Quote(text))
	}
	if d < low || d > high {
		return 0, fmt.Errorf("%s must be from %s to %s", text, low, high)
	}
	return d, nil
}

// parseJitter reads a percentage or a time.
func (p *parser) parseJitter(n *yamltext.Node, j *Jitter) {
	text, ok := p.Span(n, "retry_after_jitter")
	if !ok {
		return
	}
	if number, percent := strings.CutSuffix(text, "%"); percent {
		v, err := strconv.ParseUint(number, 10, 8)
		if err != nil || v < 1 || v > 100 {
			p.Errorf(n, "", "\"retry_after_jitter\" must be from 1%% to 100%%, or a time such as 5s, not %s", clip.Quote(text))
			return
		}
		j.Percent = int64(v)
		return
	}
	d, err := duration(text, time.Millisecond, maxWaiting)
	if err != nil {
		p.Errorf(n, "a share such as 10% is possible too", "\"retry_after_jitter\": %v", err)
		return
	}
	j.Most = d
}

// parseLatency reads a time, with ± or +- how much it varies.
func (p *parser) parseLatency(n *yamltext.Node, l *Latency) {
	text, ok := p.Span(n, "latency")
	if !ok {
		return
	}
	base, spread, varies := strings.Cut(strings.ReplaceAll(text, "+-", "±"), "±")
	var err error
	if l.Base, err = duration(strings.TrimSpace(base)+"", time.Microsecond, maxLatency); err == nil && varies {
		l.Spread, err = duration(strings.TrimSpace(spread), time.Microsecond, l.Base)
	}
	if err != nil {
		p.Errorf(n, "for example 120ms or 120ms±30ms", "\"latency\": %v", err)
		*l = Latency{}
	}
}

// makeWait makes the limit of r, if its action is to delay, one whose requests
// wait for their turn.
func (p *parser) makeWait(at *yamltext.Node, f yamltext.Fields, r *Rule) {
	if r.OnLimit.Action != Delay || !r.Limit.Valid() || r.Limit.IsUnlimited() {
		return
	}
	var wait time.Duration
	n := f.Get("max_wait")
	if n != nil {
		text, ok := p.Span(n, "max_wait")
		if !ok {
			return
		}
		var err error
		if wait, err = duration(text, time.Millisecond, maxWaiting); err != nil {
			p.Errorf(n, "", "\"max_wait\": %v", err)
			return
		}
		at = n
	}
	limit := r.Limit
	switch {
	case limit.Algorithm() == headgate.LeakyBucket:
		if n != nil {
			limit = limit.MaxWait(wait)
		}
	case r.Concurrent():
		p.Errorf(at, "", "who is not among those under way cannot wait for a turn: nobody knows when that is")
		return
	case limit.Algorithm() != headgate.TokenBucket:
		p.Errorf(at, "use algorithm: leaky_bucket, or token_bucket with a max_wait", "requests of a %s cannot be made to wait for their turn", limit.Algorithm())
		return
	case n == nil:
		p.Errorf(at, "for example on_limit: {action: delay, max_wait: 2s}", "\"max_wait\" is missing: how long may a request wait for its turn?")
		return
	case limit.N() == 0:
		return
	default:
		limit = queueBehind(limit, wait)
	}
	if err := limit.Validate(); err != nil {
		p.Errorf(at, "", "%v", err)
		return
	}
	p.warnOfWait(at, wait, limit)
	r.Limit = limit
}

// queueBehind returns a token bucket as the first stage of a leaky bucket: what
// the bucket lets through at once, and after it a queue of what it would let
// through within the wait.
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

// warnOfWait warns of a wait that changes nothing.
func (p *parser) warnOfWait(at *yamltext.Node, wait time.Duration, l headgate.Limit) {
	r := l.Rule()
	switch {
	case r.DelayAfter >= r.Burst && r.Burst > 1:
		p.Warnf(at, "", "nobody ever waits: all %d places are served at once", r.Burst)
	case wait > 0 && r.Late >= r.Capacity-r.Token && r.Capacity-r.Token-r.Free < r.Late-r.Free:
		p.Warnf(at, "", "a \"max_wait\" of %s has no effect: the queue is full before anybody would wait that long", wait)
	}
}
