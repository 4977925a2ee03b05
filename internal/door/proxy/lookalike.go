package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/decide/engine"
	"github.com/headgate/headgate/internal/door/answer"
	"github.com/headgate/headgate/internal/door/verdict"
)

const (
	keptTimes = 64 // how many response times a lookalike remembers
	// agreeing is how many answers must have the same value of a field before the
	// field counts as a habit of the upstream.
	agreeing   = 2
	maxOptions = 1 << 10 // longest body of an answer to OPTIONS to keep, in bytes

	allowOrigin = "Access-Control-Allow-Origin"
)

// lookalikes know, for each shadow ban rule, how the upstream answers the requests
// that the rule allows.
type lookalikes struct {
	byScope sync.Map // *lookalike by rules.Rule.Scope
}

// of returns the lookalike of a rule.
func (l *lookalikes) of(scope string) *lookalike {
	known, ok := l.byScope.Load(scope)
	if !ok {
		known, _ = l.byScope.LoadOrStore(scope, &lookalike{methods: map[string]*manner{}})
	}
	look, _ := known.(*lookalike) // nothing else is stored
	return look
}

// lookalike describes how an upstream answers, by method.
type lookalike struct {
	mu      sync.Mutex
	methods map[string]*manner
}

// manner describes how an upstream answers requests of one method: how long it takes,
// and which fields are the same in all its answers.
type manner struct {
	times   [keptTimes]time.Duration
	count   int
	habits  http.Header
	broken  map[string]bool // the fields that differ between answers
	origin  string          // the last Access-Control-Allow-Origin
	options *optionsAnswer  // nil unless the method is OPTIONS
}

// optionsAnswer is an upstream's answer to OPTIONS.
type optionsAnswer struct {
	status int
	header http.Header
	body   []byte
}

// methodsKept returns the methods that have their own manner.
func methodsKept() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
}

// habitual returns the fields that describe the server and do not depend on the client.
func habitual() []string {
	return []string{
		"Accept-Ranges", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
		"Access-Control-Expose-Headers", "Access-Control-Max-Age", "Allow", "Cache-Control", "Content-Language",
		"Content-Security-Policy", "Cross-Origin-Embedder-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy",
		"Expires", "Keep-Alive", "Origin-Agent-Cluster", "Permissions-Policy", "Pragma", "Referrer-Policy", "Server",
		"Strict-Transport-Security", "Vary", "Via", "X-Content-Type-Options", "X-Dns-Prefetch-Control", "X-Download-Options",
		"X-Frame-Options", "X-Permitted-Cross-Domain-Policies", "X-Powered-By", "X-Xss-Protection",
	}
}

// learn notes an answer of the upstream, which took that long.
func (l *lookalike) learn(method string, took time.Duration, res *http.Response) {
	if res.StatusCode < 200 || res.StatusCode > 299 || !slices.Contains(methodsKept(), method) {
		return
	}
	var options *optionsAnswer
	if method == http.MethodOptions {
		options = optionsOf(res)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.methods[method]
	if m == nil {
		m = &manner{habits: http.Header{}, broken: map[string]bool{}}
		l.methods[method] = m
	}
	m.times[m.count%keptTimes] = took
	m.count++
	m.options = options
	m.origin = res.Header.Get(allowOrigin)
	for _, name := range habitual() {
		values, had := res.Header[name], m.habits[name]
		switch {
		case m.broken[name] || slices.Equal(values, had):
		case had == nil && m.count == 1:
			m.habits[name] = slices.Clone(values)
		default:
			delete(m.habits, name)
			m.broken[name] = true
		}
	}
}

// optionsOf returns the answer to OPTIONS, or nil if it is too long or meant for one
// client only.
func optionsOf(res *http.Response) *optionsAnswer {
	if res.ContentLength < 0 || res.ContentLength > maxOptions || res.Header["Set-Cookie"] != nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOptions))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
	if err != nil || int64(len(body)) != res.ContentLength {
		return nil
	}
	return &optionsAnswer{res.StatusCode, http.Header{"Content-Type": res.Header["Content-Type"]}, body}
}

// latency returns how long an answer must take to look like the upstream's: the time
// of one of its answers, of the same method if possible; 0 if it is unknown. random
// returns a number from 0 to below n.
func (l *lookalike) latency(method string, random func(n int) int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.methods[method]
	for _, other := range methodsKept() {
		if m != nil {
			break
		}
		m = l.methods[other]
	}
	if m == nil {
		return 0
	}
	return m.times[random(min(m.count, keptTimes))]
}

// dress adds the upstream's habits to the header of an answer to r. If r is an OPTIONS
// request it returns the upstream's answer to those, if it is known.
func (l *lookalike) dress(h http.Header, r *http.Request) *optionsAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.known(r.Method)
	if m == nil {
		return nil
	}
	for name, values := range m.habits {
		if _, has := h[name]; !has && len(values) > 0 {
			h[name] = slices.Clone(values)
		}
	}
	if m.broken["Cache-Control"] && h["Cache-Control"] == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		h.Set("Cache-Control", "private") // for caches that otherwise decide themselves
	}
	if m.origin != "" && (m.origin == "*" || m.origin == r.Header.Get("Origin")) {
		h.Set(allowOrigin, m.origin)
	}
	if r.Method != http.MethodOptions {
		return nil
	}
	return m.options
}

// known returns the manner of a method, or else of the first method with enough
// answers; nil if there is none. The caller holds mu.
func (l *lookalike) known(method string) *manner {
	if m := l.methods[method]; m != nil && (m.count >= agreeing || m.options != nil) {
		return m
	}
	for _, other := range methodsKept() {
		if m := l.methods[other]; m != nil && m.count >= agreeing {
			return m
		}
	}
	return nil
}

// maxDrained is how much of the body of a banned request is read, in bytes. If there is
// more, the connection closes after the answer.
const maxDrained = 64 << 20

// pretend answers a banned request as if it had reached the upstream. It reads the
// body, and takes as long as the rule says, or else as allowed requests take, plus the
// time for which other limits delay the request.
func (p *Proxy) pretend(w http.ResponseWriter, x *exchange, v *engine.Verdict) {
	r, on := x.in, &v.Rule.OnLimit
	look := p.lookalikes.of(v.Rule.Scope)
	p.queues.arriving.Discard(w, r, maxDrained)
	latency := on.Latency.Pick(rand.Int64N)
	if latency == 0 {
		latency = look.latency(r.Method, rand.IntN)
	}
	latency += turn(v)
	if left := latency - p.options.Clock().Sub(x.at); left > 0 && p.room.pretend() {
		// If the wait is cut short the answer is still the same.
		_ = p.room.stay(r.Context(), left, p.options.Clock)
		p.room.pretended()
	}
	as := verdict.Refusal(v, x.policies, x.dialect)
	if options := look.dress(w.Header(), r); options != nil {
		as.Status, as.Body, as.Bodies = options.status, string(options.body), nil
		as.ContentType = options.header.Get("Content-Type")
	}
	p.settleOwn(r.Context(), x, v, as.Status)
	as.Policies = x.policies
	// An upstream's date comes here, in alphabetical order: net/http would add its own
	// at the end.
	w.Header().Set("Date", p.options.Clock().UTC().Format(http.TimeFormat))
	answer.Pretend(w, r, as)
}

// turn returns how long the limits that the client can see would delay the request.
func turn(v *engine.Verdict) time.Duration {
	var longest time.Duration
	for i, results := 0, v.Results(); i < len(results); i++ {
		if r := &results[i]; r.Enforced && !r.Hidden() {
			longest = max(longest, r.Decision.Delay)
		}
	}
	return longest
}

// learn notes how the upstream answers a request that a shadow ban rule allows.
func (p *Proxy) learn(x *exchange, res *http.Response) {
	if x.hidden == "" {
		return
	}
	p.lookalikes.of(x.hidden).learn(x.in.Method, p.options.Clock().Sub(x.at), res)
}
